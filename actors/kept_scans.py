"""What short scans found in the ledger, kept for the next one that comes by.

To begin a scan costs more than to go on with it: in each file a place has to be found, and what
stands there has to be merged with what the other files have. As long as the ledger is the same
those rows are the same too, so they are kept, merged, as stretches: all rows that live from some
key on to another, exclusive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import repeat
from typing import NamedTuple

from octavo.files.locks import new_rlock
from octavo.manifest.ledger_manifest import LedgerManifest

_ROW_BYTES, _STRETCH_BYTES = 112, 480
"""What a row takes beside its key, and a stretch beside its rows."""


class Stretch(NamedTuple):
    """All rows that live of a bucket below ``end``, a ledger key, from some other on."""

    keys: list[bytes]
    """As the user gave them, ascending."""
    sqns: list[int]
    end: bytes


class Stretches:
    """Those of one state of the ledger, in at most so many bytes: the newest ones. Any thread."""

    def __init__(self, ledger: LedgerManifest | None, limit_bytes: int) -> None:
        self.ledger = ledger
        self.bytes = 0
        self._limit = limit_bytes
        self._starts: list[bytes] = []
        """Ledger keys from which on each stretch tells of all rows, ascending."""
        self._stretches: dict[bytes, Stretch] = {}
        self._queue: deque[tuple[bytes, int]] = deque()
        self._lock = new_rlock()
        self._tries = map(self._lock.acquire, repeat(False))

    def at(self, low: bytes, prefix: bytes) -> Stretch | None:
        """What is known from a ledger key on; None where nothing is. The lists are the caller's.
        Some 1.5 us."""
        place = bisect_right(self._starts, low)
        # Another thread may take some out meanwhile: a slice, and it may begin behind ``low``.
        start = self._starts[place - 1 : place]
        if not start or start[0] > low or not start[0].startswith(prefix):
            return None
        known = self._stretches.get(start[0])
        if known is None or known.end <= low:
            return None
        keys, sqns, end = known
        inside = bisect_left(keys, low[len(prefix) :])
        return Stretch(keys[inside:], sqns[inside:], end)

    def below(self, high: bytes, prefix: bytes) -> tuple[bytes, list[bytes], list[int]] | None:
        """What is known down from a ledger key, exclusive: (from which one on, keys, sqns), or
        None. Otherwise as ``at``."""
        place = bisect_left(self._starts, high)
        start = self._starts[place - 1 : place]
        if not start or start[0] >= high or not start[0].startswith(prefix):
            return None
        known = self._stretches.get(start[0])
        if known is None or known.end < high:
            return None
        keys, sqns, _ = known
        inside = bisect_left(keys, high[len(prefix) :]) if high.startswith(prefix) else len(keys)
        return start[0], keys[:inside], sqns[:inside]

    def keep(self, low: bytes, keys: list[bytes], sqns: list[int], end: bytes) -> None:
        """From ``low`` to ``end``, exclusive, keys of its bucket, there is nothing but these rows.
        The lists are not to be changed. Some 3 us."""
        size = _STRETCH_BYTES + len(b"".join(keys)) + _ROW_BYTES * len(keys)
        if size > self._limit >> 3:
            return
        for free in self._tries:  # as the turn of an actor is taken: see runtime.py
            if not free:
                return
            break
        try:
            if low in self._stretches:
                return
            self._stretches[low] = Stretch(keys, sqns, end)
            insort(self._starts, low)
            self._queue.append((low, size))
            self.bytes += size
            self._forget_oldest()
        finally:
            self._lock.release()

    def _forget_oldest(self) -> None:
        """In the lock: as many as are too much."""
        while self.bytes > self._limit:
            old, size = self._queue.popleft()
            self._stretches.pop(old, None)
            self.bytes -= size
            place = bisect_left(self._starts, old)
            if self._starts[place : place + 1] == [old]:
                del self._starts[place]


class KeptScans:
    """The stretches of the newest state of the ledger."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._newest = Stretches(None, limit_bytes)

    def of(self, ledger: LedgerManifest) -> Stretches:
        """Those of ``ledger``, the newest; what was kept of an earlier one is forgotten."""
        found = self._newest
        if found.ledger is not ledger:
            found = self._newest = Stretches(ledger, self._limit)
        return found
