"""Finds index entries that no reader takes any more, for a merge to leave out.

An entry is valid while the newest version of its object has its sqn. Once the ledger holds a
newer version, or none (a deletion that has reached the basement), it never becomes valid again.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints, column_of, cuts
from octavo.files.ledger import find_many, index_terms, ledger_key
from octavo.files.ledger.find_many import Level
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.rows import Columns

_TOGETHER_BYTES = 16 << 20
"""Bytes of the keys of entries whose objects are looked up together."""


def without_stale(columns: Columns, kept: Ints, levels: Sequence[Level]) -> Ints:
    """``kept`` without the rows of stale index entries. ``levels``: the whole ledger, as
    find_many.newest takes it. One lookup an index row. Raises Corruption."""
    indexed = np.array([prefix[0] == ledger_key.INDEX for prefix in columns.prefixes])
    if not indexed.any():
        return kept
    of_index = (
        np.full(len(kept), indexed[0]) if columns.groups is None else indexed[columns.groups[kept]]
    )
    rows = kept[of_index]
    if not len(rows):
        return kept
    newest = np.zeros(len(rows), dtype=np.uint64)
    for low, high in cuts(columns.keys.lengths[rows], len(rows), _TOGETHER_BYTES):
        newest[low:high] = _newest(columns, rows[low:high], levels)
    stale = newest != columns.sqns[rows]
    if not stale.any():
        return kept
    gone = np.zeros(len(kept), dtype=np.bool_)
    gone[np.flatnonzero(of_index)[stale]] = True
    left: Ints = kept[~gone]
    return left


def _newest(columns: Columns, rows: Ints, levels: Sequence[Level]) -> npt.NDArray[np.uint64]:
    """The newest sqn of each entry's object; 0: there is none."""
    newest = np.zeros(len(rows), dtype=np.uint64)
    objects = column_of([_object_of(columns.ledger_key(row)) for row in rows.tolist()])
    for sst, base, which, found in find_many.newest(levels, objects, hash_column(objects)):
        newest[which] = sst.sqns_of(found, base)
    return newest


def _object_of(index_key: bytes) -> bytes:
    """The ledger key of the object that an index row is of."""
    at = ledger_key.end_of_prefix(index_key)
    tag, key = index_terms.object_of(index_key[at:])
    return bytes((tag,)) + index_key[1:at] + key
