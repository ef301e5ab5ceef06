"""What journal records and ledger rows say of their keys, as columns of numbers: so that the two
are held against each other by array kernels, and a journal file is checked to its last byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import record
from octavo.files.arrays import np, npt
from octavo.files.byte_strings import Mask, gather
from octavo.files.errors import Corruption
from octavo.files.hashing import digest_column
from octavo.files.journal_rows import Headers
from octavo.files.live_batches import Batch, buckets_of, keys_of
from octavo.files.record import LOW_32, SUMS_BYTES
from octavo.files.rows import Rows, Strings

U64: TypeAlias = "npt.NDArray[np.uint64]"

_STRETCH = 512
"""Records between two moments at which other threads may run."""


class Digests(NamedTuple):
    """An array element for each record or row. Of what is not given for a key, 0."""

    keys: U64
    """Hash of the ledger key, of all 64 bits."""
    sqns: U64
    sizes: U64
    times: U64
    expiries: U64
    metas: U64
    """Hash of the metadata."""

    def taken(self, which: npt.NDArray[np.int64] | Mask) -> Digests:
        """Those of these numbers, in their order."""
        return Digests(*(column[which] for column in self))

    def unequal(self, other: Digests) -> Mask:
        """Where the two differ in anything but the key."""
        found: Mask = self.sqns != other.sqns
        for mine, theirs in zip(self[2:], other[2:], strict=True):
            found = found | (mine != theirs)
        return found


def of_records(rows: Rows, which: npt.NDArray[np.int64]) -> Digests:
    """Some records, by the ledger rows of their keys. Some 0.1 to 0.3 us a record."""
    zero = np.zeros(len(which), dtype=np.uint64)
    keys = rows.keys.strings().picked(which)
    return Digests(
        keys=digest_column(gather(keys.blob, keys.starts, keys.lengths)),
        sqns=rows.sqns[which],
        sizes=rows.sizes[which].astype(np.uint64),
        times=rows.times[which],
        expiries=zero if rows.expiries is None else rows.expiries[which],
        metas=zero if rows.metas is None else _meta_hashes(rows.metas.picked(which)),
    )


def of_batch(batch: Batch) -> Digests:
    """The rows of a batch that was made with ``heads``. Some 0.4 us a row."""
    columns, rows = batch
    keys = keys_of(batch)
    found: list[int] = []
    for prefix, low, high in buckets_of(batch):
        found += [xxh3(prefix + key) for key in keys[low:high]]
    zero = np.zeros(len(rows), dtype=np.uint64)
    metas = columns.metas
    return Digests(
        keys=np.array(found, dtype=np.uint64),
        sqns=columns.sqns[rows].astype(np.uint64),
        sizes=columns.sizes[rows].astype(np.uint64),
        times=columns.times[rows].astype(np.uint64),
        expiries=zero if columns.expiries is None else columns.expiries[rows].astype(np.uint64),
        metas=zero if metas is None else _meta_hashes(metas.picked(rows)),
    )


def of_one(key: bytes, sqn: int, head: record.Header | record.Record) -> tuple[int, ...]:
    """The same of a single record."""
    meta = xxh3(head.metadata) if head.metadata else 0
    return xxh3(key), sqn, head.size, head.time_ms, head.expiry_ms, meta


def from_rows(rows: Iterable[tuple[int, ...]]) -> Digests:
    """Columns of what ``of_one`` gave."""
    table = np.array(list(rows), dtype=np.uint64).reshape(-1, len(Digests._fields))
    return Digests(*table.T)


def _meta_hashes(metas: Strings) -> U64:
    """The hash of each, 0 where it is empty."""
    found = digest_column(gather(metas.blob, metas.starts, metas.lengths))
    return np.where(metas.lengths > 0, found, np.uint64(0))


def check_values(view: memoryview, head: Headers, seed: int, file: str) -> None:
    """See that every record is of a kind that this release knows, and its value whole. Header
    checksums were verified. Raises Corruption. Some 1 us a record, and what hashing takes."""
    raw = head.raw
    known = (raw[head.start + 18] == record.VERSION) & (head.kinds >= record.PUT)
    known &= (head.kinds <= record.KEY_DELTA) & ((head.flags & ~np.uint8(record.KNOWN_FLAGS)) == 0)
    if not bool(known.all()):
        at = int(head.start[np.flatnonzero(~known)[0]])
        raise Corruption(file, at, "journal record: of an unknown version, kind or flags")
    ends = head.head_end + SUMS_BYTES
    sums = gather(raw, head.head_end + 4, np.full(len(head), 4)).blob.view("<u4")
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
