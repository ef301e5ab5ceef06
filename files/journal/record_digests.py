"""Digests of journal records and of ledger rows, as columns of numbers: array kernels compare the
two to verify that ledger and journal agree. The values of a journal file are checked here, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption
from octavo.files.journal import record
from octavo.files.journal.journal_rows import Headers
from octavo.files.journal.record import LOW_32, SUMS_BYTES
from octavo.files.kernels.arrays import U64, np, npt
from octavo.files.kernels.byte_strings import Mask, gather, numbers_at
from octavo.files.kernels.columns import Strings
from octavo.files.ledger.hashing import digest_column
from octavo.files.ledger.live_batches import Batch, rows_at, strings_of
from octavo.files.ledger.rows import Rows

Numbers: TypeAlias = "npt.NDArray[np.unsignedinteger[Any]]"

_STRETCH = 512
"""Records that are hashed before other threads are let run."""


class Digests(NamedTuple):
    """What records or rows say of their keys: an array element for each."""

    keys: U64
    """Hash of the ledger key, of all 64 bits."""
    sqns: U64
    rests: U64
    """A digest of size, write time, expiry and metadata. It differs where just one of the three
    numbers does; in all other cases different rows have the same one by a chance of 2 ** -64."""
    expiries: U64
    """0: never."""

    def taken(self, which: npt.NDArray[np.int64] | Mask) -> Digests:
        """The digests at these positions, in their order, or where a mask is true."""
        return Digests(*(column[which] for column in self))


_TIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
"""Factors of sizes, times, expiries: odd, so that different numbers have different products."""
_ALL_64 = (1 << 64) - 1


def _rests(sizes: Numbers, times: Numbers, expiries: U64 | None, metas: U64 | None) -> U64:
    found = sizes.astype(np.uint64) * np.uint64(_TIMES[0])
    found ^= times.astype(np.uint64) * np.uint64(_TIMES[1])
    if expiries is not None:
        found ^= expiries.astype(np.uint64) * np.uint64(_TIMES[2])
    if metas is not None:
        found ^= metas
    return found


def of_records(rows: Rows, which: npt.NDArray[np.int64]) -> Digests:
    """The digests of some records, from the ledger rows of their keys. 0.1 to 0.3 us a record."""
    expiries = None if rows.expiries is None else rows.expiries[which]
    return Digests(
        keys=digest_column(strings_of(rows.keys.strings(), which)),
        sqns=rows.sqns[which],
        rests=_rests(
            rows.sizes[which],
            rows.times[which],
            expiries,
            None if rows.metas is None else _meta_hashes(rows.metas.picked(which)),
        ),
        expiries=np.zeros(len(which), dtype=np.uint64) if expiries is None else expiries,
    )


def of_batch(batch: Batch) -> Digests:
    """The digests of a batch's rows, one at the least. It was made with ``heads``. 50 ns a row."""
    rows = rows_at(batch.columns, batch.rows)
    expiries = None if rows.expiries is None else rows.expiries.astype(np.uint64)
    metas = None if rows.metas is None else _meta_hashes(rows.metas)
    return Digests(
        keys=digest_column(rows.whole_keys()),
        sqns=rows.sqns.astype(np.uint64),
        rests=_rests(rows.sizes, rows.times, expiries, metas),
        expiries=np.zeros(len(rows), dtype=np.uint64) if expiries is None else expiries,
    )


def of_one(key: bytes, sqn: int, head: record.Header | record.Record) -> tuple[int, ...]:
    """What Digests holds of a single record, in that order."""
    rest = xxh3(head.metadata) if head.metadata else 0
    for number, times in zip((head.size, head.time_ms, head.expiry_ms), _TIMES, strict=True):
        rest ^= number * times & _ALL_64
    return xxh3(key), sqn, rest, head.expiry_ms


def from_rows(rows: Iterable[tuple[int, ...]]) -> Digests:
    """The digests of records that ``of_one`` was asked of."""
    table = np.array(list(rows), dtype=np.uint64).reshape(-1, len(Digests._fields))
    return Digests(*table.T)


def _meta_hashes(metas: Strings) -> U64:
    """The hash of each, 0 where it is empty."""
    found = digest_column(gather(metas.blob, metas.starts, metas.lengths))
    return np.where(metas.lengths > 0, found, np.uint64(0))


def check_values(view: memoryview, head: Headers, seed: int, file: str) -> None:
    """Check that this release knows the kind of every record, and that its value is whole. Header
    checksums were verified. Raises Corruption. Some 1 us a record, and what hashing takes."""
    raw = head.raw
    known = (raw[head.start + 18] == record.VERSION) & (head.kinds >= record.PUT)
    known &= (head.kinds <= record.KEY_DELTA) & ((head.flags & ~np.uint8(record.KNOWN_FLAGS)) == 0)
    if not bool(known.all()):
        at = int(head.start[np.flatnonzero(~known)[0]])
        raise Corruption(file, at, "journal record: of an unknown version, kind or flags")
    ends = head.head_end + SUMS_BYTES
    sums = numbers_at(raw, head.head_end + 4, "<u4")
    for low in range(0, len(head), _STRETCH):
        part = slice(low, low + _STRETCH)
        starts, head_ends = head.start[part].tolist(), head.head_end[part].tolist()
        heads = [xxh3(view[a:b], seed ^ a) for a, b in zip(starts, head_ends, strict=True)]
        stored = zip(ends[part].tolist(), head.stored[part].tolist(), heads, strict=True)
        found = [xxh3(view[a : a + size], h) & LOW_32 for a, size, h in stored]
        wrong = np.flatnonzero(sums[part] != np.array(found, dtype=np.uint32))
        if len(wrong):
            raise Corruption(file, int(ends[low + int(wrong[0])]), "value checksum")
        os.sched_yield()
    for row in np.flatnonzero(head.flags & record.LZ4).tolist():
        at, size = int(ends[row]), int(head.stored[row])
        try:
            record.decompress(view[at : at + size], int(head.sizes[row]))
        except ValueError as wrong_value:
            raise Corruption(file, at, f"compressed value: {wrong_value}") from None
