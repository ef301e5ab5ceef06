"""Limits how many rows of a ledger file are read together, by their bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from octavo.files.ledger.sst import Sst


def within(
    sst: Sst, low: int, high: int, most_bytes: int, *, reverse: bool, metas: bool
) -> tuple[int, int]:
    """As many of the rows [low, high), from the front or (``reverse``) from the end, as have at
    most ``most_bytes`` of keys and, where ``metas`` are read, of metadata; one at the least.
    0.3 us, or O(log rows)."""
    ends = sst.key_ends
    if ends[high] - ends[low] > most_bytes:
        low, high = _within(ends, low, high, most_bytes, reverse)
    if metas and sst.meta_ends is not None:
        low, high = _within(sst.meta_ends, low, high, most_bytes, reverse)
    return low, high


def _within(
    ends: memoryview, low: int, high: int, most_bytes: int, reverse: bool
) -> tuple[int, int]:
    if ends[high] - ends[low] <= most_bytes:
        return low, high
    if reverse:
        return min(bisect_left(ends, ends[high] - most_bytes, low, high), high - 1), high
    return low, max(bisect_right(ends, ends[low] + most_bytes, low, high + 1) - 1, low + 1)
