"""Encodes puts and deletes as journal records, many at a time, by array kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo.files.journal import record
from octavo.files.journal.journal_values import FIXED_FIELDS
from octavo.files.journal.record import FIXED_BYTES, LOW_32, SUMS_BYTES
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import (
    Ints,
    Mask,
    Words,
    copy,
    evenly,
    lengths_of,
    of_one_length,
    windows,
)
from octavo.files.kernels.columns import ByteColumn, Bytes
from octavo.files.kernels.xxh3_columns import xxh3_apart, xxh3_of

_EXPIRY_BYTES, _META_LENGTH_BYTES = 8, 4


class Place(NamedTuple):
    """Where the first record goes, and what all of them have in common."""

    at: int
    number: int
    seed: int
    tag: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Operations:
    """Puts and deletes as columns, whose offsets need not begin at 0."""

    keys: ByteColumn
    values: ByteColumn
    """Empty where a key is deleted, as are metadata and expiry."""
    buckets: Sequence[bytes]
    """Their names, ascending."""
    which: Ints | None = None
    """The bucket of each, a number of ``buckets``; None: there is one."""
    deletes: Mask | None = None
    """Which of the operations are deletes; None: none is."""
    expiries: Words | None = None
    """ms UTC, 0: never; None: all never."""
    metas: ByteColumn | None = None
    """Metadata; None: none has any."""

    def __len__(self) -> int:
        return len(self.keys.offsets) - 1

    def between(self, low: int, high: int) -> Operations:
        """The operations [low, high). No copy."""
        return Operations(
            _between(self.keys, low, high),
            _between(self.values, low, high),
            self.buckets,
            None if self.which is None else self.which[low:high],
            None if self.deletes is None else self.deletes[low:high],
            None if self.expiries is None else self.expiries[low:high],
            None if self.metas is None else _between(self.metas, low, high),
        )

    def bucket_bytes(self) -> Ints:
        """How long the name of each one's bucket is."""
        lengths = np.array([len(name) for name in self.buckets], dtype=np.int64)
        return np.broadcast_to(lengths[0], len(self)) if self.which is None else lengths[self.which]

    def record_sizes(self) -> Ints:
        """How many bytes each one's record takes."""
        sizes: Ints = lengths_of(self.keys.offsets) + lengths_of(self.values.offsets)
        sizes += self.bucket_bytes() + (FIXED_BYTES + SUMS_BYTES)
        if self.expiries is not None:
            sizes += _EXPIRY_BYTES * (self.expiries > 0)
        if self.metas is not None:
            lengths = lengths_of(self.metas.offsets)
            sizes += lengths + _META_LENGTH_BYTES * (lengths > 0)
        return sizes


def _between(strings: ByteColumn, low: int, high: int) -> ByteColumn:
    return ByteColumn(strings.blob, strings.offsets[low : high + 1])


def encoded(place: Place, operations: Operations) -> Bytes:
    """The records of all operations, end to end; the caller has checked lengths. Some 0.3 us each
    where few different lengths occur, and half of that where there is but one."""
    if not len(operations):
        return np.empty(0, dtype=np.uint8)
    if _are_alike(operations):
        return _alike(place, operations)
    keys, values, metas = operations.keys, operations.values, operations.metas
    key_bytes, value_bytes = lengths_of(keys.offsets), lengths_of(values.offsets)
    bucket_bytes = operations.bucket_bytes()
    sizes = operations.record_sizes()
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    flags = np.zeros(len(sizes), dtype=np.uint8)
    at = starts + FIXED_BYTES
    if operations.expiries is not None:
        rows = np.flatnonzero(operations.expiries)
        flags[rows] |= record.EXPIRY
        windows(out, _EXPIRY_BYTES)[at[rows]] = operations.expiries[rows].astype("<u8").view("V8")
        at[rows] += _EXPIRY_BYTES
    if metas is not None:
        meta_bytes = lengths_of(metas.offsets)
        rows = np.flatnonzero(meta_bytes)
        flags[rows] |= record.METADATA
        windows(out, _META_LENGTH_BYTES)[at[rows]] = meta_bytes[rows].astype("<u4").view("V4")
        at[rows] += _META_LENGTH_BYTES
    fixed = _fixed(place, operations, sizes, key_bytes, bucket_bytes, flags)
    windows(out, FIXED_BYTES)[starts] = fixed
    names = np.frombuffer(b"".join(operations.buckets), dtype=np.uint8)
    copy(names, _names_at(operations), bucket_bytes, out, at)
    at += bucket_bytes
    copy(keys.blob, keys.offsets[:-1], key_bytes, out, at)
    at += key_bytes
    if metas is not None:
        copy(metas.blob, metas.offsets[:-1], meta_bytes, out, at)
        at += meta_bytes
    copy(values.blob, values.offsets[:-1], value_bytes, out, at + SUMS_BYTES)
    write_sums(out, starts, at, value_bytes, _seeds(place, starts))
    return out


def write_sums(out: Bytes, starts: Ints, ends: Ints, value_bytes: Ints, seeds: Words) -> None:
    """Write the checksums of the records in ``out``, given where each one begins and its header
    ends, how long its value is, and the seed of its header's checksum."""
    of_heads = xxh3_of(out, starts, ends - starts, seeds)
    of_values = xxh3_of(out, ends + SUMS_BYTES, value_bytes, of_heads)
    windows(out, SUMS_BYTES)[ends] = _sums(of_heads, of_values)


def _names_at(operations: Operations) -> Ints:
    """Where the name of each one's bucket begins when the names stand end to end."""
    lengths = np.array([len(name) for name in operations.buckets], dtype=np.int64)
    begins = np.cumsum(lengths) - lengths
    if operations.which is None:
        return np.broadcast_to(begins[0], len(operations))
    return begins[operations.which]


def _are_alike(operations: Operations) -> bool:
    """Whether all are puts of one bucket, and each part has the same length in all records."""
    expiries, metas = operations.expiries, operations.metas
    return (
        operations.which is None
        and operations.deletes is None
        and (expiries is None or bool(expiries.all()))
        and of_one_length(operations.keys) >= 0
        and of_one_length(operations.values) >= 0
        and (metas is None or of_one_length(metas) > 0)
    )


def _alike(place: Place, operations: Operations) -> Bytes:
    """``encoded`` of puts of one bucket whose parts each have one length: by strides."""
    count = len(operations)
    keys, values, metas = operations.keys, operations.values, operations.metas
    key_bytes, value_bytes = of_one_length(keys), of_one_length(values)
    meta_bytes = 0 if metas is None else of_one_length(metas)
    bucket = operations.buckets[0]
    expiry_bytes = 0 if operations.expiries is None else _EXPIRY_BYTES
    meta_length_at = FIXED_BYTES + expiry_bytes
    bucket_at = meta_length_at + (0 if metas is None else _META_LENGTH_BYTES)
    key_at = bucket_at + len(bucket)
    meta_at = key_at + key_bytes
    sums_at = meta_at + meta_bytes
    value_at = sums_at + SUMS_BYTES
    size = value_at + value_bytes
    starts = np.arange(count, dtype=np.int64) * size
    out = np.empty(count * size, dtype=np.uint8)

    def part(at: int, length: int) -> npt.NDArray[np.void]:
        return evenly(out, at, size, length, count)

    def fill(at: int, strings: ByteColumn, length: int) -> None:
        if length:
            first = int(strings.offsets[0])
            part(at, length)[:] = evenly(strings.blob, first, length, length, count)

    flags = 0
    if operations.expiries is not None:
        flags |= record.EXPIRY
        part(FIXED_BYTES, _EXPIRY_BYTES)[:] = operations.expiries.astype("<u8").view("V8")
    if metas is not None:
        flags |= record.METADATA
        part(meta_length_at, _META_LENGTH_BYTES)[:] = np.void(meta_bytes.to_bytes(4, "little"))
        fill(meta_at, metas, meta_bytes)
    part(0, FIXED_BYTES)[:] = _fixed(place, operations, size, key_bytes, len(bucket), flags)
    if bucket:
        part(bucket_at, len(bucket))[:] = np.void(bucket)
    fill(key_at, keys, key_bytes)
    fill(value_at, values, value_bytes)
    of_heads = xxh3_apart(out, 0, size, sums_at, _seeds(place, starts))
    of_values = xxh3_apart(out, value_at, size, value_bytes, of_heads)
    part(sums_at, SUMS_BYTES)[:] = _sums(of_heads, of_values)
    return out


def _seeds(place: Place, starts: Ints) -> Words:
    """The seeds of the header checksums of records that begin at ``starts``."""
    return (starts + place.at).astype(np.uint64) ^ np.uint64(place.seed)


def _sums(of_heads: Words, of_values: Words) -> npt.NDArray[np.void]:
    sums = (np.stack([of_heads, of_values], axis=1) & np.uint64(LOW_32)).astype("<u4")
    found: npt.NDArray[np.void] = sums.view(f"V{SUMS_BYTES}").ravel()
    return found


def _fixed(
    place: Place,
    operations: Operations,
    sizes: int | Ints,
    key_bytes: int | Ints,
    bucket_bytes: int | Ints,
    flags: int | Bytes,
) -> npt.NDArray[np.void]:
    """The fixed part of each record."""
    alike = np.zeros(1, dtype=np.dtype(FIXED_FIELDS))
    alike["key"], alike["magic"] = 8, np.frombuffer(record.MAGIC, dtype="V2")
    alike["version"], alike["kind"], alike["tag"] = record.VERSION, record.PUT, place.tag
    alike["time"] = place.now_ms
    others: dict[str, int | npt.NDArray[Any]] = {
        "content": sizes - 16, "flags": flags, "bucket": bucket_bytes, "key_1": key_bytes - 1,
    }  # fmt: skip
    for name, value in others.items():
        if isinstance(value, int):
            alike[name] = value
    found: npt.NDArray[np.void] = np.repeat(alike.view(f"V{FIXED_BYTES}"), len(operations))
    made = found.view(alike.dtype)
    for name, value in others.items():
        if not isinstance(value, int):
            made[name] = value
    made["number"] = np.arange(place.number, place.number + len(operations))
    if operations.deletes is not None:
        made["kind"][operations.deletes] = record.DELETE
    return found
