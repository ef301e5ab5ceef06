"""The read cache: values of recently read keys, evicted by CLOCK.

Values stand in one dict, so a hit is one lookup. Of the hits one in a few marks its key; nothing is
moved. When room is needed a hand walks from old to new, forgives marked keys once and drops the
first that is not, so eviction is a little at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import repeat

from octavo.files.locks import new_rlock

_SPARE = 64


class ReadCache:
    """Newest values by ledger key, at most ``limit_bytes`` of keys, values and bookkeeping.

    ``entries`` and ``marks`` are read without a lock on the hot path: what is found is the newest
    value. So ``lock`` is held by whoever writes a key, from before its old value leaves the cache
    until the memory table has the new one, and by whoever fills in what was read, which is looked
    at there for still being the newest. It is taken again by a signal's own reads and writes.

    Mostly a key that is written is not cached, and nothing is filled in just then. So who fills in
    says so in ``filling``, from before that look until after it. Who finds neither enters the
    memory table without the lock: between these steps, in which nothing is called, CPython changes
    no threads and runs no signal's handler.
    """

    OVERHEAD_BYTES = 200

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.entries: dict[bytes, bytes | None] = {}
        """None: just now neither the old value nor the new one."""
        self.marks: set[bytes] = set()
        """Keys that were hit since they came, or since the hand forgave them."""
        self.bytes = 0
        self.lock = new_rlock()
        self.filling = False
        """Set in the lock. An interrupt may leave it set, which costs puts the lock again."""
        self.tries: Iterator[bool] = map(self.lock.acquire, repeat(False))
        """Each step takes the lock if it is free, and says whether it did."""
        self._queue: deque[bytes] = deque()
        self._most = (limit_bytes >> 3) - self.OVERHEAD_BYTES
        self._full = limit_bytes == 0
        self._skip = False

    def fill(self, key: bytes, value: bytes) -> None:
        """In the lock: remember a value just read. Amortised O(1). A value over 1/8 of the limit
        is not kept."""
        if self._full:
            # Every other miss: what is read again is soon in, what is read once costs half.
            self._skip = not self._skip
            if self._skip:
                return
        if len(value) > self._most or key in self.entries:
            return
        self.entries[key] = value
        self._queue.append(key)
        self.bytes += len(value) + self.OVERHEAD_BYTES
        if self.bytes > self.limit:
            self._make_room()

    def write_over(self, key: bytes, value: bytes, rows: dict[bytes, int], entry: int) -> None:
        """In the lock: enter a key into ``rows``, negative if it was deleted. Where it is cached it
        is likely to be read again: the new value takes the old one's place. Amortised O(1)."""
        old, size = self.entries.get(key), len(value)
        if old is None or size > self._most or entry < 0:
            self.discard(key)
            rows[key] = entry
            return
        size -= len(old)
        # Nothing is called in these lines, so neither a Ctrl-C nor a signal comes between them.
        self.entries[key] = None  # who has seen the new row never sees the old value
        rows[key] = entry
        self.entries[key] = value
        self.bytes += size
        if self.bytes > self.limit:
            self._make_room()

    def discard(self, key: bytes) -> None:
        """In the lock: forget a key, if it is there."""
        value = self.entries.pop(key, None)
        if value is not None:
            self.marks.discard(key)
            self.bytes -= len(value) + self.OVERHEAD_BYTES
            if len(self._queue) > 2 * len(self.entries) + _SPARE:
                self._tidy()

    def _tidy(self) -> None:
        """More than half of the queue is keys that are gone."""
        for _ in range(3):  # finds one or two of them
            if (waiting := self._queue.popleft()) in self.entries:
                self._queue.append(waiting)

    def clear(self) -> None:
        """Forget everything. O(entries)."""
        with self.lock:
            self.entries.clear()
            self.marks.clear()
            self._queue.clear()
            self.bytes = 0

    def _make_room(self) -> None:
        self._full = True
        while self.bytes > self.limit and self._queue:
            self._evict()

    def _evict(self) -> None:
        """One step of the hand. It takes discarded keys out of the queue when it meets them."""
        key = self._queue.popleft()
        if key in self.marks:
            self.marks.discard(key)
            self._queue.append(key)
            return
        value = self.entries.pop(key, None)
        if value is not None:
            self.bytes -= len(value) + self.OVERHEAD_BYTES
