"""Reads of values in journal order: a stretch of the journal a task, from front to back.

The ledger says first which sequence numbers are live (files/jobs/live_bits.py); then the journal
tells everything else itself, and no value is sought by key.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from octavo.files.errors import Corruption
from octavo.files.jobs import live_bits
from octavo.files.jobs.live_bits import LiveBits
from octavo.files.journal import record
from octavo.files.journal.journal_values import Offsets, spans
from octavo.files.journal.record_columns import RecordColumns, columns_of
from octavo.files.kernels.byte_strings import Ints, cuts
from octavo.files.ledger.bounds import OBJECTS
from octavo.pipeline.arrow_rows import BATCH_BYTES, BATCH_ROWS
from octavo.pipeline.partitions import even_parts, split_of
from octavo.pipeline.put_arrays import PutArrays, of_records
from octavo.pipeline.snapshot_files import SnapshotFiles


@dataclass
class Stretch(InputPartition):
    """Records of journal files, ascending."""

    parts: list[tuple[int, int, int]]
    """(number of the file in the snapshot, first and last sqn, both inclusive)."""


# ---------------------------------------------------------------- planning


def bits_of(files: SnapshotFiles) -> LiveBits:
    """Which numbers are live; worked out if nobody did yet, some 0.15 us a key."""
    path = f"{files.found.path}/{live_bits.NAME}"
    with files.reading():
        if not files.disk.exists(path):
            marking = live_bits.Marking()
            for batch in files.batches(OBJECTS):
                marking.add(batch.columns.sqns[batch.rows].astype(np.int64))
            # Another planner may be doing the same: each writes a file of its own.
            mine = f"{path}-{secrets.token_hex(8)}"
            marking.write(files.disk, mine)
            files.disk.rename(mine, path)
        return LiveBits(files.disk, path)


def has_bits(files: SnapshotFiles) -> bool:
    """Whether it is known already which numbers are live."""
    with files.reading():
        return files.disk.exists(f"{files.found.path}/{live_bits.NAME}")


def stretches(files: SnapshotFiles, split_bytes: int) -> list[Stretch]:
    """The journal cut into stretches of the same size, about so many bytes of live records (0: as
    ``split_of`` says)."""
    bits = bits_of(files)
    weights, rows = [], 0
    for entry in files.found.journal.entries:
        with files.reading():
            live = bits.count(entry.base_sqn, entry.last_sqn)
            weights.append(entry.bytes * min(live / max(entry.count, 1), 1.0) if live else 0.0)
            rows += live
    out = []
    for part in even_parts(weights, split_bytes or split_of(sum(weights), rows)):
        cut = [(number, *_sqns(files, number, low, high)) for number, low, high in part]
        taken = [piece for piece in cut if piece[1] <= piece[2]]
        if taken:
            out.append(Stretch(taken))
    return out


def _sqns(files: SnapshotFiles, number: int, low: float, high: float) -> tuple[int, int]:
    """First and last sqn of a piece of a file: the share [low, high) of its bytes, from 0 to 1.
    Where one piece ends the next one begins."""
    entry = files.found.journal.entries[number]
    count = entry.last_sqn - entry.base_sqn + 1
    if (low, high) == (0.0, 1.0):
        return entry.base_sqn, entry.last_sqn
    with files.reading():
        _, offsets = files.open_journal(entry)
    begin, end = int(offsets[0]), int(offsets[count])

    def first(share: float) -> int:
        place = begin + share * (end - begin)
        return bisect_left(range(count), place, key=lambda at: int(offsets[at]))

    return (
        entry.base_sqn + (first(low) if low > 0.0 else 0),
        entry.base_sqn + (first(high) if high < 1.0 else count) - 1,
    )


# ---------------------------------------------------------------- rows


def stretch_batches(
    files: SnapshotFiles, tag: int, stretch: Stretch, schema: pa.Schema, *, checksums: bool
) -> Iterator[pa.RecordBatch]:
    """The live objects of a type in a stretch, by sqn, as record batches of exactly this schema.
    Raises Corruption, SnapshotExpired, Misuse (a type that does not fit)."""
    with files.reading():
        bits = LiveBits(files.disk, f"{files.found.path}/{live_bits.NAME}")
    for number, first, last in stretch.parts:
        entry = files.found.journal.entries[number]
        with files.reading():
            mapped, offsets = files.open_journal(entry)
            right = files.right(entry) if checksums else None
        for sqns in bits.between(first, last):
            for part in _fitting(offsets, sqns - entry.base_sqn):
                with files.reading():
                    found = _Found(files, mapped, part + entry.base_sqn, tag)
                    columns, careful = columns_of(mapped, offsets, part, right, tag)
                    batches = found.batches(columns, careful, schema)
                yield from batches


def _fitting(offsets: Offsets, relative: Ints) -> Iterator[Ints]:
    """The records in parts of not too many rows and bytes."""
    starts, limits = spans(offsets, relative)
    for low, high in cuts(limits - starts, BATCH_ROWS, BATCH_BYTES):
        yield relative[low:high]


class _Found:
    """Some records of one file on their way into record batches."""

    def __init__(self, files: SnapshotFiles, mapped: mmap | bytes, sqns: Ints, tag: int) -> None:
        self._files = files
        self._sqns = sqns
        self._tag = tag
        self._puts = PutArrays(mapped, sqns, files.record)

    def batches(
        self, columns: RecordColumns, careful: Ints, schema: pa.Schema
    ) -> list[pa.RecordBatch]:
        """In order: what came the short way, up to each record that did not, and that."""
        out: list[pa.RecordBatch] = []
        done = 0
        for row in careful.tolist():
            upto = int(np.searchsorted(columns.rows, row))
            out += self._puts.batches(columns.between(done, upto), schema)
            out += self._long(int(self._sqns[row]), schema)
            done = upto
        return out + self._puts.batches(columns.between(done, len(columns.rows)), schema)

    def _long(self, sqn: int, schema: pa.Schema) -> list[pa.RecordBatch]:
        """A batch of a record that did not come the short way; none if it is of another type."""
        whole = self._files.record(sqn)
        if whole.kind != record.PUT:
            raise Corruption(
                self._files.found.path, 0, f"sqn {sqn} is no put, though the ledger says it is"
            )
        if whole.tag != self._tag:
            return []
        return [of_records([whole], schema)]
