"""A program that tests start: as followed_spark.py, and says the same, without Spark.

Streams are driven as Spark drives them: the offset of a batch is written down, then what was read
before is acknowledged, then the batch is planned, read and taken in, and that is written down.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from followed_owner import say
from followed_reads import Reads, generation, kept, row
from followed_steps import Change
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from staged_rows import StagedRow, operations

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.errors import HistoryCompacted
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms
from octavo.pipeline import commit, feed, writing
from octavo.pipeline.batch_reader import SnapshotReader
from octavo.pipeline.read_options import CHANGE_DDL, DDL, parsed

TYPES = {
    "binary": BinaryType, "string": StringType, "bigint": LongType, "timestamp": TimestampType,
}  # fmt: skip


def schema_of(names: Iterable[str]) -> StructType:
    known = {**DDL, **CHANGE_DDL}
    return StructType([StructField(name, TYPES[known[name]]()) for name in names])


def rows_of(batches: Iterable[Any]) -> list[Any]:
    return [row(**line) for batch in batches for line in batch.to_pylist()]


class Stream(threading.Thread):
    """One, from its checkpoint on."""

    def __init__(self, name: str, request: dict[str, Any], drain: threading.Event) -> None:
        super().__init__()
        self.name, self.request, self.drain = name, request, drain
        self.work = Path(request["work"])
        self.batch = threading.Event()

    def run(self) -> None:
        number = generation(self.work, self.name)
        while True:
            say("begun", self.name, number)
            try:
                self.follow(number)
                return
            except HistoryCompacted as wrong:
                say("gap", self.name, f"HistoryCompacted: {wrong}")
                number = generation(self.work, self.name, fresh=True)
            except Exception:  # noqa: BLE001 - who started this judges it
                say("failed", self.name, traceback.format_exc())
                return

    def follow(self, number: int) -> None:
        place = self.work / f"{self.name}.{number}"
        options = {"path": self.request["source"], "readChangeFeed": "true"}
        options |= self.request[self.name]
        if "consumerId" in options:
            options["consumerId"] = f"{self.name}.{number}"
        offsets, commits = (Path(f"{place}.checkpoint", part) for part in ("offsets", "commits"))
        for folder in (offsets, commits):
            folder.mkdir(exist_ok=True)
        stream = self.opened(options)
        done = len(list(offsets.iterdir()))
        reached = [json.loads((offsets / f"{id}").read_text()) for id in range(done)]
        begun = reached[-1] if reached else stream.initialOffset()
        if reached and not (commits / f"{done - 1}").exists():
            before = reached[-2] if done > 1 else stream.initialOffset()
            self.take(stream, done - 1, before, begun, place)
            written(commits / f"{done - 1}", {})
        while True:
            last = self.drain.is_set()
            if last or self.request["now"]:
                stream = self.opened(options)
                stream.prepareForTriggerAvailableNow()
            end = stream.latestOffset(begun, stream.getDefaultReadLimit())
            if end == begun:
                if last:
                    return
                self.drain.wait(0.02)
                continue
            written(offsets / f"{done}", end)
            if done:
                stream.commit(begun)
            self.take(stream, done, begun, end, place)
            written(commits / f"{done}", {})
            begun, done = end, done + 1

    def opened(self, options: dict[str, str]) -> Any:
        return feed.FeedStream(feed.feed_options(options), schema_of(CHANGE_DDL))

    def take(self, stream: Any, id: int, begun: Any, end: Any, place: Path) -> None:
        parts = stream.partitions(begun, end)
        if self.name == "log":
            folder = Path(f"{place}.batches")
            folder.mkdir(exist_ok=True)
            attempt = len(list(folder.glob(f"{id}.*.rows")))
            told = [row for part in parts for row in rows_of(stream.read(part))]
            kept(folder / f"{id}.{attempt}.rows", told)
            say("batch", id)
            return
        target = f"{place}.target"
        commit.made_store(target)
        options = writing.write_options({"path": target})
        job = f"stream-{number_of(place)}"
        names = [writing.staged(stream.read(part), options, job).attempt for part in parts]
        commit.committed(target, job, names, "query", id)
        say("taken", id)


def number_of(place: Path) -> str:
    return place.name.rpartition(".")[2]


def written(where: Path, what: Any) -> None:
    half = where.parent.with_name(f"{where.parent.name}.half")
    half.write_text(json.dumps(what))
    os.rename(half, where)


class PlainReads(Reads):
    def changes(self, options: dict[str, Any]) -> list[Any]:
        given = {name: f"{value}" for name, value in options.items()}
        given |= {"path": self.path, "readChangeFeed": "true"}
        reader = feed.FeedReader(feed.feed_options(given), schema_of(CHANGE_DDL))
        return [row for part in reader.partitions() for row in rows_of(reader.read(part))]

    def rows(self, made: Any, columns: list[str]) -> list[dict[str, Any]]:
        options = parsed({"path": self.path, "columns": ",".join(columns), "splitBytes": "200k"})
        reader = SnapshotReader(options, made.path, None, schema_of(columns))
        return [
            line
            for part in reader.partitions()
            for batch in reader.read(part)
            for line in batch.to_pylist()
        ]

    def write(self, changes: list[Change], job: str) -> None:
        names = []
        for at in (0, 1):
            writer = StagedWriter(RealDisk(), self.path, job, f"{at}", now_ms=wall_clock_ms())
            writer.add(operations([StagedRow(*change[:3]) for change in changes[at::2]]))
            writer.finish()
            names.append(f"{at}")
        octavo.commit(self.path, job, names)


def main() -> None:
    request = json.loads(sys.argv[1])
    say("up")
    stop, drain = threading.Event(), threading.Event()
    reads = PlainReads(request)
    streams = [] if request["heads"] else [Stream(n, request, drain) for n in ("sink", "log")]
    for stream in streams:
        stream.start()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    while not stop.is_set():
        reads.one()
    drain.set()
    for stream in streams:
        stream.join()
    say("drained")


if __name__ == "__main__":
    main()
