"""Reads puts of a journal file as columns, in journal order, by array kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from mmap import mmap

from octavo.files.journal import record
from octavo.files.journal.journal_values import (
    FIXED_FIELDS,
    Check,
    Offsets,
    checksums_right,
    fixed_fields,
    optional_bytes,
    right_of,
    spans,
)
from octavo.files.journal.record import FIXED_BYTES, LEAST_BYTES, SUMS_BYTES
from octavo.files.kernels.arrays import U64, np, npt
from octavo.files.kernels.byte_strings import Ints, Mask, gather, numbers_at
from octavo.files.kernels.columns import ByteColumn, Bytes

_STRETCH = 1 << 14
_WORDS = [("sizes", "<u8"), ("number", "<u8"), ("kinds", "<u8"), ("key_1", "<u2"), ("time", "<u8")]
"""The fixed part of a record as words."""
_SAME = ("sizes", "kinds", "key_1")
"""The words that are equal in records that are alike."""


@dataclass(slots=True)
class RecordColumns:
    """Puts of one type, an array element each; positions are in the file."""

    rows: Ints
    """The positions of these puts among the numbers that were asked for."""
    buckets_at: Ints
    bucket_bytes: Ints
    keys_at: Ints
    key_bytes: Ints
    metas_at: Ints
    meta_bytes: Ints
    values_at: Ints
    value_bytes: Ints
    """As stored."""
    raw_bytes: Ints
    """Bytes of the value before compression; -1 where it is stored as it is."""
    times: U64
    expiries: U64
    apart: int = 0
    """Bytes from each record to the next, if all are alike and evenly spaced; 0: not known."""

    def between(self, low: int, high: int) -> RecordColumns:
        """The puts [low, high)."""
        return _taken(self, slice(low, high))

    def strings(
        self, raw: Bytes, at: Ints, lengths: Ints, room: Callable[[int], Bytes]
    ) -> ByteColumn:
        """One part of each record, ``raw[at:][:lengths]``, copied end to end; ``room`` may be asked
        for the memory to copy into."""
        if not self.apart or not len(at) or not lengths[0]:
            return gather(raw, at, lengths)
        count, length = len(at), int(lengths[0])
        blob = room(count * length)
        evenly = np.ndarray((count,), f"V{length}", raw, int(at[0]), (self.apart,))
        blob.view(f"V{length}")[:] = evenly
        return ByteColumn(blob, np.arange(0, len(blob) + 1, length, dtype=np.int64))


def columns_of(
    mapped: mmap | bytes, offsets: Offsets, relative: Ints, check: Check | None, tag: int
) -> tuple[RecordColumns, Ints]:
    """(the puts of this tag among the records of some relative numbers, positions of those that are
    no whole puts and have to be looked at with care).

    Given a check, both checksums are verified: some 0.5 us a record, and the hashing of its bytes;
    framing is compared in any case, 0.05 us a record. Nothing is read beyond a record's end.
    """
    raw = np.frombuffer(mapped, dtype=np.uint8)
    starts, limits = spans(offsets, relative)
    alike = _alike(raw, starts, limits, relative, tag)
    if alike is not None:
        sums_at = alike.values_at - SUMS_BYTES
        if check is None or right_of(mapped, starts, sums_at, limits, check).all():
            return alike, np.zeros(0, dtype=np.int64)
    inside = (limits - starts >= LEAST_BYTES) & (limits <= len(raw))
    if not inside.all():
        rows = np.flatnonzero(inside)
        starts, limits = starts[rows], limits[rows]
    else:
        rows = np.arange(len(relative), dtype=np.int64)
    if not len(rows):
        return _none(), np.flatnonzero(~inside)
    head = fixed_fields(raw, starts)
    good = (head["kind"] == record.PUT) & (head["flags"] < 64)
    good &= head["number"] == relative[rows]
    ends = starts + 16 + head["content"]
    good &= ends == limits
    found, fits = _parts(raw, starts, ends, head, good)
    good &= fits
    wanted = good & (head["tag"] == tag)
    bad = ~inside
    bad[rows[~good]] = True
    found.rows = rows
    chosen = np.flatnonzero(good)  # of any tag: that may be the byte that is damaged
    if check is not None and len(chosen):
        sums_at = found.values_at[chosen] - SUMS_BYTES
        wrong = chosen[~right_of(mapped, starts[chosen], sums_at, ends[chosen], check)]
        bad[rows[wrong]] = True
        wanted[wrong] = False
    if not wanted.all():
        found = _taken(found, np.flatnonzero(wanted))
    return found, np.flatnonzero(bad)


def _alike(
    raw: Bytes, starts: Ints, limits: Ints, relative: Ints, tag: int
) -> RecordColumns | None:
    """The columns of plain puts of this tag that stand one after the other and differ only in
    number, time, and the bytes of bucket, key and value; None if these do not. 30 ns a record."""
    count = len(starts)
    if not count:
        return None
    at, apart = int(starts[0]), int(limits[0] - starts[0])
    if apart < LEAST_BYTES or at + count * apart > len(raw):
        return None
    if bool((starts[1:] != limits[:-1]).any()) or bool((limits - starts != apart).any()):
        return None
    head = np.ndarray((count,), f"V{FIXED_BYTES}", raw, at, (apart,)).copy()
    words = head.view(np.dtype(_WORDS))
    if any(bool((words[name] != words[name][0]).any()) for name in _SAME):
        return None
    fixed = head.view(np.dtype(FIXED_FIELDS))
    first = fixed[0]
    plain = first["kind"] == record.PUT and first["tag"] == tag and not first["flags"]
    bucket_bytes, key_bytes = int(first["bucket"]), int(first["key_1"]) + 1
    head_bytes = FIXED_BYTES + bucket_bytes + key_bytes
    value_bytes = apart - head_bytes - SUMS_BYTES
    whole = int(first["content"]) + 16 == apart and value_bytes >= 0
    if not plain or not whole or bool((fixed["number"] != relative).any()):
        return None
    all_of = partial(np.broadcast_to, shape=count)
    return RecordColumns(
        rows=np.arange(count, dtype=np.int64),
        buckets_at=starts + FIXED_BYTES,
        bucket_bytes=all_of(np.int64(bucket_bytes)),
        keys_at=starts + (FIXED_BYTES + bucket_bytes),
        key_bytes=all_of(np.int64(key_bytes)),
        metas_at=starts + head_bytes,
        meta_bytes=all_of(np.int64(0)),
        values_at=starts + (head_bytes + SUMS_BYTES),
        value_bytes=all_of(np.int64(value_bytes)),
        raw_bytes=all_of(np.int64(-1)),
        times=fixed["time"].astype(np.uint64),
        expiries=all_of(np.uint64(0)),
        apart=apart,
    )


def all_whole(mapped: mmap | bytes, table: npt.NDArray[np.uint32], seed: int) -> bool:
    """Whether every record of a file, of whatever kind, matches its checksums. ``table`` has an
    offset for each and one more, for the end. Some 0.7 us a record."""
    raw = np.frombuffer(mapped, dtype=np.uint8)
    if not len(table) or int(table[-1]) > len(raw):
        return False
    for low in range(0, len(table) - 1, _STRETCH):
        edges = table[low : low + _STRETCH + 1].astype(np.int64)
        there = np.flatnonzero(edges[1:] != edges[:-1])
        starts, limits = edges[:-1][there], edges[1:][there]
        if bool((limits - starts < LEAST_BYTES).any()):
            return False
        head = fixed_fields(raw, starts)
        ends = starts + 16 + head["content"]
        found, fits = _parts(raw, starts, ends, head, (ends <= limits) & (head["flags"] < 64))
        if not fits.all():
            return False
        if not checksums_right(mapped, starts, found.values_at - SUMS_BYTES, ends, seed).all():
            return False
    return True


def _none() -> RecordColumns:
    none, big = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return RecordColumns(none, none, none, none, none, none, none, none, none, none, big, big)


def _taken(columns: RecordColumns, rows: Ints | slice) -> RecordColumns:
    """Some of the puts; a slice of evenly spaced ones stays evenly spaced."""
    arrays = [getattr(columns, each.name)[rows] for each in fields(columns)[:-1]]
    taken = RecordColumns(*arrays)
    taken.apart = columns.apart if isinstance(rows, slice) else 0
    return taken


def _parts(
    raw: Bytes, starts: Ints, ends: Ints, head: npt.NDArray[np.void], good: Mask
) -> tuple[RecordColumns, Mask]:
    """(where the parts of each record stand, which good records they fit into); for the others the
    columns mean nothing."""
    flags = head["flags"]
    bucket_bytes = head["bucket"].astype(np.int64)
    key_bytes = head["key_1"].astype(np.int64) + 1
    at = starts + FIXED_BYTES
    count = len(starts)
    expiries = np.zeros(count, dtype=np.uint64)
    lengths = {flag: np.zeros(count, dtype=np.int64) for flag in _LENGTHS}
    raw_bytes = np.full(count, -1, dtype=np.int64)
    fits = good
    if flags.any():
        fits = good & (at + optional_bytes()[flags & 63] + SUMS_BYTES <= ends)
        for flag, size in record.OPTIONAL_FIELDS:
            has = np.flatnonzero(fits & ((flags & flag) != 0))
            if not len(has):
                continue
            if flag != record.BATCH:
                field = numbers_at(raw, at[has], f"<u{size}")
                if flag == record.EXPIRY:
                    expiries[has] = field
                elif flag == record.LZ4:
                    raw_bytes[has] = field
                else:
                    lengths[flag][has] = field
            at[has] += size
    keys_at = at + bucket_bytes
    metas_at = keys_at + key_bytes + lengths[record.SUB_KEY]
    meta_bytes = lengths[record.METADATA]
    values_at = metas_at + meta_bytes + lengths[record.INDEX] + SUMS_BYTES
    fits = fits & (values_at <= ends)
    return RecordColumns(
        starts, at, bucket_bytes, keys_at, key_bytes, metas_at, meta_bytes, values_at,
        ends - values_at, raw_bytes, head["time"].astype(np.uint64), expiries,
    ), fits  # fmt: skip


_LENGTHS = (record.METADATA, record.INDEX, record.SUB_KEY)
