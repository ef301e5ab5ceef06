"""The read cache: values of recently read keys, evicted by CLOCK.

All values are in one dict, so a hit is one lookup. One hit in a few marks its key; nothing is
moved. When room is needed, a hand walks from old to new: it spares a marked key once, taking the
mark off, and drops an unmarked one. So eviction is a little at a time.
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
"""A full cache takes values from this size on more readily: reading one again costs more than
taking in some that are not read again."""
_STEP_BYTES = 16 << 10
"""How much room is made at a time, except in small caches: to begin costs as much as one drop."""


class _Reads(Protocol):
    @property
    def view(self) -> View: ...


class ReadCache:
    """Newest values by ledger key, at most ``limit_bytes`` of keys, values and bookkeeping.

    ``entries`` and ``marks`` are read without a lock on the hot path, and a value found there must
    be the newest. So a new row enters the memory table in the same moment as the old value leaves
    the cache, and a value that was read enters the cache in the same moment as it is seen to be
    still the newest. Such a moment is some lines that call nothing: in these CPython switches no
    threads and runs no signal's handler. A write that needs calls in between sets ``writing``, and
    nothing enters the cache meanwhile. Writes are in the Bookie's turn, one at a time.

    ``lock`` is held while values are taken out. ``fill`` and ``write_over`` only try it, when they
    need room.
    """

    OVERHEAD_BYTES = 200
    """Counted for each entry; it includes a key below 64 bytes. Longer keys count by 64 bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.entries: dict[bytes, bytes | None] = {}
        """None for a moment in which a key has neither the old value nor the new one."""
        self.marks: set[bytes] = set()
        """Keys that were hit since they came, or since the hand spared them."""
        self.bytes = 0
        self.lock = new_rlock()
        self.writing = False
        self.reads: _Reads
        """Has the newest view: the Bookie, as its reading half."""
        self._tries: Iterator[bool] = map(self.lock.acquire, repeat(False))
        """Each step takes the lock if it is free, and says whether it did."""
        self._queue: deque[bytes] = deque()
        self._most = (limit_bytes >> 3) - self.OVERHEAD_BYTES
        self._enough = limit_bytes - (_STEP_BYTES if limit_bytes >= 64 * _STEP_BYTES else 0)
        self._full = limit_bytes == 0
        self._misses = 0  # counted while the cache is full

    def fill(self, view: View, key: bytes, entry: int, value: bytes) -> None:
        """Remember a value that was read through ``view``, if it is still the newest. ``entry``:
        the memory table's entry that led to it; 0 if none did. Amortised O(1). A value that takes
        over 1/8 of the limit is not kept."""
        if self._full:
            # One miss in 4 (or 2): keys read again are soon in, and those read once cost little.
            self._misses += 1
            if self._misses & (3 if len(value) < _DEAR_BYTES else 1):
                return
        entries, rows, size = self.entries, view.recent.rows, (len(key) & _LENGTHS) + len(value)
        # Nothing is kept for an older view, not even a place in the queue.
        if size > self._most or key in entries or self.reads.view is not view:
            return
        if gettrace() is not None:  # a tracer is called between lines: threads may switch there
            return
        size += self.OVERHEAD_BYTES
        self._queue.append(key)  # before its value, or an interrupt could leave that in for ever
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
        """Set ``rows[key] = entry`` (negative: deleted, or expiring). If the key is cached it is
        likely to be read again: then the new value replaces the old one, unless the entry is
        negative. In the Bookie's turn. Amortised O(1)."""
        entries, size = self.entries, len(value)
        old = entries.get(key)
        if old is not None and size <= self._most and entry > 0:  # the key fits, as it did before
            size -= len(old)
            # Nothing is called in these lines.
            if key in entries and entries[key] is old:
                entries[key] = None  # so that no reader sees the old value after the new row
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
        """Drop the cached values of these keys, then have ``enter`` put the keys into the memory
        table; nothing enters the cache meanwhile. In the Bookie's turn. 0.05 us a key."""
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
        """Forget a key, if it is there. In the lock."""
        self._drop(key)
        self.marks.discard(key)
        if self.bytes < self.limit >> 1:
            self._full = False
        if len(self._queue) > 2 * len(self.entries) + _SPARE:
            self._tidy()

    def _drop(self, key: bytes) -> None:
        """Take a key's value out, if it is there; a put may replace it meanwhile. In the lock."""
        entries = self.entries
        while (value := entries.get(key)) is not None:
            size = (len(key) & _LENGTHS) + len(value) + self.OVERHEAD_BYTES
            # Nothing is called in these lines: a Ctrl-C leaves both done, or neither.
            if key in entries and entries[key] is value:
                del entries[key]
                self.bytes -= size

    def _tidy(self) -> None:
        """Take some keys that are gone out of the queue; more than half of it are. In the lock."""
        for _ in range(3):  # meets one or two of them
            if (waiting := self._queue.popleft()) in self.entries:
                self._queue.append(waiting)
        self._mend()

    def _mend(self) -> None:
        """Make queue and marks agree with the entries again. In the lock. A key can lose its place
        in the queue by an interrupt, or to another thread before its value is in; and a key that
        is hit may be gone by the time it is marked."""
        if len(self._queue) < len(self.entries):
            self._queue.extend(list(self.entries))
        if len(self.marks) > len(self.entries):
            self.marks.intersection_update(self.entries)

    def clear(self, show: Callable[[], object] | None = None) -> None:
        """Forget everything, and only then have ``show`` put a new view in place: whoever has seen
        that never sees an old value. In the Bookie's turn. O(entries)."""
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
        """Evict down to the limit, unless another thread has the lock. Waiting for that would hand
        over the interpreter lock, and the next thread would find the lock taken by the one that was
        woken: threads that met once would meet each time from then on."""
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
        """Move the hand until there is room enough. It takes discarded keys out of the queue when
        it meets them."""
        queue, marks, drop = self._queue, self.marks, self._drop
        while self.bytes > self._enough and queue:
            key = queue.popleft()
            if key in marks:
                marks.discard(key)
                queue.append(key)
            else:
                drop(key)
