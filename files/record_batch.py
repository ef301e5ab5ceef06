"""Plain puts of one bucket as journal records, many at a time: everything but their checksums by
array kernels."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import record
from octavo.files.arrays import np
from octavo.files.byte_strings import Bytes, Ints, copy, lengths_of, windows
from octavo.files.journal_values import FIXED_FIELDS
from octavo.files.record import FIXED_BYTES, LOW_32, SUMS_BYTES
from octavo.files.rows import ByteColumn

_SMALL_BYTES = 4096


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
    at 0. Some 0.6 us each, and two passes over their bytes."""
    key_bytes, value_bytes = lengths_of(keys.offsets), lengths_of(values.offsets)
    sizes = record_sizes(place.bucket, keys, values)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    if not len(ends):
        return out
    keys_at = starts + (FIXED_BYTES + len(place.bucket))
    head_ends = keys_at + key_bytes
    windows(out, FIXED_BYTES)[starts] = _fixed(place, sizes, key_bytes)
    if place.bucket:
        one = np.frombuffer(place.bucket, dtype=f"V{len(place.bucket)}")
        windows(out, len(place.bucket))[starts + FIXED_BYTES] = one
    copy(keys.blob, keys.offsets[:-1], key_bytes, out, keys_at)
    copy(values.blob, values.offsets[:-1], value_bytes, out, head_ends + SUMS_BYTES)
    # Slices of bytes are cheaper than views, as long as they are small.
    small = len(out) < _SMALL_BYTES * len(starts)
    whole: bytes | memoryview = out.tobytes() if small else out.data
    check, first = place.seed, place.at
    found: list[int] = []
    add = found.append
    for start, head_end, end in zip(
        starts.tolist(), head_ends.tolist(), ends.tolist(), strict=True
    ):
        h = xxh3(whole[start:head_end], check ^ (first + start))
        add(h)
        add(xxh3(whole[head_end + SUMS_BYTES : end], h))
    sums = (np.array(found, dtype=np.uint64) & np.uint64(LOW_32)).astype("<u4")
    windows(out, SUMS_BYTES)[head_ends] = sums.view(f"V{SUMS_BYTES}")
    return out


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
