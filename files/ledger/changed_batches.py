"""Finds what changed between two states of a ledger, as columns: net changes, a key at most once.

Both states are read window by window up to common bounds. A row of the same sqn in both is the same
version; only keys whose version differs are compared as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, as_list
from octavo.files.ledger.live_batches import Batch, Source, alive, edges, merged, rows_at
from octavo.files.ledger.rows import TOMBSTONE, Columns


class Changed(NamedTuple):
    """The changes of a range of keys."""

    puts: Batch
    """Live rows of the later state whose sqns are above the last one of the earlier state."""
    deletes: Batch
    """Live rows of the earlier state whose keys are not live in the later one."""
    sqns: Ints
    """The sqn of each delete; 0 where it is not known: the key expired, or a merge dropped its
    tombstone."""
    times: Ints
    """The moment of each delete, ms UTC; 0 where it is not known."""


def changed_batches(
    before: Sequence[Source], after: Sequence[Source], sqn: int, before_ms: int, after_ms: int
) -> Iterator[Changed]:
    """The changes from a state whose last sqn is ``sqn``, as of ``before_ms``, to a later one, as
    of ``after_ms``; both cover the same range. 0.2 us a row of both, 0.5 us a change more. Raises
    Corruption."""
    for edge in edges((*before, *after)):
        old = _state([part for source in before if (part := source.take(edge)) is not None])
        new = _state([part for source in after if (part := source.take(edge)) is not None])
        if new is not None:
            found = _compared(old, new, sqn, before_ms, after_ms)
        elif old is not None:
            found = _gone(old, before_ms)
        else:
            continue  # of keys that are chosen the window has none
        if len(found.puts.rows) or len(found.deletes.rows):
            yield found


def _state(parts: list[Columns]) -> Batch | None:
    return Batch(*merged(parts)) if parts else None


def _gone(old: Batch, before_ms: int) -> Changed:
    rows = old.rows[alive(old.columns, old.rows, before_ms)]
    unknown = np.zeros(len(rows), dtype=np.int64)
    return Changed(old._replace(rows=unknown[:0]), old._replace(rows=rows), unknown, unknown)


def _compared(old: Batch | None, new: Batch, sqn: int, before_ms: int, after_ms: int) -> Changed:
    none = np.zeros(0, dtype=np.int64)
    live = alive(new.columns, new.rows, after_ms)
    sqns = new.columns.sqns[new.rows]
    later = sqns > np.uint64(sqn)
    puts = new._replace(rows=new.rows[live & later])
    if old is None:
        return Changed(puts, new._replace(rows=none), none, none)
    rows = old.rows[alive(old.columns, old.rows, before_ms)]
    same = np.isin(old.columns.sqns[rows], sqns[live & ~later], assume_unique=True)
    rows = rows[~same]
    if not len(rows):
        return Changed(puts, old._replace(rows=none), none, none)
    keys = _keys(old.columns, rows)
    put = set(_keys(new.columns, puts.rows))
    marks = new.rows[later & ((new.columns.flags[new.rows] & TOMBSTONE) != 0)]
    mark_of = dict(zip(_keys(new.columns, marks), marks.tolist(), strict=True))
    kept = [at for at, key in enumerate(keys) if key not in put]
    sources = [mark_of.get(keys[at], -1) for at in kept]
    at = np.array(sources, dtype=np.int64)
    known = at >= 0
    told = np.zeros((2, len(at)), dtype=np.int64)
    told[0, known] = new.columns.sqns[at[known]].astype(np.int64)
    told[1, known] = new.columns.times[at[known]].astype(np.int64)
    return Changed(puts, old._replace(rows=rows[kept]), told[0], told[1])


def _keys(columns: Columns, rows: Ints) -> list[bytes]:
    """The whole ledger keys of some rows."""
    if not len(rows):
        return []
    found = rows_at(columns, rows).whole_keys()
    return as_list(found.blob.tobytes(), found.offsets)
