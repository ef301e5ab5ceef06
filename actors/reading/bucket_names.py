"""Finds which buckets a view has, and which of them hold a live key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from octavo.actors.memory_table import Slice
from octavo.actors.view import View
from octavo.files.kernels.arrays import distinct
from octavo.files.ledger import chosen_rows, ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.ledger_key import ABOVE_ALL
from octavo.files.ledger.live_batches import Batch

_FEW = 512
"""Up to so many buckets are looked at one by one, however few rows there are."""
_TOGETHER = 1 << 13
"""How many names of each file are looked at together."""
_FIRST_KEYS, _MOST_KEYS = 16, 4096
"""How many keys of a memory table are taken at a time: the first time, and at most."""


def stretches(view: View, bound: Bounds) -> list[Bounds]:
    """Split a range of prefixes into parts, in order, each with few prefixes of any file, so that
    the names of a million buckets need not be in memory. O(files). Raises Corruption."""
    edges: set[bytes] = set()
    for level in range(len(view.ledger.levels)):
        for each in view.ledger.overlapping(level, bound.low, bound.high or ABOVE_ALL):
            edges.update(each.file.reader().every(_TOGETHER))
    found = []
    for edge in sorted(edges):
        if bound.low < edge < (bound.high or ABOVE_ALL):
            found.append(bound._replace(high=edge))
            bound = bound._replace(low=edge)
    return [*found, bound]


def fronts(view: View, upper: int, bound: Bounds, take: Slice) -> dict[bytes, bool]:
    """By prefix, all buckets in a range of which any source has rows; True if a look at the newest
    of these sources showed a live key, False if that is unknown. Keys in memory are looked at up to
    a bucket's first live one. Raises Corruption."""
    lives: dict[bytes, bool] = {}
    recent = view.recent
    for table in (recent, *view.frozen):
        entries = table.rows
        low, most = bound.low, _FIRST_KEYS
        while keys := take(table, low, bound.high, most, False):
            most = min(2 * most, _MOST_KEYS)
            at = 0
            while at < len(keys):
                key = keys[at]
                front = key[: ledger_key.end_of_prefix(key)]
                low = front[:-1] + b"\x01"
                end = bisect_left(keys, low, at)
                if table is not recent:
                    lives.setdefault(front, False)
                elif 0 < entries[key] <= upper or any(
                    0 < entries[keys[row]] <= upper for row in range(at + 1, end)
                ):
                    lives[front] = True
                else:
                    lives.setdefault(front, False)
                    low = keys[end - 1] + b"\x00"  # the bucket may have more keys
                at = end
    above = bound.high or ABOVE_ALL
    for level in range(len(view.ledger.levels)):  # newest first; files below it do not overlap
        for each in view.ledger.overlapping(level, bound.low, above):
            for prefix, flags in each.file.reader().fronts(bound.low, above).items():
                if prefix not in lives:
                    lives[prefix] = not flags
    return lives


def in_one_pass(view: View, doubtful: int) -> bool:
    """Whether one pass over all rows is quicker than looking at so many buckets one by one."""
    return doubtful > _FEW and chosen_rows.in_one_pass(most_rows(view), doubtful)


def most_rows(view: View) -> int:
    """How many rows a view has, of all types, versions and buckets."""
    in_memory = sum([len(table.rows) for table in (view.recent, *view.frozen)])
    return in_memory + sum([each.rows for each in view.ledger.entries])


def of_batch(batch: Batch) -> Collection[bytes]:
    """The prefixes of the buckets that a batch has rows of."""
    columns, rows = batch
    if columns.groups is None:
        return columns.prefixes
    found = distinct(columns.groups[rows]).tolist()
    return [columns.prefixes[group] for group in found]
