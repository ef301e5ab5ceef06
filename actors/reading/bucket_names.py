"""Which buckets there are, and which of them hold a live key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from octavo.actors.memory_table import Slice
from octavo.actors.view import View
from octavo.files.kernels.arrays import distinct
from octavo.files.ledger import chosen_rows, ledger_key
from octavo.files.ledger.live_batches import Batch

_FEW = 512
"""So many buckets are looked at one by one, whatever there is beside."""
_FIRST_KEYS, _MOST_KEYS = 16, 4096
"""Keys of memory that are taken at a time."""


def fronts(view: View, upper: int, tag: int, take: Slice) -> dict[bytes, bool]:
    """The prefixes of the buckets that any source has rows of a type in; True: a look at its
    newest source told that it holds a live key. Of a bucket in memory, keys are looked at as far
    as the first live one. Raises Corruption."""
    lives: dict[bytes, bool] = {}
    recent = view.recent
    for table in (recent, *view.frozen):
        entries = table.rows
        low, most = bytes((tag,)), _FIRST_KEYS
        while keys := take(table, low, bytes((tag + 1,)), most, False):
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
                    low = keys[end - 1] + b"\x00"  # it may have more
                at = end
    for each in view.ledger.entries:  # newest first; below level zero none has keys of another
        for prefix, flags in each.file.reader().fronts().items():
            if prefix[0] == tag and prefix not in lives:
                lives[prefix] = not flags
    return lives


def in_one_pass(view: View, doubtful: int) -> bool:
    """Whether so many buckets are sooner looked at in one pass over all rows than one by one."""
    return doubtful > _FEW and chosen_rows.in_one_pass(most_rows(view), doubtful)


def most_rows(view: View) -> int:
    """How many rows there are, of all types, versions and buckets."""
    in_memory = sum([len(table.rows) for table in (view.recent, *view.frozen)])
    return in_memory + sum([each.rows for each in view.ledger.entries])


def of_batch(batch: Batch) -> Collection[bytes]:
    """The prefixes of the buckets that a batch has rows of."""
    columns, rows = batch
    if columns.groups is None:
        return columns.prefixes
    found = distinct(columns.groups[rows]).tolist()
    return [columns.prefixes[group] for group in found]
