"""Runs of plain records: what most of a journal is, read in one short loop.

A plain record has no optional field. A run is plain records of one bucket, type and kind that
stand one behind another, with no number left out.
"""

from __future__ import annotations

from mmap import mmap
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import record

MOST = 1024
"""Records of a run, so that little is held at a time."""

_LARGEST = (1 << 62) - MOST
"""No first number above is believed."""


class PlainRun(NamedTuple):
    """Whole records, header and value verified; everything but their values."""

    relative_sqn: int
    """Of the first."""
    kind: int
    tag: int
    bucket: bytes
    starts: list[int]
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
    there. Nothing from ``end`` on is looked at. Some 0.7 us a small record."""
    last = end - record.FIXED_BYTES - record.SUMS_BYTES
    if at > last:
        return None
    unpack, sums = record.PLAIN.unpack_from, record.unpack_sums
    length_of_number, low_32 = record.CDB_KEY_LENGTH, record.LOW_32
    _, _, number, middle, _, _ = unpack(buffer, at)
    magic, version, kind, tag, flags, bucket_bytes = record.unpack_middle(middle)
    first = int.from_bytes(number, "big")
    if (
        (magic, version, flags) != (record.MAGIC, record.VERSION, 0)
        or kind not in (record.PUT, record.DELETE)
        or first > _LARGEST
    ):
        return None
    fixed = record.FIXED_BYTES
    key_at = fixed + bucket_bytes
    bucket = buffer[at + fixed : at + key_at]
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
    return PlainRun(first, kind, tag, bucket, starts, at, keys) if starts else None
