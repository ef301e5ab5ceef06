"""The job that counts what a published snapshot has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from octavo.files.door.disk import Disk
from octavo.files.jobs import live_bits
from octavo.files.kernels.arrays import np
from octavo.files.ledger import few_maps
from octavo.files.ledger.bounds import HEAD_ROWS, OBJECTS, Bounds
from octavo.files.ledger.find_many import Level
from octavo.files.ledger.live_batches import FileRows, Source, buckets_of, live_batches
from octavo.files.ledger.sst import Sst


def sources_of(levels: Sequence[Level], bound: Bounds) -> list[Source]:
    """Sources of a ledger's rows in a range: one for each file of level zero, which come first, and
    one for each level below."""
    out: list[Source] = []
    kept = few_maps.most_maps()
    for depth, level in enumerate(levels):
        touched = [
            (partial(_file, level, number), base)
            for number, (sst, base) in enumerate(level)
            if (bound.high is None or sst.first_key < bound.high) and sst.last_key >= bound.low
        ]
        apart = [touched] if depth else [[one] for one in touched]
        for files in filter(None, apart):
            out.append(FileRows(files, bound, kept=len(out) < kept))
    return out


def _file(level: Level, number: int) -> Sst:
    return level[number][0]


def count(
    disk: Disk,
    *,
    ledger: str,
    levels: Sequence[Sequence[few_maps.Told]],
    now_ms: int,
    head_only: bool,
) -> dict[str, Any]:
    """Count live keys, and the bytes of their values, by type of objects: the result's ``counts``
    is {number as text: [keys, bytes]}. 0.15 us a key. Which sqns are live is written to a file
    beside the ledger's (live_bits.py). Raises Corruption."""
    bound = HEAD_ROWS if head_only else OBJECTS
    sources = sources_of(few_maps.opened(disk, ledger, levels), bound)
    out: dict[str, list[int]] = {}
    marking = live_bits.Marking()
    for batch in live_batches(sources, now_ms, reverse=bound.reverse):
        sizes = batch.columns.sizes[batch.rows]
        for prefix, low, high in buckets_of(batch):
            total = out.setdefault(str(prefix[0]), [0, 0])
            total[0] += high - low
            total[1] += int(sizes[low:high].sum(dtype="u8"))
        if not head_only:
            marking.add(batch.columns.sqns[batch.rows].astype(np.int64))
    if not head_only:
        marking.write(disk, f"{ledger}/{live_bits.NAME}")
    return {"counts": out}
