"""What tasks of Spark read of a store's files, without Spark, held against what must be there."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from event_log import EventLog, State, live

from octavo.files.door.disk import Disk
from octavo.files.journal import record
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.change_rows import change_batches
from octavo.pipeline.feed_files import JournalLook, records
from octavo.pipeline.file_order import rows_of_files, unmerged
from octavo.pipeline.journal_order import stretch_batches, stretches
from octavo.pipeline.snapshot_files import SnapshotFiles

ROWS = pa.schema([("bucket", pa.binary()), ("key", pa.binary()), ("sqn", pa.int64())])
VALUES = ROWS.append(pa.field("value", pa.binary())).append(pa.field("metadata", pa.binary()))
CHANGES = pa.schema(
    [
        ("bucket", pa.binary()), ("key", pa.binary()), ("_change_type", pa.string()),
        ("_commit_sqn", pa.int64()), ("value", pa.binary()),
    ]
)  # fmt: skip
Published = tuple[str, State, int]
"""Where it is, and what it must hold as of a moment."""


def of_type(number: int) -> Bounds:
    tag = bytes((number,))
    return Bounds(b"", tag, ledger_key.after(tag), False)


def told(batches: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


class SparkReads:
    """Reads of published snapshots of objects of one type."""

    def __init__(self, disk: Disk, now: int, rng: random.Random, kind: str, number: int) -> None:
        self.disk, self.now, self.rng = disk, now, rng
        self.kind, self.number = kind, number

    def files(self, path: str) -> SnapshotFiles:
        return SnapshotFiles(path, self.disk, lambda: self.now)

    def rows(self, made: Published) -> dict[tuple[bytes, bytes], Any]:
        there = live(made[1], made[2])
        return {where[1:]: event for where, event in there.items() if where[0] == self.kind}

    def snapshot(self, made: Published) -> None:
        """In the order of keys, in that of the journal, and file by file."""
        files, bound, rng = self.files(made[0]), of_type(self.number), self.rng
        there = self.rows(made)
        keys = sorted((*where, event.sqn) for where, event in there.items())
        whole = sorted(
            (*where, event.sqn, event.value, event.metadata or None)
            for where, event in there.items()
        )
        by_key = record_batches(files, files.batches(bound), VALUES, checksums=True)
        assert told(by_key) == whole
        split = rng.choice((0, 1, 700, 5000))
        assert whole == told(
            batch
            for part in stretches(files, split)
            for batch in stretch_batches(files, self.number, part, VALUES, checksums=True)
        )
        assert keys == told(
            batch
            for part in rows_of_files(files, bound, split)
            for batch in record_batches(files, unmerged(files, part), ROWS, checksums=True)
        )

    def changes(self, first: Published, second: Published) -> None:
        """What leads from an earlier one to a later one."""
        before, after = self.rows(first), self.rows(second)
        found = told(
            change_batches(
                self.files(second[0]), self.files(first[0]), of_type(self.number), None, CHANGES,
                checksums=True,
            )
        )  # fmt: skip
        puts = [
            (*where, "put", event.sqn, event.value)
            for where, event in after.items()
            if getattr(before.get(where), "sqn", 0) != event.sqn
        ]
        gone = sorted(before.keys() - after.keys())
        assert [row[:2] for row in found if row[2] == "delete"] == gone, (found, gone)
        assert [row for row in found if row[2] == "put"] == sorted(puts), (found, puts)


def feed(disk: Disk, path: str, log: EventLog, rng: random.Random) -> None:
    """The change feed of another process tells what the log has."""
    look = JournalLook(disk, path)
    upto = look.newest()
    since = max(look.horizon, rng.choice((0, upto - 9)))
    found = [
        (each.sqn, each.bucket, each.key, each.value if each.kind == record.PUT else None)
        for part in look.parts(since, upto, rng.choice((1, 4000, 1 << 30)))
        for each in records(disk, path, part, look.horizon)
    ]
    wanted = [(e.sqn, *e.where[1:], e.value) for e in log.above(since)]
    for mine, other in zip_longest(found, wanted):
        assert mine == other, (since, upto, look.horizon, len(found), len(wanted))
