"""The read cache: values of recently read keys, evicted by CLOCK.

Values stand in one dict, so a hit is one lookup. Of the hits one in a few marks its key; nothing is
moved. When room is needed a hand walks from old to new, forgives marked keys once and drops the
first that is not, so eviction is a little at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from sys import gettrace
from typing import TYPE_CHECKING, Protocol

from octavo.files.locks import new_rlock

if TYPE_CHECKING:
    from octavo.actors.view import View

_SPARE = 64
_LENGTHS = -64
_DEAR_BYTES = 4096
"""To read such a value again costs more than to take in some that are not."""
_STEP_BYTES = 16 << 10
"""So much room is made at a time, but in small caches: to begin costs as much as to drop one."""


class _Reads(Protocol):
    @property
    def view(self) -> View: ...


class ReadCache:
    """Newest values by ledger key, at most ``limit_bytes`` of keys, values and bookkeeping.

    ``entries`` and ``marks`` are read without a lock on the hot path: what is found is the newest
    value. So a new row enters the memory table in the same moment as the old value leaves the
    cache, and what was read enters the cache in the same moment as it is seen to be the newest
    still. Such a moment is some lines in which nothing is called: there CPython changes no threads
    and runs no signal's handler. Where a write needs calls in between, it says so in ``writing``,
    and nothing enters the cache meanwhile. Writes are in the Bookie's turn, one at a time.

    ``lock`` is of those who take out. Who fills in, or writes one key, only tries it.
    """

    OVERHEAD_BYTES = 200
    """That of a short key is in it; of longer ones each 64 bytes count."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.entries: dict[bytes, bytes | None] = {}
        """None: just now neither the old value nor the new one."""
        self.marks: set[bytes] = set()
        """Keys that were hit since they came, or since the hand forgave them."""
        self.bytes = 0
        self.lock = new_rlock()
        self.writing = False
        self.reads: _Reads
        """Who has the newest view."""
        self._tries: Iterator[bool] = map(self.lock.acquire, repeat(False))
        """Each step takes the lock if it is free, and says whether it did."""
        self._queue: deque[bytes] = deque()
        self._most = (limit_bytes >> 3) - self.OVERHEAD_BYTES
        self._enough = limit_bytes - (_STEP_BYTES if limit_bytes >= 64 * _STEP_BYTES else 0)
        self._full = limit_bytes == 0
        self._misses = 0  # while it was full

    def fill(self, view: View, key: bytes, entry: int, value: bytes) -> None:
        """Remember a value that was read by this view, if it still is the newest. ``entry``: that
        of the memory table it was found by; 0: by none. Amortised O(1). What takes over 1/8 of
        the limit is not kept."""
        if self._full:
            # One miss in so many: what is read again is soon in, what is read once costs little.
            self._misses += 1
            if self._misses & (3 if len(value) < _DEAR_BYTES else 1):
                return
        entries, rows, size = self.entries, view.recent.rows, (len(key) & _LENGTHS) + len(value)
        # Of an older view nothing is kept, not even a place in the queue.
        if size > self._most or key in entries or self.reads.view is not view:
            return
        if gettrace() is not None:  # what traces lines is called between them: threads may change
            return
        size += self.OVERHEAD_BYTES
        self._queue.append(key)  # before it is there, or an interrupt would leave it for ever
        # Nothing is called in these lines.
        if (
            self.reads.view is view
            and not self.writing
            and (key not in rows or rows[key] == entry)
            and key not in entries
        ):
            entries[key] = value
            self.bytes += size
            if self.bytes > self.limit:
                self._make_room()
        elif len(self._queue) > 2 * len(entries) + _SPARE:
            self._make_room()

    def write_over(self, key: bytes, value: bytes, rows: dict[bytes, int], entry: int) -> None:
        """Enter a key into ``rows``, negative if it was deleted. Where it is cached it is likely to
        be read again: the new value takes the old one's place. In the Bookie's turn. Amortised
        O(1)."""
        entries, size = self.entries, len(value)
        old = entries.get(key)
        if old is not None and size <= self._most and entry > 0:  # its key did fit
            size -= len(old)
            # Nothing is called in these lines.
            if key in entries and entries[key] is old:
                entries[key] = None  # who has seen the new row never sees the old value
                rows[key] = entry
                entries[key] = value
                self.bytes += size
                if self.bytes > self.limit:
                    self._make_room()
                elif size < 0 and self.bytes < self.limit >> 1:
                    self._full = False
                return
        self.write_without((key,), partial(rows.__setitem__, key, entry))

    def write_without(self, keys: Sequence[bytes], enter: Callable[[], object]) -> None:
        """Have ``enter`` put these keys into the memory table. Their old values leave the cache
        before, and nothing comes into it meanwhile. In the Bookie's turn. 0.05 us a key."""
        with self.lock:
            self.writing = True
            try:
                self._discard_all(keys)
                enter()
            finally:
                self.writing = False

    def _discard_all(self, keys: Sequence[bytes]) -> None:
        entries = self.entries
        if entries:
            for key in keys:
                if key in entries:
                    self.discard(key)

    def discard(self, key: bytes) -> None:
        """In the lock: forget a key, if it is there."""
        self._drop(key)
        self.marks.discard(key)
        if self.bytes < self.limit >> 1:
            self._full = False
        if len(self._queue) > 2 * len(self.entries) + _SPARE:
            self._tidy()

    def _drop(self, key: bytes) -> None:
        """In the lock: take a value out, if it is there. A put may replace it meanwhile."""
        entries = self.entries
        while (value := entries.get(key)) is not None:
            size = (len(key) & _LENGTHS) + len(value) + self.OVERHEAD_BYTES
            # Nothing is called in these lines: a Ctrl-C leaves both done, or neither.
            if key in entries and entries[key] is value:
                del entries[key]
                self.bytes -= size

    def _tidy(self) -> None:
        """In the lock: more than half of the queue is keys that are gone."""
        for _ in range(3):  # finds one or two of them
            if (waiting := self._queue.popleft()) in self.entries:
                self._queue.append(waiting)
        self._mend()

    def _mend(self) -> None:
        """In the lock: an interrupt can take a key's place in the queue, and so can another thread
        while the key is about to come; and a key that is hit may be gone as it is marked."""
        if len(self._queue) < len(self.entries):
            self._queue.extend(list(self.entries))
        if len(self.marks) > len(self.entries):
            self.marks.intersection_update(self.entries)

    def clear(self, show: Callable[[], object] | None = None) -> None:
        """Forget everything, and have ``show`` put another view in the old one's place then: who
        has seen that one never sees an old value. In the Bookie's turn. O(entries)."""
        with self.lock:
            self.writing = True
            try:
                self.entries.clear()
                self.marks.clear()
                self._queue.clear()
                self.bytes = 0
                self._full = False
                if show is not None:
                    show()
            finally:
                self.writing = False

    def _make_room(self) -> None:
        """Not while another thread is there: to wait means to hand over the interpreter lock, and
        the next to come finds the lock taken by who was woken: threads that met once would meet
        each time from then on."""
        if self.bytes > self.limit:
            self._full = True
        for free in self._tries:  # as the turn of an actor is taken: see runtime.py
            if not free:
                return
            break
        try:
            if len(self._queue) > 2 * len(self.entries) + _SPARE:
                self._tidy()
            self._mend()
            self._evict()
        finally:
            self.lock.release()

    def _evict(self) -> None:
        """Steps of the hand, some at a time. It takes discarded keys out of the queue when it meets
        them."""
        queue, marks, drop = self._queue, self.marks, self._drop
        while self.bytes > self._enough and queue:
            key = queue.popleft()
            if key in marks:
                marks.discard(key)
                queue.append(key)
            else:
                drop(key)
