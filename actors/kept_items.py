"""Items that short scans gave, kept for the next one that comes by.

What a sequence number names never changes: so an item that was read once, its checksums verified,
is the same item for whoever finds that number, whatever was written, merged or compacted since.
None is ever out of date, and nobody who writes needs to know. Only items of ground that was scanned
twice before come in, for to keep what is not asked for again costs a tenth of reading it.
"""

from __future__ import annotations

_ITEM_BYTES = 300
"""What an item takes beside the bytes of its key and value: three objects and its place here."""
_BUCKET_BYTES = 200
"""What a bucket takes beside its name, though nothing of it is kept."""
_LARGEST_BYTES = 16 << 10
"""Items that take more are not kept, for they are many bytes for what they save; nor those that
take more than a sixty-fourth of the limit."""

Item = tuple[bytes, bytes]


class ItemsOfBucket:
    """Those of one bucket, as a scan finds them. Any thread."""

    __slots__ = ("_all", "newer", "older")

    def __init__(self, kept: KeptItems, newer: dict[int, Item], older: dict[int, Item]) -> None:
        self._all = kept
        self.newer = newer
        """By sequence number: those of the newer generation,"""
        self.older = older
        """and of the one before it."""

    def keep(self, sqn: int, item: Item) -> ItemsOfBucket | None:
        """Remember what the record of a put says, which was verified. None: it is too large, and so
        the ones after it are likely to be. 0.2 us."""
        kept = self._all
        size = len(item[0]) + len(item[1]) + _ITEM_BYTES
        if size > kept.largest:
            return None
        self.newer[sqn] = item
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
        self._newer: dict[bytes, dict[int, Item]] = {}
        self._older: dict[bytes, dict[int, Item]] = {}

    def of(self, prefix: bytes) -> ItemsOfBucket | None:
        """Those of a bucket, by the prefix of its ledger keys; None where nothing is kept."""
        if not self.most:
            return None
        if prefix not in self._newer:
            self.bytes += len(prefix) + _BUCKET_BYTES  # or millions of buckets took any amount
            if self.bytes > self.most:
                self.turn_over()
        return ItemsOfBucket(self, self._newer.setdefault(prefix, {}), self._older.get(prefix, {}))

    def turn_over(self) -> None:
        """The newer generation becomes the older one. O(1), and what it takes to free that."""
        self._older, self._newer = self._newer, {}
        self.bytes = 0
