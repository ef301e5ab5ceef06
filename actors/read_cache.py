"""The read cache: values of recently read keys, evicted by CLOCK.

Values stand in one dict, so a hit is one lookup. Of the hits one in a few marks its key; nothing is
moved. When room is needed a hand walks from old to new, forgives marked keys once and drops the
first that is not, so eviction is a little at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import repeat

ReadKey = bytes | int
"""A ledger key, for the newest value of a key that the ledger has; a sequence number, for the value
of the put that has it."""

_SPARE = 64


class ReadCache:
    """Values by what was read, at most ``limit_bytes`` of keys, values and bookkeeping.

    ``entries`` and ``marks`` are used directly on the hot path. Whoever writes a key that is here
    puts its new value here, or discards it;
    whoever fills one checks afterwards that the value is still the newest (see LiveReads). What is
    kept by its sequence number never changes.
    """

    OVERHEAD_BYTES = 200

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.entries: dict[ReadKey, bytes] = {}
        self.marks: set[ReadKey] = set()
        """Keys that were hit since they came, or since the hand forgave them."""
        self.bytes = 0
        self._queue: deque[ReadKey] = deque()
        self._lock = threading.Lock()
        self._tries = map(self._lock.acquire, repeat(False))
        self._most = (limit_bytes >> 3) - self.OVERHEAD_BYTES
        self._full = limit_bytes == 0
        self._skip = False

    def fill(self, key: ReadKey, value: bytes) -> None:
        """Remember a value just read. Amortised O(1). A value over 1/8 of the limit is not kept.

        Nor is one that comes while another thread is here. To wait for that one means to hand over
        the interpreter lock, and then the next to come finds the cache taken by who was woken, and
        waits in turn: so threads that met once would meet at every fill from then on.
        """
        if self._full:
            # Every other miss: what is read again is soon in, what is read once costs half.
            self._skip = not self._skip
            if self._skip:
                return
        if len(value) > self._most:
            return
        size = len(value) + self.OVERHEAD_BYTES
        for free in self._tries:  # as the turn of an actor is taken: see runtime.py
            if not free:
                return
            break
        try:
            if key in self.entries:
                return
            self.entries[key] = value
            self._queue.append(key)
            self.bytes += size
            while self.bytes > self.limit and self._queue:
                self._full = True
                self._evict()
        finally:
            self._lock.release()

    def put(self, key: bytes, before: int | None, sqn: int, value: bytes) -> None:
        """A key that is cached, by itself or as the version ``before``, was written: what is read
        often is likely to be read again, so keep the new value, by its number. Amortised O(1)."""
        entries, marks = self.entries, self.marks
        with self._lock:
            old: ReadKey | None = before
            gone = entries.pop(old, None)  # type: ignore[arg-type]  # None is never there
            if gone is None or key in entries:
                if gone is not None:
                    self._gone(before, gone)  # type: ignore[arg-type]
                old = key
                gone = entries.pop(key, None)
                if gone is None:
                    return  # evicted meanwhile
            if len(value) > self._most:
                self._gone(old, gone)  # type: ignore[arg-type]
                return
            entries[sqn] = value
            queue = self._queue
            queue.append(sqn)
            self.bytes += len(value) - len(gone)
            if old in marks:
                marks.discard(old)
                marks.add(sqn)
            if self.bytes > self.limit or len(queue) > 2 * len(entries) + _SPARE:
                self._tidy()

    def drop(self, key: bytes, before: int | None, sqn: int, value: bytes) -> None:
        """As ``put``, of a key that was deleted: nothing is kept of it."""
        self.discard(key)
        if before is not None:
            self.discard(before)

    def _gone(self, key: ReadKey, value: bytes) -> None:
        self.marks.discard(key)
        self.bytes -= len(value) + self.OVERHEAD_BYTES

    def _tidy(self) -> None:
        """More than half of the queue is keys that are gone, or there is no room."""
        queue, entries = self._queue, self.entries
        if len(queue) > 2 * len(entries) + _SPARE:
            for _ in range(3):  # finds one or two of them
                if (waiting := queue.popleft()) in entries:
                    queue.append(waiting)
        while self.bytes > self.limit and self._queue:
            self._full = True
            self._evict()

    def discard(self, key: ReadKey) -> None:
        """Forget a key: it was written."""
        with self._lock:
            value = self.entries.pop(key, None)
            if value is not None:
                self._gone(key, value)

    def clear(self) -> None:
        """Forget everything. O(entries)."""
        with self._lock:
            self.entries.clear()
            self.marks.clear()
            self._queue.clear()
            self.bytes = 0

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
