"""Makes ledger rows from journal records, by array kernels.

The worker process reads keys from the journal files themselves, so that filling level zero costs
the foreground nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import starmap
from mmap import mmap

from octavo.files.errors import Corruption
from octavo.files.journal import record
from octavo.files.journal.journal_values import fixed_fields
from octavo.files.kernels.arrays import U32, U64, distinct, np, npt
from octavo.files.kernels.byte_strings import (
    Ints,
    column_of,
    copy,
    cuts,
    fill,
    gather,
    numbers_at,
    offsets_of,
    prefixed,
)
from octavo.files.kernels.columns import ByteColumn, Bytes, Strings
from octavo.files.kernels.scattered_strings import Scattered, no_strings
from octavo.files.kernels.xxh3_columns import xxh3_of
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.index_terms import LEAST_BYTES
from octavo.files.ledger.rows import EXPIRES, PART_BYTES, ROW_BYTES, TOMBSTONE, Rows


def _optional(
    buffer: Bytes, at: Ints, flags: Bytes, flag: int, size: int
) -> npt.NDArray[np.uint64]:
    """The optional field of ``flag``, a number of ``size`` bytes, in each record; 0 where it is
    absent. Moves ``at`` behind it."""
    out = np.zeros(len(at), dtype=np.uint64)
    has = np.flatnonzero(flags & flag)
    if len(has):
        # Only damage puts it beyond the file's end; the header's checksum will show that.
        within = np.minimum(at[has], len(buffer) - size)
        out[has] = numbers_at(buffer, within, f"<u{size}")
        at[has] += size
    return out


def _check_headers(raw: Bytes, starts: Ints, ends: Ints, seed: int, file: str) -> None:
    """Compare every header checksum. Raises Corruption at the first that differs."""
    seeds = starts.astype(np.uint64) ^ np.uint64(seed)
    found = xxh3_of(raw, starts, ends - starts, seeds) & np.uint64(record.LOW_32)
    wrong = np.flatnonzero(numbers_at(raw, ends, "<u4") != found)
    if len(wrong):
        raise Corruption(file, int(starts[wrong[0]]), "journal record: header checksum")


def _prefixes(buffer: Bytes, at: Ints, lengths: Ints, tags: Bytes) -> tuple[list[bytes], Ints]:
    """(distinct ledger-key prefixes, which of them each record has)."""
    which = np.zeros(len(at), dtype=np.int64)
    found: list[bytes] = []
    shape = lengths * 256 + tags
    for code in distinct(shape).tolist():
        length, tag = divmod(code, 256)
        rows = np.flatnonzero(shape == code)
        if length == 0:
            which[rows] = len(found)
            found.append(ledger_key.prefix(tag, b""))
            continue
        names = (
            np.ascontiguousarray(buffer[at[rows][:, None] + np.arange(length, dtype=np.int64)])
            .view(np.dtype((np.void, length)))
            .ravel()
        )
        each, inverse = np.unique(names, return_inverse=True)
        which[rows] = len(found) + inverse
        found.extend(ledger_key.prefix(tag, name.tobytes()) for name in each)
    return found, which


def _keys(head: Headers, prefixes: list[bytes], which: Ints) -> ByteColumn:
    """The ledger key of each record: one of the prefixes, then the key."""
    if len(prefixes) == 1:
        return prefixed(prefixes[0], head.raw, head.key_at, head.key_bytes)
    lengths = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)
    starts = offsets_of(lengths)[:-1]
    ends = offsets_of(lengths[which] + head.key_bytes)
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    fill(head.raw, head.key_at, head.key_bytes, out, ends[:-1] + lengths[which])
    names = np.frombuffer(b"".join(prefixes), dtype=np.uint8)
    copy(names, starts[which], lengths[which], out, ends[:-1])
    return ByteColumn(out, ends)


@dataclass(slots=True)
class Headers:
    """The headers of a stretch of journal records as columns: one array element a record.

    Positions are in ``raw``, which is the file. All header checksums were verified.
    """

    raw: Bytes
    relative: Ints  # sequence numbers relative to the file's base, ascending
    start: Ints
    kinds: Bytes
    tags: Bytes
    flags: Bytes
    times: U64
    expiries: U64  # 0: never
    bucket_at: Ints
    bucket_bytes: Ints
    key_at: Ints
    key_bytes: Ints
    meta_at: Ints
    meta_bytes: Ints
    index_at: Ints
    index_bytes: Ints
    head_end: Ints  # where the two sums begin
    stored: Ints  # bytes of the value as it stands
    sizes: U32  # bytes of the value as the user gave it

    def __len__(self) -> int:
        return len(self.relative)

    def few(self, most_bytes: int, *, entries: bool) -> Iterator[tuple[slice, Headers]]:
        """The records in parts, as (which they are, their headers): neighbours whose rows take at
        most ``most_bytes``, or one record; one part at the least. ``entries``: the rows of index
        entries count, too; each repeats its object's key."""
        sizes = ROW_BYTES + self.bucket_bytes + self.key_bytes
        if entries and self.index_bytes.any():
            sizes = sizes * (1 + self.index_bytes // LEAST_BYTES)
        if int(sizes.sum()) <= most_bytes:
            yield slice(0, len(sizes)), self
            return
        for some in starmap(slice, cuts(sizes, len(sizes), most_bytes)):
            arrays = {each.name: getattr(self, each.name)[some] for each in fields(self)[1:]}
            yield some, replace(self, **arrays)


def headers_of(
    buffer: bytes | memoryview,
    offsets: npt.NDArray[np.uint32],
    first: int,
    seed: int,
    file: str,
) -> Headers:
    """The headers of the records that ``offsets`` tells of, in their order.

    Record ``first + i``, a relative number, begins at ``offsets[i]``; empty ranges are left out.
    Header checksums are verified, values are not read. O(records). Raises Corruption.
    """
    all_starts = offsets.astype(np.int64)
    there = np.flatnonzero(all_starts[1:] > all_starts[:-1])
    return headers_at(buffer, first + there, all_starts[there], all_starts[there + 1], seed, file)


def headers_at(
    buffer: bytes | memoryview | mmap,
    relative: Ints,
    start: Ints,
    limit: Ints,
    seed: int,
    file: str,
) -> Headers:
    """As ``headers_of``, for records anywhere in the file: those of the numbers ``relative``,
    which begin at ``start`` and end at ``limit`` or before."""
    raw = np.frombuffer(buffer, dtype=np.uint8)
    if len(start) and (
        int((limit - start).min()) < record.FIXED_BYTES + record.SUMS_BYTES
        or int(limit.max()) > len(raw)
    ):
        raise Corruption(file, int(start[0]), "record offsets do not fit the file")
    fixed = fixed_fields(raw, start)
    kinds, tags, flags = (fixed[name].copy() for name in ("kind", "tag", "flags"))
    bucket_len, key_len = fixed["bucket"].astype(np.int64), fixed["key_1"].astype(np.int64) + 1
    times, data_len = fixed["time"].astype(np.uint64), fixed["content"].astype(np.int64)
    at = start + record.FIXED_BYTES
    expiries = _optional(raw, at, flags, record.EXPIRY, 8)
    meta_len = _optional(raw, at, flags, record.METADATA, 4).astype(np.int64)
    index_len = _optional(raw, at, flags, record.INDEX, 4).astype(np.int64)
    at[np.flatnonzero(flags & record.BATCH)] += 8
    raw_len = _optional(raw, at, flags, record.LZ4, 4)
    sub_len = _optional(raw, at, flags, record.SUB_KEY, 2).astype(np.int64)
    key_at = at + bucket_len
    meta_at = key_at + key_len + sub_len
    index_at = meta_at + meta_len
    head_end = index_at + index_len
    stored = start + 16 + data_len - head_end - record.SUMS_BYTES
    if len(start) and (int(stored.min()) < 0 or bool((head_end + 8 > limit).any())):
        raise Corruption(file, int(start[0]), "journal record: lengths do not fit")
    _check_headers(raw, start, head_end, seed, file)
    sizes = np.where(flags & record.LZ4, raw_len, stored.astype(np.uint64)).astype(np.uint32)
    return Headers(
        raw,
        relative,
        start,
        kinds,
        tags,
        flags,
        times,
        expiries,
        at,
        bucket_len,
        key_at,
        key_len,
        meta_at,
        meta_len,
        index_at,
        index_len,
        head_end,
        stored,
        sizes,
    )


def object_rows(head: Headers, base_sqn: int) -> Rows:
    """The ledger row of each record's key, in their order; key deltas get one, too."""
    row_flags = np.where(head.kinds == record.DELETE, TOMBSTONE, 0).astype(np.uint8)
    row_flags[head.expiries > 0] |= EXPIRES
    prefixes, which = _prefixes(head.raw, head.bucket_at, head.bucket_bytes, head.tags)
    keys = _keys(head, prefixes, which)
    return Rows(
        keys=keys,
        hashes=hash_column(keys),
        sqns=(head.relative + base_sqn).astype(np.uint64),
        flags=row_flags,
        sizes=head.sizes,
        times=head.times,
        expiries=head.expiries if bool((head.expiries > 0).any()) else None,
        metas=(
            Strings(head.raw, head.meta_at, head.meta_bytes)
            if bool((head.meta_bytes > 0).any())
            else None
        ),
    )


def index_rows(head: Headers, base_sqn: int, file: str) -> Rows | None:
    """The rows of the records' index entries; None if there are none. Raises Corruption."""
    indexed = np.flatnonzero((head.index_bytes > 0) & (head.kinds == record.PUT)).tolist()
    if not indexed:
        return None
    keys: list[bytes] = []
    counts = []
    for row in indexed:
        bucket, key, index = (
            head.raw[at : at + size].tobytes()
            for at, size in (
                (int(head.bucket_at[row]), int(head.bucket_bytes[row])),
                (int(head.key_at[row]), int(head.key_bytes[row])),
                (int(head.index_at[row]), int(head.index_bytes[row])),
            )
        )
        try:
            found = index_terms.ledger_keys(int(head.tags[row]), bucket, key, index)
        except ValueError as wrong:
            raise Corruption(file, int(head.index_at[row]), f"journal record: {wrong}") from None
        keys += found
        counts.append(len(found))
    of = np.repeat(np.array(indexed, dtype=np.int64), counts)
    column = column_of(keys)
    expiries = head.expiries[of]
    return Rows(
        keys=column,
        hashes=hash_column(column),
        sqns=(head.relative[of] + base_sqn).astype(np.uint64),
        flags=np.where(expiries > 0, EXPIRES, 0).astype(np.uint8),
        sizes=np.zeros(len(of), np.uint32),
        times=head.times[of],
        expiries=expiries if bool((expiries > 0).any()) else None,
    )


def rows_of(
    buffer: bytes | memoryview,
    offsets: npt.NDArray[np.uint32],
    first: int,
    seed: int,
    base_sqn: int,
    file: str,
    without_tags: Sequence[int] = (),
) -> Iterator[Rows]:
    """The ledger's rows of a stretch of records, some at a time: one for each put and delete, and
    one for each index entry; none for objects whose tag is in ``without_tags``. Other arguments and
    errors as ``headers_of``; a wrong index entry raises Corruption when its rows are asked for."""
    head = headers_of(buffer, offsets, first, seed, file)
    if without_tags:
        foreign = np.isin(head.tags, np.array(without_tags, dtype=np.uint8))
        head.index_bytes = np.where(foreign, 0, head.index_bytes)
    return (
        _rows_of(some, base_sqn, file, without_tags)
        for _, some in head.few(PART_BYTES, entries=True)
    )


def _rows_of(head: Headers, base_sqn: int, file: str, without_tags: Sequence[int]) -> Rows:
    rows = object_rows(head, base_sqn)
    left_out = head.kinds == record.KEY_DELTA
    if without_tags:
        left_out |= np.isin(head.tags, np.array(without_tags, dtype=np.uint8))
    if bool(left_out.any()):
        rows = taken(rows, np.flatnonzero(~left_out))
    entries = index_rows(head, base_sqn, file)
    return rows if entries is None else concatenated([rows, entries])


def together(parts: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows in larger parts: neighbours are joined up to ``PART_BYTES`` in all."""
    held: list[Rows] = []
    size = 0
    for rows in parts:
        taken_up = len(rows) * ROW_BYTES + len(rows.keys.blob)
        if held and size + taken_up > PART_BYTES:
            whole, held, size = concatenated(held), [], 0
            yield whole
            del whole
        held.append(rows)
        size += taken_up
        del rows  # or it would stay in memory while the caller uses what was held
    if held:
        yield concatenated(held)


def taken(rows: Rows, which: Ints) -> Rows:
    """The rows of these numbers, in this order."""
    return Rows(
        keys=_picked(rows.keys, which),
        hashes=rows.hashes[which],
        sqns=rows.sqns[which],
        flags=rows.flags[which],
        sizes=rows.sizes[which],
        times=rows.times[which],
        expiries=None if rows.expiries is None else rows.expiries[which],
        metas=None if rows.metas is None else rows.metas.picked(which),
    )


def apart(rows: Rows) -> Rows:
    """The same rows with their metadata copied, so that they keep no view of the map it is in."""
    metas = rows.metas
    if metas is None:
        return rows
    return replace(rows, metas=Scattered([metas]).picked(np.arange(len(rows))))


def _picked(column: ByteColumn, which: Ints) -> ByteColumn:
    starts = column.offsets[:-1][which]
    return gather(column.blob, starts, column.offsets[1:][which] - starts)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        keys=_stacked([p.keys for p in parts]),
        hashes=np.concatenate([p.hashes for p in parts]),
        sqns=np.concatenate([p.sqns for p in parts]),
        flags=np.concatenate([p.flags for p in parts]),
        sizes=np.concatenate([p.sizes for p in parts]),
        times=np.concatenate([p.times for p in parts]),
        expiries=(
            None
            if all(p.expiries is None for p in parts)
            else np.concatenate(
                [np.zeros(len(p), np.uint64) if p.expiries is None else p.expiries for p in parts]
            )
        ),
        metas=(
            None
            if all(p.metas is None for p in parts)
            else Scattered([no_strings(len(p)) if p.metas is None else p.metas for p in parts])
        ),
    )


def _stacked(columns: Sequence[ByteColumn]) -> ByteColumn:
    blobs, offsets, at = [], [np.zeros(1, np.int64)], 0
    for column in columns:
        low, high = int(column.offsets[0]), int(column.offsets[-1])
        blobs.append(column.blob[low:high])
        offsets.append(column.offsets[1:] - low + at)
        at += high - low
    return ByteColumn(np.concatenate(blobs), np.concatenate(offsets))
