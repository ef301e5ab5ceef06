"""Ledger rows as columns: what a merge takes in and what a ledger file is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from octavo.files.kernels.arrays import U8, U32, U64, np, npt
from octavo.files.kernels.columns import ByteColumn, Strings

TOMBSTONE = 1
"""Flag: the key was deleted."""
EXPIRES = 2
"""Flag: ``expiries`` holds the moment, in ms UTC, from which the key reads as absent."""

ROW_BYTES = 150
"""Memory that a row takes while files are made of it, beside its key."""
PART_BYTES = 72 << 20
"""What rows that are made into files together may take."""

SqnColumn: TypeAlias = "npt.NDArray[np.uint32] | npt.NDArray[np.uint64]"
"""Sequence numbers as a ledger file has them: widen them before adding to them."""


@dataclass(slots=True)
class Rows:
    """n ledger rows, one array a column."""

    keys: ByteColumn  # whole ledger keys: prefix + key
    hashes: U32  # low 32 bits of xxh3-64 of the ledger key
    sqns: U64  # absolute
    flags: U8
    sizes: U32  # bytes of the value as the user gave it
    times: U64  # write time, ms UTC
    expiries: U64 | None = None  # ms UTC, 0 = none; None = no row expires
    metas: Strings | None = None  # user metadata; None = no row has any

    def __len__(self) -> int:
        return len(self.sqns)
