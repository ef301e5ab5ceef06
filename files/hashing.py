"""The hash that ledger files are searched by: the low half of xxh3-64 of the ledger key."""

from __future__ import annotations

import os
from itertools import pairwise

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.arrays import np, npt
from octavo.files.rows import ByteColumn

LOW_32 = 0xFFFFFFFF

_STRETCH = 512
"""Rows hashed between two moments at which other threads may run."""


def hash_of(ledger_key: bytes) -> int:
    """32 bits that a ledger file finds this key by. Some 0.1 us."""
    return xxh3(ledger_key) & LOW_32


def hash_column(keys: ByteColumn) -> npt.NDArray[np.uint32]:
    """``hash_of`` of each string, a few hundred rows at a stretch. Some 0.15 us a row."""
    blob = keys.blob.tobytes()
    ends = keys.offsets.tolist()
    out = np.empty(len(ends) - 1, dtype=np.uint32)
    for low in range(0, len(out), _STRETCH):
        edge = ends[low : low + _STRETCH + 1]
        out[low : low + _STRETCH] = [xxh3(blob[a:b]) & LOW_32 for a, b in pairwise(edge)]
        os.sched_yield()
    return out
