"""Some puts of a journal file as columns, in journal order, by array kernels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from mmap import mmap
from typing import TypeAlias

from octavo.files import record
from octavo.files.arrays import np, npt
from octavo.files.byte_strings import Bytes, Ints, windows
from octavo.files.journal_values import (
    FIXED_FIELDS,
    Check,
    Offsets,
    checksums_right,
    right_of,
    spans,
)
from octavo.files.record import FIXED_BYTES, SUMS_BYTES

Mask: TypeAlias = "npt.NDArray[np.bool_]"
_STRETCH = 1 << 14
_AT_LEAST = FIXED_BYTES + 1 + SUMS_BYTES


@dataclass(slots=True)
class RecordColumns:
    """Puts of one type, an array element each; positions are in the file."""

    rows: Ints
    """Which of the wanted ones they are."""
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
    """Of the value before compression; -1 where it is stored as it is."""
    times: npt.NDArray[np.uint64]
    expiries: npt.NDArray[np.uint64]

    def between(self, low: int, high: int) -> RecordColumns:
        """Those numbered [low, high)."""
        return _taken(self, slice(low, high))


def columns_of(
    mapped: mmap | bytes, offsets: Offsets, relative: Ints, check: Check | None, tag: int
) -> tuple[RecordColumns, Ints]:
    """(the puts of a type among the records of some relative numbers, which of the numbers are to
    be looked at with care: they are no whole puts).

    Given a seed both checksums are verified, some 0.5 us a record and what its bytes take to hash;
    framing is compared in any case, 0.05 us a record. Nothing is read beyond a record's end.
    """
    raw = np.frombuffer(mapped, dtype=np.uint8)
    starts, limits = spans(offsets, relative)
    inside = (limits - starts >= _AT_LEAST) & (limits <= len(raw))
    if not inside.all():
        rows = np.flatnonzero(inside)
        starts, limits = starts[rows], limits[rows]
    else:
        rows = np.arange(len(relative), dtype=np.int64)
    if not len(rows):
        return _none(), np.flatnonzero(~inside)
    head = windows(raw, FIXED_BYTES)[starts].view(np.dtype(FIXED_FIELDS))
    good = (head["kind"] == record.PUT) & (head["flags"] < 64)
    good &= head["number"] == relative[rows]
    ends = starts + 16 + head["content"]
    good &= ends == limits
    found, fits = _parts(raw, starts, ends, head, good)
    good &= fits
    wanted = good & (head["tag"] == tag)
    if not wanted.all():
        chosen = np.flatnonzero(wanted)
        found = _taken(found, chosen)
        rows_of, starts, ends = rows[chosen], starts[chosen], ends[chosen]
    else:
        rows_of = rows
    found.rows = rows_of
    bad = ~inside
    bad[rows[~good]] = True
    if check is not None and len(rows_of):
        right = right_of(mapped, starts, found.values_at - SUMS_BYTES, ends, check)
        if not right.all():
            bad[rows_of[~right]] = True
            found = _taken(found, np.flatnonzero(right))
    return found, np.flatnonzero(bad)


def all_whole(mapped: mmap | bytes, table: npt.NDArray[np.uint32], seed: int) -> bool:
    """Whether every record of a file, of whatever kind, has the checksums that it says. ``table``
    has an offset for each and one more, for the end. Some 0.7 us a record."""
    raw = np.frombuffer(mapped, dtype=np.uint8)
    if not len(table) or int(table[-1]) > len(raw):
        return False
    for low in range(0, len(table) - 1, _STRETCH):
        edges = table[low : low + _STRETCH + 1].astype(np.int64)
        there = np.flatnonzero(edges[1:] != edges[:-1])
        starts, limits = edges[:-1][there], edges[1:][there]
        if bool((limits - starts < _AT_LEAST).any()):
            return False
        head = windows(raw, FIXED_BYTES)[starts].view(np.dtype(FIXED_FIELDS))
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
    return RecordColumns(*(getattr(columns, each.name)[rows] for each in fields(columns)))


def _parts(
    raw: Bytes, starts: Ints, ends: Ints, head: npt.NDArray[np.void], good: Mask
) -> tuple[RecordColumns, Mask]:
    """Where the parts of each record stand, and which of them fit in; the rest is not said."""
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
        fits = good & (at + _field_bytes()[flags & 63] + SUMS_BYTES <= ends)
        for flag, size in _FIELDS:
            has = np.flatnonzero(fits & ((flags & flag) != 0))
            if not len(has):
                continue
            if flag != record.BATCH:
                kind = f"<u{size}"
                field = windows(raw, size)[at[has]].view(kind)
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
_FIELDS = (
    (record.EXPIRY, 8), (record.METADATA, 4), (record.INDEX, 4), (record.BATCH, 8),
    (record.LZ4, 4), (record.SUB_KEY, 2),
)  # fmt: skip


@cache
def _field_bytes() -> Ints:
    """Bytes of the optional fields, by flags."""
    return np.array([sum(n for flag, n in _FIELDS if flags & flag) for flags in range(64)])
