"""What followers of a store do beside their streams: reads of ranges and snapshots, and loads."""

from __future__ import annotations

import json
import os
import random
import secrets
from abc import abstractmethod
from pathlib import Path
from typing import Any

from followed_owner import say
from followed_steps import LOADED, Change, digest, loaded_row

from octavo.files.door.disk import RealDisk
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import pinning
from octavo.pipeline.feed_files import JournalLook

LEASE_MS = 3_600_000
LOADED_ROWS = 40


def kept(where: Path, made: Any) -> None:
    """Written as a whole or not at all."""
    half = where.with_name(f"{where.name}.{secrets.token_hex(4)}.half")
    half.write_text(json.dumps(made, default=bytes.hex))
    os.rename(half, where)


def row(
    *, _commit_sqn: int, _change_type: str, bucket: bytes, key: bytes, value: Any, metadata: Any,
    **_more: Any,
) -> tuple[int, bytes, bytes, int]:  # fmt: skip
    """A change as it is kept."""
    deleted = _change_type == "delete"
    return _commit_sqn, bucket, key, 0 if deleted else digest(value, metadata)


def generation(work: Path, name: str, *, fresh: bool = False) -> int:
    """Which checkpoint of a stream counts; they are begun one after the other."""
    there = len(list(work.glob(f"{name}.*.checkpoint")))
    if fresh or not there:
        (work / f"{name}.{there}.checkpoint").mkdir()
        there += 1
    return there - 1


class Reads:
    """Of a store that somebody writes into meanwhile."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.path = request["source"]
        self.work = Path(request["work"]) / "reads"
        self.work.mkdir(exist_ok=True)
        self.rng = random.Random(request["luck"])
        self.heads = request["heads"]

    @abstractmethod
    def changes(self, options: dict[str, Any]) -> list[Any]:
        """A batch read of the feed."""

    @abstractmethod
    def rows(self, made: Any, columns: list[str]) -> list[dict[str, Any]]:
        """A read of a published snapshot."""

    @abstractmethod
    def write(self, changes: list[Change], job: str) -> None:
        """A bulk load."""

    def failed(self) -> None:
        """Something raised: look whether anything can be done at all any more."""

    def one(self) -> None:
        kinds = ("snapshot",) if self.heads else ("range", "range", "snapshot", "load")
        kind = self.rng.choice(kinds)
        name = secrets.token_hex(6)
        try:
            if kind == "load":
                self.load(name)
                say("loaded", name)
                return
            kept(self.work / f"{name}.{kind}", getattr(self, kind)())
            say("read", kind)
        except Exception as wrong:  # noqa: BLE001 - who started this judges it
            self.failed()
            say("refused", kind, f"{type(wrong).__name__}: {wrong}")

    def range(self) -> Any:
        look = JournalLook(RealDisk(), self.path)
        newest = look.newest()
        if newest <= look.horizon:  # there is nothing that must be told
            return 0, 0, []
        last = self.rng.randint(max(1, look.horizon), newest)
        first = max(1, self.rng.choice((last - 500, last - 20_000, look.horizon + 1)))
        last = max(first, last)
        options = {"startingSqn": first, "endingSqn": last, "splitBytes": "200k"}
        return first - 1, last, self.changes(options)

    def snapshot(self) -> Any:
        made = pinning.pin(RealDisk(), self.path, LEASE_MS, wall_clock_ms())
        more = "sub_key" if self.heads else "metadata"
        lines = self.rows(made, ["bucket", "key", "sqn", "value", more])
        return made.sqn, [
            (
                line["bucket"], line["key"], line["sqn"],
                digest(line["value"], b"" if self.heads else line["metadata"]),
            )
            for line in lines
        ]  # fmt: skip

    def load(self, job: str) -> None:
        keys = [LOADED + b"%s/%d" % (job.encode(), n) for n in range(LOADED_ROWS)]
        self.write([loaded_row(key) for key in keys], job)
