"""Runs of plain records: what most of a journal is, read in one short loop.

A plain record has no optional field. A run is plain records of one bucket, type and kind that
stand one behind another, with no number left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from mmap import mmap
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import record

MOST = 1024
"""Records of a run, so that little is held at a time."""

_EVEN_BYTES = 1 << 18
_EVEN_LEAST = 16
"""Records of one length are taken together, so many bytes of them at a time at the most, and so
many records at the least."""

_LARGEST = (1 << 62) - MOST
"""No first number above is believed."""


class PlainRun(NamedTuple):
    """Whole records, header and value verified; everything but their values."""

    relative_sqn: int
    """Of the first."""
    kind: int
    tag: int
    bucket: bytes
    starts: Sequence[int]
    end: int
    """Where the last one ends; each of the others ends where the next one starts."""
    keys: list[bytes]

    def behind(self, relative: int) -> PlainRun:
        """Those of higher numbers than ``relative``."""
        skip = max(relative + 1 - self.relative_sqn, 0)
        return self._replace(
            relative_sqn=self.relative_sqn + skip, starts=self.starts[skip:], keys=self.keys[skip:]
        )


def plain_run(buffer: bytes | mmap, at: int, end: int, seed: int) -> PlainRun | None:
    """The run that begins at ``at``, of MOST records at most; None: no whole plain record is
    there. Nothing from ``end`` on is looked at. Some 0.7 us a small record, half of that where
    many are of one length."""
    last = end - record.FIXED_BYTES - record.SUMS_BYTES
    if at > last:
        return None
    key_length, content, number, middle, key_1, _ = record.PLAIN.unpack_from(buffer, at)
    magic, version, kind, tag, flags, bucket_bytes = record.unpack_middle(middle)
    first = int.from_bytes(number, "big")
    if (
        (magic, version, flags) != (record.MAGIC, record.VERSION, 0)
        or kind not in (record.PUT, record.DELETE)
        or first > _LARGEST
        or key_length != record.CDB_KEY_LENGTH
    ):
        return None
    key_at = record.FIXED_BYTES + bucket_bytes
    bucket = buffer[at + record.FIXED_BYTES : at + key_at]
    run = PlainRun(first, kind, tag, bucket, (), at, [])
    apart, head_bytes = 16 + content, key_at + key_1 + 1
    count = min(MOST, min(end - at, _EVEN_BYTES) // apart)
    if count >= _EVEN_LEAST and head_bytes + record.SUMS_BYTES <= apart:
        keys = _evenly_apart(buffer, at, count, apart, head_bytes, key_at, first, seed)
        if keys is not None:
            stop = at + count * apart
            return run._replace(starts=range(at, stop, apart), end=stop, keys=keys)
    starts, stop, keys = _one_by_one(buffer, at, end, middle, bucket, first, seed)
    return run._replace(starts=starts, end=stop, keys=keys) if starts else None


def _evenly_apart(
    buffer: bytes | mmap,
    at: int,
    count: int,
    apart: int,
    head_bytes: int,
    key_at: int,
    first: int,
    seed: int,
) -> list[bytes] | None:
    """The keys of so many records from ``at`` on, if they are like the one there but for numbers,
    times, keys and values, and whole. What bytecode does, it does for all of them at once: a byte
    of each is a slice with a step."""
    stop = at + count * apart
    for place in (at + apart, stop - apart):  # most that are not alike differ here
        if buffer[place : place + 8] != buffer[at : at + 8]:
            return None
    value_bytes = apart - head_bytes - record.SUMS_BYTES
    parts = _layout(f"{head_bytes}s8s{value_bytes}s", count).unpack_from(buffer, at)
    heads = parts[0::3]
    joined = b"".join(heads)
    numbers = b"".join(record.numbers(first, count))
    for place in range(8):
        if joined[8 + place :: head_bytes] != numbers[place::8]:
            return None
    for place in (*range(8), *range(16, 26), *range(record.FIXED_BYTES, key_at)):
        if joined[place::head_bytes] != joined[place : place + 1] * count:
            return None
    hashes = tuple(map(xxh3, heads, map(seed.__xor__, range(at, stop, apart))))
    pack = _layout("Q", count).pack
    head_sums, value_sums = pack(*hashes), pack(*map(xxh3, parts[2::3], hashes))
    said = b"".join(parts[1::3])
    for place in range(4):
        if said[place::8] != head_sums[place::8] or said[4 + place :: 8] != value_sums[place::8]:
            return None
    rest = apart - head_bytes
    return list(_layout(f"{key_at}x{head_bytes - key_at}s{rest}x", count).unpack_from(buffer, at))


@lru_cache(maxsize=16)
def _layout(of_each: str, count: int) -> Struct:
    return Struct("<" + of_each * count)


def _one_by_one(
    buffer: bytes | mmap, at: int, end: int, middle: bytes, bucket: bytes, first: int, seed: int
) -> tuple[list[int], int, list[bytes]]:
    """(where they begin, where the last one ends, their keys) of the records from ``at`` on that
    have this middle and bucket, whatever their lengths."""
    last = end - record.FIXED_BYTES - record.SUMS_BYTES
    unpack, sums = record.PLAIN.unpack_from, record.unpack_sums
    length_of_number, low_32 = record.CDB_KEY_LENGTH, record.LOW_32
    fixed = record.FIXED_BYTES
    key_at = fixed + len(bucket)
    starts: list[int] = []
    keys: list[bytes] = []
    for expected in record.numbers(first, MOST):
        if at > last:
            break
        key_length, content, number, like, key_1, _ = unpack(buffer, at)
        head_end = at + key_at + key_1 + 1
        stop = at + 16 + content
        if (
            number != expected
            or like != middle
            or key_length != length_of_number
            or not head_end + 8 <= stop <= end
        ):
            break
        head = buffer[at:head_end]
        h = xxh3(head, seed ^ at)
        head_sum, value_sum = sums(buffer, head_end)
        if h & low_32 != head_sum or (bucket and head[fixed:key_at] != bucket):
            break
        if xxh3(buffer[head_end + 8 : stop], h) & low_32 != value_sum:
            break
        starts.append(at)
        keys.append(head[key_at:])
        at = stop
    return starts, at, keys
