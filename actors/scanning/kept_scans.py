"""What short scans found in the ledger, kept for later scans of the same range.

Beginning a scan costs more than going on with it: a place has to be found in each file, and the
rows there have to be merged with those of the other files. As long as the ledger is the same, so
are those rows. So they are kept, merged, as stretches: all live rows from one key up to another,
exclusive. After many windows were made so, all rows of the ledger are put in order on the pool
(ledger_order.py), and that order replaces the stretches.
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
"""What a row takes beyond its key, and a stretch beyond its rows."""
_ROWS_A_WINDOW, _LEAST_WINDOWS = 2048, 32
"""Each window that was merged allows so many rows to be put in order, which takes the pool 0.3 ms:
the next seven windows make up for it. Even the smallest ledger takes so many windows."""
_ROWS_OF_ONE_RUN = 16384
"""``_ROWS_A_WINDOW`` if no two files overlap: their rows are in order already, and cost a fifth."""
_MERGED_A_WINDOW = 3072
"""So many rows merged in long windows count as a window. To merge a row takes two thirds as long as
to put it in order: so the order comes after about two lists of all keys, and pays after three more.
"""
_OF_ONE_FILE = 0.25
"""What a window counts if only one of several files had rows for it: the order saves so much less
there."""


class Stretch(NamedTuple):
    """All live rows of a bucket from some ledger key up to ``end``, another one, exclusive."""

    keys: list[bytes]
    """As the user gave them, ascending."""
    sqns: list[int]
    end: bytes


class Stretches:
    """The stretches of one state of the ledger: the newest ones, in a limited number of bytes. Any
    thread."""

    def __init__(
        self,
        ledger: LedgerManifest | None,
        limit_bytes: int,
        order_bytes: int = 0,
    ) -> None:
        """``limit_bytes``: of the stretches; ``order_bytes``: of the order of all rows."""
        self.ledger = ledger
        self.order: LedgerOrder | None = None
        """The order of all rows. Once it is there no stretch is kept, since it has all ranges."""
        self._order_bytes = order_bytes
        self._searched = 0.0  # windows; some may be counted twice, or not at all
        levels = () if ledger is None else ledger.levels
        rows = sum([entry.rows for entries in levels for entry in entries])
        runs = [1 for level in levels[1:] if level]
        self._one_run = len(runs) + len(levels[0] if levels else ()) == 1
        each = _ROWS_OF_ONE_RUN if self._one_run else _ROWS_A_WINDOW
        self._order_from: float = rows // each + _LEAST_WINDOWS
        """The number of windows from which on the order is worth making."""
        self.bytes = 0
        self._limit = limit_bytes
        self._starts: list[bytes] = []
        """The ledger keys at which the stretches begin, ascending."""
        self._stretches: dict[bytes, Stretch] = {}
        self._queue: deque[tuple[bytes, int]] = deque()
        self._often: set[bytes] = set()
        """The beginnings of the stretches that were asked for again."""
        self.news = 0
        """Grows whenever a stretch is asked for that was not asked for before."""
        self._lock = new_rlock()
        self._tries = map(self._lock.acquire, repeat(False))

    def at(self, low: bytes, prefix: bytes) -> Stretch | None:
        """The rows known from a ledger key on; None if there are none. The lists are the caller's.
        Some 1.5 us."""
        place = bisect_right(self._starts, low)
        # Another thread may take some out meanwhile. So this is a slice, which cannot fail, and
        # what it has may begin behind ``low``.
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
        """The rows known just below a ledger key, exclusive: (the ledger key at which they begin,
        keys, sqns), or None. Otherwise as ``at``."""
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
        """Keep these rows as all that live of a bucket from ``low`` to ``end``, ledger keys, the
        latter exclusive. The lists are not to be changed. Some 3 us."""
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
        """Count a short window that was made of the rows of so many files."""
        self._count(1 if files > 1 or self._one_run else _OF_ONE_FILE)

    def merged(self, rows: int) -> None:
        """Count a long window that was made of so many rows of several sources. Lookups verify
        files bit by bit, but a list of all keys looks none up; so the files are verified before
        the order is made, which takes a tenth of the lists before it."""
        if not self._one_run:
            self._count(rows / _MERGED_A_WINDOW, verify=True)

    def _count(self, windows: float, *, verify: bool = False) -> None:
        """Count windows; once there were many, have all rows put in order on the pool, by array
        kernels, if all files have been verified."""
        self._searched += windows
        if self._searched < self._order_from or self.ledger is None:
            return
        self._order_from *= 2
        whole = files_of(self.ledger, self._order_bytes, verify=verify)
        if whole is not None:
            later = self._order_from
            self._order_from = inf  # only one at a time, since it takes memory
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
        """Under the lock: forget as many as are too much."""
        while self._queue and self.bytes > self._limit:
            old, size = self._queue.popleft()
            self._stretches.pop(old, None)
            self._often.discard(old)
            self.bytes -= size
            place = bisect_left(self._starts, old)
            if self._starts[place : place + 1] == [old]:
                del self._starts[place]


class KeptScans:
    """The stretches of the newest state of the ledger, or the order of all its rows; and items,
    which do not depend on the ledger's state."""

    def __init__(self, limit_bytes: int, order_bytes: int = 0, item_bytes: int = 0) -> None:
        """``limit_bytes``: of the stretches; ``order_bytes``: of the order; ``item_bytes``: of the
        items."""
        self.items = KeptItems(item_bytes)
        self._limits = limit_bytes, order_bytes
        self._newest = Stretches(None, *self._limits)

    def of(self, ledger: LedgerManifest) -> Stretches:
        """The stretches of ``ledger``, the newest; those of an earlier one are forgotten."""
        found = self._newest
        if found.ledger is not ledger:
            found = self._newest = Stretches(ledger, *self._limits)
        return found

    def forget(self) -> None:
        """Let go of all, and keep nothing from now on: the store is closed."""
        self.items = KeptItems(0)
        self._limits = 0, 0
        self._newest = Stretches(None, 0)
