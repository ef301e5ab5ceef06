"""Plain puts of one bucket as journal records, many at a time, by array kernels."""

from __future__ import annotations

from typing import NamedTuple

from octavo.files import record
from octavo.files.arrays import np, npt
from octavo.files.byte_strings import (
    Bytes,
    Ints,
    Words,
    copy,
    evenly,
    lengths_of,
    of_one_length,
    windows,
)
from octavo.files.journal_values import FIXED_FIELDS
from octavo.files.record import FIXED_BYTES, LOW_32, SUMS_BYTES
from octavo.files.rows import ByteColumn
from octavo.files.xxh3_columns import xxh3_apart, xxh3_of


class Place(NamedTuple):
    """Where the first record goes, and what is alike in all of them."""

    at: int
    number: int
    seed: int
    tag: int
    bucket: bytes
    now_ms: int


def record_sizes(bucket: bytes, keys: ByteColumn, values: ByteColumn) -> Ints:
    """Bytes of the record of each put."""
    found: Ints = lengths_of(keys.offsets) + lengths_of(values.offsets)
    return found + (FIXED_BYTES + len(bucket) + SUMS_BYTES)


def encoded_puts(place: Place, keys: ByteColumn, values: ByteColumn) -> Bytes:
    """The records of puts one after the other; lengths were checked. Their offsets need not begin
    at 0. Some 0.3 us each where few lengths occur."""
    key_bytes, value_bytes = lengths_of(keys.offsets), lengths_of(values.offsets)
    if not len(key_bytes):
        return np.empty(0, dtype=np.uint8)
    if of_one_length(keys) >= 0 and of_one_length(values) >= 0:
        return _alike(place, keys, values)
    sizes = record_sizes(place.bucket, keys, values)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    keys_at = starts + (FIXED_BYTES + len(place.bucket))
    head_ends = keys_at + key_bytes
    windows(out, FIXED_BYTES)[starts] = _fixed(place, sizes, key_bytes)
    if place.bucket:
        one = np.frombuffer(place.bucket, dtype=f"V{len(place.bucket)}")
        windows(out, len(place.bucket))[starts + FIXED_BYTES] = one
    copy(keys.blob, keys.offsets[:-1], key_bytes, out, keys_at)
    copy(values.blob, values.offsets[:-1], value_bytes, out, head_ends + SUMS_BYTES)
    seeds = _seeds(place, starts)
    of_heads = xxh3_of(out, starts, head_ends - starts, seeds)
    of_values = xxh3_of(out, head_ends + SUMS_BYTES, value_bytes, of_heads)
    windows(out, SUMS_BYTES)[head_ends] = _sums(of_heads, of_values)
    return out


def _alike(place: Place, keys: ByteColumn, values: ByteColumn) -> Bytes:
    """``encoded_puts`` where all keys are of one length, and all values: by strides."""
    key_bytes, value_bytes = of_one_length(keys), of_one_length(values)
    count = len(keys.offsets) - 1
    key_at = FIXED_BYTES + len(place.bucket)
    sums_at = key_at + key_bytes
    value_at = sums_at + SUMS_BYTES
    size = value_at + value_bytes
    starts = np.arange(count, dtype=np.int64) * size
    out = np.empty(count * size, dtype=np.uint8)

    def part(at: int, length: int) -> npt.NDArray[np.void]:
        return evenly(out, at, size, length, count)

    part(0, FIXED_BYTES)[:] = _fixed(place, np.full(count, size), np.full(count, key_bytes))
    if place.bucket:
        part(FIXED_BYTES, len(place.bucket))[:] = np.void(place.bucket)
    part(key_at, key_bytes)[:] = evenly(
        keys.blob, int(keys.offsets[0]), key_bytes, key_bytes, count
    )
    if value_bytes:
        part(value_at, value_bytes)[:] = evenly(
            values.blob, int(values.offsets[0]), value_bytes, value_bytes, count
        )
    of_heads = xxh3_apart(out, 0, size, sums_at, _seeds(place, starts))
    of_values = xxh3_apart(out, value_at, size, value_bytes, of_heads)
    part(sums_at, SUMS_BYTES)[:] = _sums(of_heads, of_values)
    return out


def _seeds(place: Place, starts: Ints) -> Words:
    """What the checksums of records that begin there are seeded by."""
    return (starts + place.at).astype(np.uint64) ^ np.uint64(place.seed)


def _sums(of_heads: Words, of_values: Words) -> npt.NDArray[np.void]:
    sums = (np.stack([of_heads, of_values], axis=1) & np.uint64(LOW_32)).astype("<u4")
    found: npt.NDArray[np.void] = sums.view(f"V{SUMS_BYTES}").ravel()
    return found


def _fixed(place: Place, sizes: Ints, key_bytes: Ints) -> Bytes:
    """The fixed part of each record."""
    made = np.zeros(len(sizes), dtype=np.dtype(FIXED_FIELDS))
    made["key"] = 8
    made["content"] = sizes - 16
    made["number"] = np.arange(place.number, place.number + len(sizes))
    made["magic"] = np.frombuffer(record.MAGIC, dtype="V2")
    made["version"], made["kind"], made["tag"] = record.VERSION, record.PUT, place.tag
    made["bucket"] = len(place.bucket)
    made["key_1"] = key_bytes - 1
    made["time"] = place.now_ms
    found: Bytes = made.view(f"V{FIXED_BYTES}")
    return found
