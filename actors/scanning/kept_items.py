"""Items that short scans gave, kept for later scans of the same range.

What a sequence number names never changes. So an item that was read once, its checksums verified,
is right for every scan that finds its number, whatever was written, merged or compacted since: none
is ever out of date, and writers need not know of them. Only items of ranges that were scanned twice
before are kept, since keeping an item that is not asked for again costs a tenth of reading it.
"""

from __future__ import annotations

from typing import NamedTuple

_ITEM_BYTES = 300
"""What an item takes beyond the bytes of its key and value: three objects and its places here."""
_BUCKET_BYTES = 350
"""What a bucket takes beyond its name, even if none of its items is kept."""
_LARGEST_BYTES = 16 << 10
"""Items that take more are not kept, since they save little for their bytes; nor are those that
take more than a sixty-fourth of the limit."""


class Generation(NamedTuple):
    """Items by sequence number, without an object for each: tens of thousands of lasting tuples
    would make Python's collector look through everything there is."""

    keys: dict[int, bytes]
    """A key is here before its value is."""
    values: dict[int, bytes]


_NOTHING = Generation({}, {})


class ItemsOfBucket:
    """The kept items of one bucket, as a scan finds them. Any thread."""

    __slots__ = ("_all", "newer", "older")

    def __init__(self, kept: KeptItems, newer: Generation, older: Generation) -> None:
        self._all = kept
        self.newer = newer
        self.older = older

    def keep(self, sqn: int, key: bytes, value: bytes) -> ItemsOfBucket | None:
        """Keep the item of a put whose record was verified. Returns where to keep the next one, or
        None if this one is too large, since those after it probably are as well. 0.2 us."""
        kept = self._all
        size = len(key) + len(value) + _ITEM_BYTES
        if size > kept.largest:
            return None
        self.newer.keys[sqn] = key
        self.newer.values[sqn] = value
        kept.bytes += size
        if kept.bytes > kept.most:
            kept.turn_over()
        return self


class KeptItems:
    """Items by bucket and sequence number, in two generations of at most half of a limit each: once
    the newer one is full, the older one goes. Each change is one step that is whole by itself; if
    two threads take the same step at once, a generation goes too early.
    """

    def __init__(self, limit_bytes: int) -> None:
        """``limit_bytes``: of keys, values and bookkeeping; 0: nothing is kept."""
        self.most = limit_bytes >> 1
        self.largest = min(limit_bytes >> 6, _LARGEST_BYTES)
        self.bytes = 0
        """Bytes of the newer generation."""
        self._newer: dict[bytes, Generation] = {}
        self._older: dict[bytes, Generation] = {}

    def of(self, prefix: bytes) -> ItemsOfBucket | None:
        """The kept items of a bucket, named by the prefix of its ledger keys; None if nothing is
        kept."""
        if not self.most:
            return None
        newer = self._newer.get(prefix)
        if newer is None:
            self.bytes += len(prefix) + _BUCKET_BYTES  # there may be millions of buckets
            if self.bytes > self.most:
                self.turn_over()
            newer = self._newer.setdefault(prefix, Generation({}, {}))
        return ItemsOfBucket(self, newer, self._older.get(prefix, _NOTHING))

    def turn_over(self) -> None:
        """Make the newer generation the older one. O(1), and the time to free the older one."""
        self._older, self._newer = self._newer, {}
        self.bytes = 0
