"""Reads without values: the rows of ledger files, one file after the other, without a merge.

A row is the newest of its key where its sequence number is live (files/jobs/live_bits.py), whatever
other files say: so each file is opened by one task, and no keys are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pyspark.sql.datasource import InputPartition

from octavo.files.jobs import live_bits
from octavo.files.jobs.live_bits import LiveBits
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.live_batches import WINDOW_ROWS, Batch
from octavo.pipeline.partitions import even_parts, split_of
from octavo.pipeline.snapshot_files import SnapshotFiles


@dataclass
class RowsOfFiles(InputPartition):
    """Rows of ledger files."""

    parts: list[tuple[int, int, int, int]]
    """(level of the file, its number there, first row, end)."""


def rows_of_files(files: SnapshotFiles, bound: Bounds, split_bytes: int) -> list[RowsOfFiles]:
    """The rows of a range of keys, live or not, in parts of about so many bytes (0: as ``split_of``
    says)."""
    found, rows = [], 0
    for level, entries in enumerate(files.found.ledger.levels):
        for number, entry in enumerate(entries):
            with files.reading():
                sst = files.open_ledger(entry)
                low = sst.lower_bound(bound.low)
                high = sst.rows if bound.high is None else sst.lower_bound(bound.high)
            if low < high:
                found.append((level, number, low, high, sst.bytes * (high - low) / sst.rows))
                rows += high - low
    sizes = [size for *_, size in found]
    out = []
    for part in even_parts(sizes, split_bytes or split_of(sum(sizes), rows)):
        cut = [_rows(*found[which][:4], begin, end) for which, begin, end in part]
        taken = [piece for piece in cut if piece[2] < piece[3]]
        if taken:
            out.append(RowsOfFiles(taken))
    return out


def _rows(
    level: int, number: int, low: int, high: int, begin: float, end: float
) -> tuple[int, int, int, int]:
    """The rows of a piece of a file's [low, high): its share [begin, end), from 0 to 1."""
    count = high - low
    return level, number, low + round(begin * count), low + round(end * count)


def unmerged(files: SnapshotFiles, partition: RowsOfFiles) -> Iterator[Batch]:
    """The live rows of a partition. Raises Corruption, SnapshotExpired."""
    with files.reading():
        bits = LiveBits(files.disk, f"{files.found.path}/{live_bits.NAME}")
    for level, number, low, high in partition.parts:
        entry = files.found.ledger.levels[level][number]
        with files.reading():
            columns = files.open_ledger(entry).columns(entry.sqn_base)
        for at in range(low, high, WINDOW_ROWS):
            with files.reading():
                sqns = columns.sqns[at : min(at + WINDOW_ROWS, high)].astype(np.int64)
                rows = np.flatnonzero(bits.are(sqns)) + at
            if len(rows):
                yield Batch(columns, rows)
