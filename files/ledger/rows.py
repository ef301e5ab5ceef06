"""Ledger rows as columns: what a merge takes in and what a ledger file is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from octavo.files.kernels.arrays import U8, U32, U64, np, npt
from octavo.files.kernels.byte_strings import Ints, copy, fill, offsets_of, prefixed
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


@dataclass(slots=True)
class Columns:
    """n ledger rows, one array a column; the keys without their prefix (tag and bucket)."""

    keys: Strings
    prefixes: list[bytes]  # ascending
    groups: Ints | None  # which of the prefixes each row has; None: there is one prefix
    hashes: U32
    sqns: SqnColumn
    flags: U8
    sizes: U32
    times: U64
    expiries: U64 | None = None
    metas: Strings | None = None

    def __len__(self) -> int:
        return len(self.sqns)

    def ledger_key(self, row: int) -> bytes:
        """Prefix and key of a row."""
        group = 0 if self.groups is None else int(self.groups[row])
        start = int(self.keys.starts[row])
        key = self.keys.blob[start : start + int(self.keys.lengths[row])]
        return self.prefixes[group] + key.tobytes()

    def whole_keys(self) -> ByteColumn:
        """Prefix and key of every row, end to end. A copy."""
        keys = self.keys
        if self.groups is None:
            return prefixed(self.prefixes[0], keys.blob, keys.starts, keys.lengths)
        sizes = np.array([len(prefix) for prefix in self.prefixes], dtype=np.int64)
        prefix_lengths = sizes[self.groups]
        offsets = offsets_of(prefix_lengths + keys.lengths)
        blob = np.empty(int(offsets[-1]), dtype=np.uint8)
        prefixes = np.frombuffer(b"".join(self.prefixes), dtype=np.uint8)
        fill(keys.blob, keys.starts, keys.lengths, blob, offsets[:-1] + prefix_lengths)
        copy(prefixes, offsets_of(sizes)[:-1][self.groups], prefix_lengths, blob, offsets[:-1])
        return ByteColumn(blob, offsets)
