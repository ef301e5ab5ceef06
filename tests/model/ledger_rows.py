"""Ledger rows as plain tuples: what the tests of ledger files are written in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from forging import resealed
from simdisk import SimDisk

from octavo.files.door.disk import Disk
from octavo.files.kernels.columns import ByteColumn, Strings
from octavo.files.ledger import ledger_key, merge, sorted_files
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns, Rows
from octavo.files.ledger.sst import Sst

DIRECTORY = "/ledger"


class Row(NamedTuple):
    """One version of a key."""

    key: bytes
    """The whole ledger key."""
    sqn: int
    deleted: bool = False
    expiry: int = 0
    meta: bytes = b""
    size: int = 5
    time: int = 1_700_000_000_000

    @property
    def flags(self) -> int:
        return (TOMBSTONE if self.deleted else 0) | (EXPIRES if self.expiry else 0)


def key(user_key: bytes, bucket: bytes = b"") -> bytes:
    """A whole ledger key."""
    return ledger_key.prefix(ledger_key.STANDARD, bucket) + user_key


def column(strings: Iterable[bytes]) -> ByteColumn:
    """The strings end to end."""
    strings = list(strings)
    offsets = np.zeros(len(strings) + 1, dtype=np.int64)
    np.cumsum([len(s) for s in strings], out=offsets[1:])
    return ByteColumn(np.frombuffer(b"".join(strings), dtype=np.uint8), offsets)


def columns(rows: Sequence[Row]) -> Rows:
    """Rows as a merge takes them in."""
    keys = column(row.key for row in rows)
    return Rows(
        keys=keys,
        hashes=hash_column(keys),
        sqns=np.array([row.sqn for row in rows], dtype=np.uint64),
        flags=np.array([row.flags for row in rows], dtype=np.uint8),
        sizes=np.array([row.size for row in rows], dtype=np.uint32),
        times=np.array([row.time for row in rows], dtype=np.uint64),
        expiries=(
            np.array([row.expiry for row in rows], dtype=np.uint64)
            if any(row.expiry for row in rows)
            else None
        ),
        metas=column(row.meta for row in rows).strings() if any(row.meta for row in rows) else None,
    )


def plain(rows: Columns) -> list[Row]:
    """A file's columns as rows."""

    def strings(of: Strings | None) -> list[bytes]:
        if of is None:
            return [b""] * len(rows)
        places = zip(of.starts.tolist(), of.lengths.tolist(), strict=True)
        return [of.blob[at : at + length].tobytes() for at, length in places]

    expiries = [0] * len(rows) if rows.expiries is None else rows.expiries.tolist()
    return [
        Row(k, sqn, bool(flags & TOMBSTONE), expiry, meta, size, time)
        for k, sqn, flags, expiry, meta, size, time in zip(
            strings(rows.whole_keys().strings()), rows.sqns.tolist(), rows.flags.tolist(), expiries,
            strings(rows.metas), rows.sizes.tolist(), rows.times.tolist(), strict=True,
        )
    ]  # fmt: skip


def read(sst: Sst) -> list[Row]:
    """Every row of a file, by its accessors."""
    return [
        Row(
            sst.ledger_key(at), sst.sqns[at], bool(sst.flags[at] & TOMBSTONE), sst.expiry(at),
            sst.meta(at), sst.sizes[at], sst.time(at),
        )
        for at in range(sst.rows)
    ]  # fmt: skip


def names() -> Callable[[], str]:
    """Names that never recur."""
    numbers = itertools.count()
    return lambda: f"{next(numbers):04x}.sst"


def write(
    disk: Disk,
    rows: Sequence[Row],
    next_name: Callable[[], str],
    *,
    max_rows: int = 1 << 18,
    max_bytes: int = 64 << 20,
) -> list[sorted_files.Summary]:
    """Sorted, newest versions only, into files of DIRECTORY."""
    return merge.write_rows(
        disk, DIRECTORY, next_name, columns(rows), max_rows=max_rows, max_bytes=max_bytes
    )


def opened(disk: Disk, name: str) -> Sst:
    """A file of DIRECTORY."""
    path = f"{DIRECTORY}/{name}"
    return Sst(disk.map(path), path)


def lying(name: bytes, instead: bytes) -> tuple[Sst, sorted_files.Summary]:
    """A file of twenty keys, k00 to k19, that are not in order: one is another, with right
    checksums over that."""
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    rows = [Row(key(b"k%02d" % at), at + 1) for at in range(20)]
    (made,) = write(disk, rows, names())
    image = bytearray(disk.map(f"{DIRECTORY}/{made.name}"))
    assert (image.count(name), len(name)) == (1, len(instead))
    return Sst(resealed(bytearray(bytes(image).replace(name, instead))), made.name), made
