"""Items that short scans gave, kept for the next one that comes by.

What a sequence number names never changes: so an item that was read once, its checksums verified,
is the same item for whoever finds that number, whatever was written, merged or compacted since.
None is ever out of date, and nobody who writes needs to know. Only items of ground that was scanned
twice before come in, for to keep what is not asked for again costs a tenth of reading it.
"""

from __future__ import annotations

from typing import NamedTuple

_ITEM_BYTES = 300
"""What an item takes beside the bytes of its key and value: three objects and its places here."""
_BUCKET_BYTES = 350
"""What a bucket takes beside its name, though nothing of it is kept."""
_LARGEST_BYTES = 16 << 10
"""Items that take more are not kept, for they are many bytes for what they save; nor those that
take more than a sixty-fourth of the limit."""


class Generation(NamedTuple):
    """Items by sequence number. No object is made for an item: tens of thousands of tuples that
    stay would have Python's collector look through everything there is."""

    keys: dict[int, bytes]
    """A key is here before its value is."""
    values: dict[int, bytes]


_NOTHING = Generation({}, {})


class ItemsOfBucket:
    """Those of one bucket, as a scan finds them. Any thread."""

    __slots__ = ("_all", "newer", "older")

    def __init__(self, kept: KeptItems, newer: Generation, older: Generation) -> None:
        self._all = kept
        self.newer = newer
        self.older = older

    def keep(self, sqn: int, key: bytes, value: bytes) -> ItemsOfBucket | None:
        """Remember what the record of a put says, which was verified. None: it is too large, and so
        the ones after it are likely to be. 0.2 us."""
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
    """Items by bucket and sequence number in two generations, each of at most half of a limit: once
    the newer one is full the older one goes. Nothing here is changed but in steps that are whole by
    themselves; where two threads take the same one, a generation goes too early.
    """

    def __init__(self, limit_bytes: int) -> None:
        """``limit_bytes`` of keys, values and bookkeeping; 0: nothing is kept."""
        self.most = limit_bytes >> 1
        self.largest = min(limit_bytes >> 6, _LARGEST_BYTES)
        self.bytes = 0
        """Of the newer generation."""
        self._newer: dict[bytes, Generation] = {}
        self._older: dict[bytes, Generation] = {}

    def of(self, prefix: bytes) -> ItemsOfBucket | None:
        """Those of a bucket, by the prefix of its ledger keys; None where nothing is kept."""
        if not self.most:
            return None
        newer = self._newer.get(prefix)
        if newer is None:
            self.bytes += len(prefix) + _BUCKET_BYTES  # or millions of buckets took any amount
            if self.bytes > self.most:
                self.turn_over()
            newer = self._newer.setdefault(prefix, Generation({}, {}))
        return ItemsOfBucket(self, newer, self._older.get(prefix, _NOTHING))

    def turn_over(self) -> None:
        """The newer generation becomes the older one. O(1), and what it takes to free that."""
        self._older, self._newer = self._newer, {}
        self.bytes = 0
