"""What short scans found in the ledger, kept for the next one that comes by.

To begin a scan costs more than to go on with it: in each file a place has to be found, and what
stands there has to be merged with what the other files have. As long as the ledger is the same
those rows are the same too, so they are kept, merged, as stretches: all rows that live from some
key on to another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NoReturn

from octavo.actors.scan_sources import Chunk
from octavo.actors.scan_windows import Window
from octavo.actors.view import Found, Head
from octavo.files.bounds import Bounds
from octavo.files.locks import new_rlock
from octavo.manifest.ledger_manifest import LedgerManifest

LONGEST = 256
"""Rows of a stretch that is kept: later windows of long scans are longer."""
_SHORT = 32
"""A chunk that is shorter is put together with the next stretch, where that is known."""
_ROW_BYTES, _STRETCH_BYTES = 112, 400
"""What a row takes beside its key, and a stretch beside its rows."""

Rows = tuple[list[bytes], list[int]]
"""Keys as the user gave them, ascending, and their sqns."""


class Stretches:
    """Those of one state of the ledger, in at most so many bytes: the newest ones. Any thread."""

    def __init__(self, ledger: LedgerManifest | None, limit_bytes: int) -> None:
        self.ledger = ledger
        levels = () if ledger is None else ledger.levels
        self.ledger_rows = sum(entry.rows for level in levels for entry in level)
        self.bytes = 0
        self._limit = limit_bytes
        self._starts: list[bytes] = []
        """Ledger keys from which on each stretch tells of all rows, ascending."""
        self._rows: dict[bytes, Rows] = {}
        self._queue: deque[tuple[bytes, int]] = deque()
        self._lock = new_rlock()
        self._tries = map(self._lock.acquire, repeat(False))

    def at(self, low: bytes, prefix: bytes) -> Rows | None:
        """The rows from a ledger key on, as far as a stretch goes; None where none is known. Some
        1.5 us."""
        place = bisect_right(self._starts, low)
        # Another thread may take some out meanwhile: a slice, and it may begin behind ``low``.
        start = self._starts[place - 1 : place]
        if not start or start[0] > low or not start[0].startswith(prefix):
            return None
        rows = self._rows.get(start[0])
        if rows is None:
            return None
        keys, sqns = rows
        inside = bisect_left(keys, low[len(prefix) :])
        if inside == len(keys):
            return None
        return keys[inside:], sqns[inside:]

    def keep(self, low: bytes, keys: list[bytes], sqns: list[int]) -> None:
        """From ``low`` to the last of these keys, rows of its bucket, there is nothing but them.
        The lists are not to be changed. Some 3 us."""
        size = _STRETCH_BYTES + len(b"".join(keys)) + _ROW_BYTES * len(keys)
        if size > self._limit >> 3:
            return
        for free in self._tries:  # as the turn of an actor is taken: see runtime.py
            if not free:
                return
            break
        try:
            if low in self._rows:
                return
            self._rows[low] = keys, sqns
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
            self._rows.pop(old, None)
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


class _Merged:
    """Rows of a stretch as a chunk: all of them live, and their keys and sqns are all it knows."""

    lasting = True

    def __init__(self, keys: list[bytes], told: list[int] | Window) -> None:
        """``told``: the sqns, or what tells them if it is asked."""
        self.keys = keys
        self._told = told

    def dead(self, _now_ms: int) -> Sequence[int]:
        return ()

    def sqns(self, low: int, high: int) -> list[int]:
        if not isinstance(self._told, list):
            self._told = self._told.sqns()
        return self._told[low:high]

    def found(self, at: int) -> Found:
        self._unknown()

    def times(self, rows: Sequence[int]) -> list[int]:
        self._unknown()

    def heads(self, rows: Sequence[int]) -> list[Head]:
        self._unknown()

    def _unknown(self) -> NoReturn:
        raise NotImplementedError("a scan of keys and sqns was asked for more")


def kept_chunks(
    kept: Stretches, bound: Bounds, merged: Callable[[Bounds], Iterator[Window]]
) -> Iterator[Chunk]:
    """The live rows of a range of the ledger, ascending: from the stretches that are known as far
    as they go, then as ``merged`` gives them of the rest."""
    prefix, low, high, _ = bound
    while (rows := kept.at(low, prefix)) is not None:
        keys, sqns = rows
        low = prefix + keys[-1] + b"\x00"
        while len(keys) < _SHORT and (rows := kept.at(low, prefix)) is not None:
            keys += rows[0]
            sqns += rows[1]
            low = prefix + keys[-1] + b"\x00"
        if high is not None and low > high:
            end = bisect_left(keys, high[len(prefix) :]) if high.startswith(prefix) else len(keys)
            if end:
                yield _Merged(keys[:end], sqns[:end])
            return
        yield _Merged(keys, sqns)
    for window in merged(bound._replace(low=low)):
        keys = window.keys
        told: list[int] | Window = window
        if len(keys) <= LONGEST and window.lasting():
            told = window.sqns()
            kept.keep(low, keys, told)
        yield _Merged(keys, told)
        low = prefix + keys[-1] + b"\x00"
