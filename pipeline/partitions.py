"""Key ranges of about even size: what each task of a read gets.

Ranges, not files, since levels overlap. Each ledger file gives a sample of its keys, one for each
so many bytes of keys and values; the cuts are taken from all samples together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from pyspark.sql.datasource import InputPartition

from octavo.files.door.processors import usable_processors
from octavo.files.kernels.arrays import distinct
from octavo.files.kernels.byte_strings import array_of
from octavo.files.ledger import head_key, ledger_key
from octavo.files.ledger.bounds import Bounds, bounds, of_type
from octavo.files.ledger.chosen_rows import Asked, Chosen, Span, of_all_buckets
from octavo.files.ledger.sst import Sst
from octavo.pipeline.snapshot_files import SnapshotFiles

SAMPLES = 64
"""Keys that are sampled for each task's share."""
_ROW_BYTES = 64
"""What a row costs beside its key, metadata and value: so much is read in the time it takes."""
_LEAST_TASK = 16 << 20
_MOST_TASK = 512 << 20
_MOST_PARTS = 1 << 14
"""Bound of the parts, since a manifest may give any sizes of files."""


@dataclass
class KeyRange(InputPartition):
    """Ledger keys of one type of objects, in parts that each are of one bucket or of all."""

    parts: list[Bounds]
    chosen: Chosen | None = None


def asked_for(
    files: SnapshotFiles,
    tag: int,
    bucket: bytes | None,
    spans: Sequence[Span],
    before: SnapshotFiles | None = None,
) -> Asked:
    """The keys of some spans in a bucket, or in all; of ``before``, too, where given."""
    if tag == ledger_key.HEAD_ONLY:
        spans = [_escaped(span) for span in spans]
    if bucket is not None:
        name = ledger_key.prefix(tag, bucket)
        return Asked([bounds(name, *span, False) for span in spans], None)
    whole = of_type(tag)
    if Span() in spans:
        return Asked([whole], None)
    names: set[bytes] = set()
    rows = 0
    for sst in _ledgers(whole, files, before):
        for name, low, high in sst.groups():
            if name[0] == tag:
                names.add(name)
                rows += high - low
    return of_all_buckets(tag, spans, names, rows)


def _escaped(span: Span) -> Span:
    """The span as keys of a head-only store stand in the ledger, with an end mark."""
    start, end, prefix = span
    return Span(
        None if start is None else head_key.whole(start),
        None if end is None else head_key.whole(end),
        None if prefix is None else head_key.beginning(prefix),
    )


def _ledgers(bound: Bounds, files: SnapshotFiles, before: SnapshotFiles | None) -> Iterator[Sst]:
    """The ledger files that have something of a range."""
    for each in (files,) if before is None else (files, before):
        for entries in each.levels(bound):
            for entry in entries:
                with each.reading():
                    yield each.open_ledger(entry)


def partitions(
    files: SnapshotFiles,
    asked: Asked,
    *,
    values: bool,
    split_bytes: int,
    before: SnapshotFiles | None = None,
) -> list[KeyRange]:
    """What is asked for, cut into ranges of about ``split_bytes``, several small ones together.
    Reads the sizes of the rows, 4 bytes each, and their keys where some are chosen. ``before``:
    another snapshot that is read beside."""
    samples = partial(_samples, files, before, values=values, chosen=asked.chosen)
    split_bytes = split_bytes or split_of(
        sum(size for bound in asked.ranges for _, size in samples(bound, 1 << 62))
    )
    out: list[KeyRange] = []
    taken: list[Bounds] = []
    filled = 0.0
    for bound in asked.ranges:
        if bound.high is not None and bound.low >= bound.high:
            continue
        step = max(split_bytes / SAMPLES, 1)
        for part, size in _cut(bound, sorted(samples(bound, step)), split_bytes):
            if taken and filled + size > 1.25 * split_bytes:
                out.append(KeyRange(taken, asked.chosen))
                taken, filled = [], 0.0
            taken.append(part)
            filled += size
    if taken:
        out.append(KeyRange(taken, asked.chosen))
    return out


def _samples(
    files: SnapshotFiles,
    before: SnapshotFiles | None,
    bound: Bounds,
    step: float,
    *,
    values: bool,
    chosen: Chosen | None,
) -> Iterator[tuple[bytes, float]]:
    for sst in _ledgers(bound, files, before):
        yield from _sample(sst, bound, step, values=values, chosen=chosen)


def split_of(total: float, rows: float = 0.0, processors: int = 0) -> int:
    """Bytes of a task of a read of ``total`` where nobody says: one task for each processor that
    the process which plans may use (0: asks), as Spark cuts files. Fewer where a task, which costs
    Spark some 15 ms, would have less work than 16 MiB; more where it would have above 512 MiB.
    ``rows``: whose cost ``total`` does not have."""
    processors = processors or usable_processors()
    count = min(max(int((total + rows * _ROW_BYTES) / _LEAST_TASK), 1), processors)
    if total > count * _MOST_TASK:
        count = processors * math.ceil(total / (processors * _MOST_TASK))
    return math.ceil(total / count) or 1


Piece: TypeAlias = "tuple[int, float, float]"


def even_parts(sizes: Sequence[float], split_bytes: float) -> Iterator[list[Piece]]:
    """Files of these sizes cut into parts of the same size, about ``split_bytes``: of each part
    the pieces (number of the file, where they begin and end in it, from 0.0 to 1.0)."""
    total = sum(sizes)
    count = min(max(round(total / split_bytes), 1), _MOST_PARTS)
    share = total / count
    slack = share / 64  # less than that is not cut off: a part has a little more, or less
    goals = iter([*(share * number for number in range(1, count)), math.inf])
    part: list[Piece] = []
    done, goal = 0.0, next(goals)
    for number, size in enumerate(sizes):
        low = 0.0
        while low < size:
            high = min(size, low + goal - done)
            if size - high <= slack:
                high = size
            part.append((number, low / size, high / size))
            done += high - low
            low = high
            if goal - done <= slack:
                yield part
                part, goal = [], next(goals)
    if part:
        yield part


def _cut(
    bound: Bounds, samples: list[tuple[bytes, float]], split_bytes: int
) -> Iterator[tuple[Bounds, float]]:
    """(part, about how many bytes it has) of one range, in order."""
    total = sum(size for _, size in samples)
    if not total:
        return
    share = total / max(round(total / split_bytes), 1)
    low, filled, wanted = bound.low, 0.0, share
    cut_at = 0.0
    for key, size in samples:
        more = filled < total and (bound.high is None or key < bound.high)
        if more and filled >= wanted and low < key:
            yield bound._replace(low=low, high=key), filled - cut_at
            low, cut_at = key, filled
            wanted = filled + share
        filled += size
    yield bound._replace(low=low), filled - cut_at


def _sample(
    sst: Sst, bound: Bounds, step: float, *, values: bool, chosen: Chosen | None = None
) -> list[tuple[bytes, float]]:
    """(ledger key, bytes from it to the next one of the sample) of a file's rows in the range."""
    low = sst.lower_bound(bound.low)
    high = sst.rows if bound.high is None else sst.lower_bound(bound.high)
    if low >= high:
        return []
    weights = np.full(high - low, _ROW_BYTES + len(sst.first_key), dtype=np.float64)
    if values:
        weights += array_of(sst.sizes[low:high])
    if chosen is not None:
        weights *= chosen.rows(sst.columns(0, low, high))
    filled = np.cumsum(weights)
    if not filled[-1]:
        return []
    count = max(int(filled[-1] / step), 1)
    if count < len(filled):
        at = np.searchsorted(filled, np.arange(count) * (filled[-1] / count), side="right")
        at = distinct(at)
    else:  # values are larger than steps, and a step may be one byte of them
        at = np.arange(len(filled))
    sizes = np.diff(np.append(filled[at] - weights[at], filled[-1]))
    return [(sst.ledger_key(low + row), size) for row, size in zip(at.tolist(), sizes, strict=True)]
