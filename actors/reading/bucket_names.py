"""Which buckets there are, and which of them hold a live key."""

from __future__ import annotations

from collections.abc import Collection

from octavo.actors.view import View
from octavo.files.kernels.arrays import np
from octavo.files.ledger import ledger_key
from octavo.files.ledger.live_batches import Batch

_FEW = 512
"""So many buckets are looked at one by one, some 70 us each, whatever there is beside."""
_ROWS_A_LOOK = 1000
"""Rows of other buckets that a pass steps over in the time of such a look."""


def fronts(view: View, upper: int, tag: int) -> dict[bytes, bool]:
    """The prefixes of the buckets that any source has rows of a type in; True: a look at its
    newest source told that it holds a live key. Raises Corruption."""
    lives: dict[bytes, bool] = {}
    recent = view.recent
    for table in (recent, *view.frozen):
        front = known = b"\xff"  # that of the key before; if it needs no more looks; now of none
        entries = table.rows
        # A list of keys is made in one step, whoever puts meanwhile; one of pairs is not.
        for key in list(entries):
            if key[0] == tag and not key.startswith(known):
                if not key.startswith(front):
                    front = key[: ledger_key.end_of_prefix(key)]
                    lives.setdefault(front, False)
                if table is recent and 0 < entries[key] <= upper:
                    lives[front] = True
                if table is not recent or lives[front]:
                    known = front
    for each in view.ledger.entries:  # newest first; below level zero none has keys of another
        for prefix, flags in each.file.reader().fronts().items():
            if prefix[0] == tag and prefix not in lives:
                lives[prefix] = not flags
    return lives


def in_one_pass(view: View, doubtful: int) -> bool:
    """Whether so many buckets are sooner looked at in one pass over all rows than one by one."""
    if doubtful <= _FEW:
        return False
    in_memory = sum([len(table.rows) for table in (view.recent, *view.frozen)])
    in_files = sum([each.rows for each in view.ledger.entries])
    return in_memory + in_files < doubtful * _ROWS_A_LOOK


def of_batch(batch: Batch) -> Collection[bytes]:
    """The prefixes of the buckets that a batch has rows of."""
    columns, rows = batch
    if columns.groups is None:
        return columns.prefixes
    found = np.unique(columns.groups[rows]).tolist()
    return [columns.prefixes[group] for group in found]
