"""Cuts a range of keys into parts, so that files are merged a part at a time, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from octavo.files.kernels.arrays import np
from octavo.files.ledger.rows import PART_BYTES, ROW_BYTES
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import Section

_RANGE_BYTES = PART_BYTES
_STEP_BYTES, _MOST_EDGES = 4 << 20, 1 << 10
"""A part may begin at one key in _STEP_BYTES of a file, or in more bytes, so that there are at most
about _MOST_EDGES such keys in all."""


def key_ranges(
    files: Sequence[tuple[Sst, int]], low: bytes, high: bytes | None
) -> list[tuple[bytes, bytes | None]]:
    """Ranges [low, high) of ledger keys, ascending, that together make up the given one, about
    equally large in bytes. Verifies all checksums. Some 3 us for each file and each of up to 1,024
    keys. Raises Corruption, OSError."""
    spans, total = [], 0
    for sst, _ in files:  # not all may stay mapped: so nothing of a file is kept here
        sst.ensure_whole()
        rows = range(sst.lower_bound(low), sst.rows if high is None else sst.lower_bound(high))
        spans.append(rows)
        if rows:
            of = _weight(sst)
            total += of(rows.stop) - of(rows.start)
    parts = -int(-total // _RANGE_BYTES)
    if parts < 2:
        return [(low, high)]
    step = max(_STEP_BYTES, total // _MOST_EDGES)
    keys: set[bytes] = set()
    for (sst, _), rows in zip(files, spans, strict=True):
        if rows:
            of = _weight(sst)
            marks = range(of(rows.start) + step, of(rows.stop), step)
            cuts = {bisect_left(rows, mark, key=of) for mark in marks}
            keys.update(sst.ledger_key(rows[at]) for at in cuts if 0 < at < len(rows))
    edges = sorted(keys)
    below = np.zeros(len(edges))
    for (sst, _), rows in zip(files, spans, strict=True):
        of = _weight(sst)
        below += np.array([of(sst.lower_bound(edge)) - of(rows.start) for edge in edges])
    wanted = total / parts * np.arange(1, parts)
    nearest = sorted(
        {edges[at] for at in np.searchsorted(below, wanted).tolist() if at < len(edges)}
    )
    return list(pairwise([low, *nearest, high]))


def _weight(sst: Sst) -> Callable[[int], int]:
    """A function that tells how many bytes the rows before a given one take. It keeps the file
    mapped."""
    return partial(_bytes_before, sst.column(Section.KEY_ENDS, "I"))


def _bytes_before(key_ends: memoryview, row: int) -> int:
    found: int = key_ends[row]
    return found + row * ROW_BYTES
