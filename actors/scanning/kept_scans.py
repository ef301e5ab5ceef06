"""What short scans found in the ledger, kept for the next one that comes by.

To begin a scan costs more than to go on with it: in each file a place has to be found, and what
stands there has to be merged with what the other files have. As long as the ledger is the same
those rows are the same too, so they are kept, merged, as stretches: all rows that live from some
key on to another, exclusive. Where that was done for many windows, all rows of the ledger are put
in order on the pool (ledger_order.py), and that takes the stretches' place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from functools import partial
from itertools import repeat
from math import inf
from typing import NamedTuple

from octavo.actors.scanning.kept_items import KeptItems
from octavo.actors.scanning.ledger_order import LedgerOrder, files_of
from octavo.actors.turns.pool import POOL
from octavo.files.ledger.sst import Sst
from octavo.files.locks import new_rlock
from octavo.manifest.ledger_manifest import LedgerManifest

_ROW_BYTES, _STRETCH_BYTES = 112, 480
"""What a row takes beside its key, and a stretch beside its rows."""
_ROWS_A_WINDOW, _LEAST_WINDOWS = 2048, 32
"""For each window that was merged so many rows may be put in order, which takes the pool 0.3 ms: it
is made good by the next seven windows. And so many windows for the least of ledgers."""
_ROWS_OF_ONE_RUN = 16384
"""The same where no two files overlap: those rows are in order, and cost a fifth."""
_MERGED_A_WINDOW = 3072
"""The same of rows that are merged in long windows: that takes two thirds as long as to put them in
order. So this comes after about two lists of all keys, and what it takes three more save."""
_OF_ONE_FILE = 0.25
"""What a window counts that one of several files alone had rows for: the order saves so much less
there."""


class Stretch(NamedTuple):
    """All rows that live of a bucket below ``end``, a ledger key, from some other on."""

    keys: list[bytes]
    """As the user gave them, ascending."""
    sqns: list[int]
    end: bytes


class Stretches:
    """Those of one state of the ledger, in at most so many bytes: the newest ones. Any thread."""

    def __init__(
        self,
        ledger: LedgerManifest | None,
        limit_bytes: int,
        order_bytes: int = 0,
    ) -> None:
        """``order_bytes``: what the order of all rows may take."""
        self.ledger = ledger
        self.order: LedgerOrder | None = None
        """Once it is there nothing is kept, for it tells of all ranges."""
        self._order_bytes = order_bytes
        self._searched = 0.0  # windows; some may be counted twice, or not at all
        levels = () if ledger is None else ledger.levels
        rows = sum([entry.rows for entries in levels for entry in entries])
        runs = [1 for level in levels[1:] if level]
        self._one_run = len(runs) + len(levels[0] if levels else ()) == 1
        each = _ROWS_OF_ONE_RUN if self._one_run else _ROWS_A_WINDOW
        self._order_from: float = rows // each + _LEAST_WINDOWS
        """So many make the order worth its while."""
        self.bytes = 0
        self._limit = limit_bytes
        self._starts: list[bytes] = []
        """Ledger keys from which on each stretch tells of all rows, ascending."""
        self._stretches: dict[bytes, Stretch] = {}
        self._queue: deque[tuple[bytes, int]] = deque()
        self._often: set[bytes] = set()
        """Where those begin that were asked for again."""
        self.news = 0
        """Grows with each stretch that was not asked for twice before."""
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
        self._asked_for(start[0])
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
        self._asked_for(start[0])
        keys, sqns, _ = known
        inside = bisect_left(keys, high[len(prefix) :]) if high.startswith(prefix) else len(keys)
        return start[0], keys[:inside], sqns[:inside]

    def _asked_for(self, start: bytes) -> None:
        if start not in self._often:
            self.news += 1
            self._often.add(start)

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
            if low in self._stretches or self.order is not None:
                return
            self._stretches[low] = Stretch(keys, sqns, end)
            insort(self._starts, low)
            self._queue.append((low, size))
            self.bytes += size
            self._forget_oldest()
        finally:
            self._lock.release()

    def searched(self, files: int) -> None:
        """A window was made of what so many files had."""
        self._count(1 if files > 1 or self._one_run else _OF_ONE_FILE)

    def merged(self, rows: int) -> None:
        """A long window was made of so many rows of several sources. Who lists all keys looks none
        up, by which files are verified bit by bit: so that is done here, where it takes a tenth of
        the lists before it."""
        if not self._one_run:
            self._count(rows / _MERGED_A_WINDOW, verify=True)

    def _count(self, windows: float, *, verify: bool = False) -> None:
        """Once there were many, all rows are put in order on a thread of the pool, by array
        kernels, if all files have been verified."""
        self._searched += windows
        if self._searched < self._order_from or self.ledger is None:
            return
        self._order_from *= 2
        whole = files_of(self.ledger, self._order_bytes, verify=verify)
        if whole is not None:
            later = self._order_from
            self._order_from = inf  # one at a time: it takes memory, too
            try:
                POOL.submit(partial(self._put_in_order, whole))
            except BaseException:  # no memory, or a Ctrl-C
                self._order_from = later
                raise

    def _put_in_order(self, files: list[tuple[Sst, int]]) -> None:
        if self.order is None:
            self.order = LedgerOrder(files, self._limit)
            with self._lock:
                self._limit = -1
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """In the lock: as many as are too much."""
        while self._queue and self.bytes > self._limit:
            old, size = self._queue.popleft()
            self._stretches.pop(old, None)
            self._often.discard(old)
            self.bytes -= size
            place = bisect_left(self._starts, old)
            if self._starts[place : place + 1] == [old]:
                del self._starts[place]


class KeptScans:
    """The stretches of the newest state of the ledger, or the order of all its rows; and items, of
    whatever state."""

    def __init__(self, limit_bytes: int, order_bytes: int = 0, item_bytes: int = 0) -> None:
        """``order_bytes``: what that order may take; ``item_bytes``: the items."""
        self.items = KeptItems(item_bytes)
        self._limits = limit_bytes, order_bytes
        self._newest = Stretches(None, *self._limits)

    def of(self, ledger: LedgerManifest) -> Stretches:
        """Those of ``ledger``, the newest; what was kept of an earlier one is forgotten."""
        found = self._newest
        if found.ledger is not ledger:
            found = self._newest = Stretches(ledger, *self._limits)
        return found

    def forget(self) -> None:
        """The store is closed: let go of all, and keep nothing any more."""
        self.items = KeptItems(0)
        self._limits = 0, 0
        self._newest = Stretches(None, 0)
