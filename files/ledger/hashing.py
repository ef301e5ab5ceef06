"""The hash that ledger files are searched by: the low half of xxh3-64 of the ledger key."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import lengths_of, of_one_length
from octavo.files.kernels.columns import ByteColumn
from octavo.files.kernels.xxh3_columns import xxh3_apart, xxh3_of

LOW_32 = 0xFFFFFFFF


def hash_of(ledger_key: bytes) -> int:
    """32 bits that a ledger file finds this key by. Some 0.1 us."""
    return xxh3(ledger_key) & LOW_32


def hash_column(keys: ByteColumn) -> npt.NDArray[np.uint32]:
    """``hash_of`` of each string. Some 0.05 us a row, 0.25 where few are of one length."""
    return (digest_column(keys) & np.uint64(LOW_32)).astype(np.uint32)


def digest_column(keys: ByteColumn) -> npt.NDArray[np.uint64]:
    """All 64 bits of the hash of each string, at the same cost."""
    lengths, length = lengths_of(keys.offsets), of_one_length(keys)
    seeds = np.zeros(len(lengths), np.uint64)
    if length >= 0:
        return xxh3_apart(keys.blob, int(keys.offsets[0]), length, length, seeds)
    return xxh3_of(keys.blob, keys.offsets[:-1], lengths, seeds)
