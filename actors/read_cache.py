"""The read cache: values of recently read keys, evicted by SIEVE.

A hit only marks its entry; nothing is moved. When room is needed a hand walks from old to new,
forgives marked entries once and drops the first unmarked one, so eviction is a little at a time.
"""

from __future__ import annotations

import threading
from collections import deque


class ReadCache:
    """Values by ledger key, at most ``limit_bytes`` of keys, values and bookkeeping.

    ``entries`` is read directly on the hot path: entry[0] is the value, entry[1] the mark.
    Whoever writes a key discards it; whoever fills one checks afterwards that the value is still
    the newest (see Bookie.get).
    """

    OVERHEAD_BYTES = 200

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.entries: dict[bytes, list[object]] = {}
        self.bytes = 0
        self._queue: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._full = limit_bytes == 0
        self._skip = False

    def fill(self, ledger_key: bytes, value: bytes) -> None:
        """Remember a value just read. Amortised O(1). A value over 1/8 of the limit is not kept."""
        size = len(value) + len(ledger_key) + self.OVERHEAD_BYTES
        if size > self.limit >> 3:
            return
        if self._full:
            # Every other miss: what is read again is soon in, what is read once costs half.
            self._skip = not self._skip
            if self._skip:
                return
        with self._lock:
            if ledger_key in self.entries:
                return
            self.entries[ledger_key] = [value, False]
            self._queue.append(ledger_key)
            self.bytes += size
            while self.bytes > self.limit:
                self._full = True
                self._evict()

    def discard(self, ledger_key: bytes) -> None:
        """Forget a key: it was written."""
        with self._lock:
            entry = self.entries.pop(ledger_key, None)
            if entry is not None:
                self.bytes -= self._size(ledger_key, entry)

    def clear(self) -> None:
        """Forget everything. O(entries)."""
        with self._lock:
            self.entries.clear()
            self._queue.clear()
            self.bytes = 0

    def _size(self, ledger_key: bytes, entry: list[object]) -> int:
        value = entry[0]
        return len(value) + len(ledger_key) + self.OVERHEAD_BYTES  # type: ignore[arg-type]

    def _evict(self) -> None:
        """One step of the hand. It takes discarded keys out of the queue when it meets them."""
        key = self._queue.popleft()
        entry = self.entries.get(key)
        if entry is None:
            return
        if entry[1]:
            entry[1] = False
            self._queue.append(key)
            return
        del self.entries[key]
        self.bytes -= self._size(key, entry)
