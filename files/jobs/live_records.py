"""Tells which records of a journal file are still needed, by what the ledger knows of their keys.

A put is live if the ledger's newest version of its key has its sqn. What is no longer live is
garbage, with one exception: a delete, and likewise a put that expired, keeps older versions of
its key from coming back when the ledger is rebuilt from the journal. It stays, as a delete, for
as long as an older file may hold a put of that key.

Only for records at or below the sqn that the ledger has persisted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from octavo.files.journal import record
from octavo.files.kernels.arrays import Bools, np, npt
from octavo.files.kernels.byte_strings import array_of
from octavo.files.kernels.columns import ByteColumn
from octavo.files.ledger.find_many import Level, newest
from octavo.files.ledger.rows import TOMBSTONE

Verdicts: TypeAlias = "npt.NDArray[np.uint8]"
Sqns: TypeAlias = "npt.NDArray[np.uint64]"

DROP = 0
KEEP = 1
TO_DELETE = 2
"""A put that expired, to be kept as a delete."""
SUPERSEDED = 3
"""A put, or a key delta, with a newer version: dropped, unless its tag retains key deltas."""
UNSURE = 4
"""The ledger knows only an older version of the key, which should not be: the record is kept."""


@dataclass(frozen=True, slots=True)
class Newest:
    """What the ledger knows of some keys: arrays, an element each."""

    sqns: Sqns  # 0: the key is not there
    deleted: Bools


def newest_of(levels: Sequence[Level], keys: ByteColumn, hashes: npt.NDArray[np.uint32]) -> Newest:
    """The newest version of each key. Files are verified as a whole. Raises Corruption."""
    sqns = np.zeros(len(hashes), dtype=np.uint64)
    deleted = np.zeros(len(hashes), dtype=np.bool_)
    for sst, base, which, rows in newest(levels, keys, hashes):
        sqns[which] = sst.sqns_of(rows, base)
        deleted[which] = (array_of(sst.flags)[rows] & TOMBSTONE) != 0
    return Newest(sqns, deleted)


def verdicts(
    kinds: npt.NDArray[np.uint8],
    sqns: Sqns,
    expiries: Sqns,
    known: Newest,
    *,
    clean_below: int,
    now_ms: int,
) -> Verdicts:
    """What is to become of each record.

    ``clean_below``: no older file holds a put that was superseded as of this sqn, so deletes up
    to it (inclusive) have nothing left to hide.
    """
    put, delete = kinds == record.PUT, kinds == record.DELETE
    there = known.sqns > 0
    over = there & (known.sqns > sqns)
    best = there & ~over
    expires = expiries > 0
    expired = expires & (expiries <= np.uint64(max(now_ms, 0)))
    # A put that may expire and is not in the ledger was dropped there because it did: whatever
    # the clock says now.
    dead = (best & (expired | known.deleted)) | (~there & expires)
    hides = (delete & ~over) | (put & dead & ~over)
    out = np.full(len(sqns), DROP, dtype=np.uint8)
    out[put & best & ~dead] = KEEP
    out[put & over] = SUPERSEDED
    out[kinds == record.KEY_DELTA] = SUPERSEDED
    gone = ~there | (known.deleted & (known.sqns <= np.uint64(clean_below)))
    out[(out == SUPERSEDED) & gone] = DROP  # no delete will say which key such a delta was of
    needed = hides & (sqns > np.uint64(clean_below))
    out[needed & delete] = KEEP
    out[needed & put] = TO_DELETE
    out[best & (known.sqns < sqns) & (put | delete)] = UNSURE
    return out
