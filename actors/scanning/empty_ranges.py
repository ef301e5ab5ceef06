"""Ranges in which no key lives, which scans step over at once.

A deleted or expired key leaves a row, in memory and in the ledger, and a scan looks at each one on
its way: a caller that takes the first key again and again, as from a queue, would step over all
that was taken before. So a range that a scan has stepped over is noted, and a put into it takes the
note back. Pushes and merges do not change what the store holds, so the notes outlive them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from octavo.actors.memory_table import MemoryTable
from octavo.manifest.ledger_manifest import LedgerManifest

_MOST, _MOST_LONG = 4096, 256
"""Ranges that are kept at most: enough for as many queues side by side. The second number holds
once a range with long keys comes. The ranges that were noted first go first."""
_SHORT_BYTES = 512
"""Up to so many bytes of both its ends together, a range's keys count as short."""
_MOST_ENTRIES = 4096
"""Index entries in memory that a range noted at one time may hold."""


def _most(low: bytes, high: bytes) -> int:
    """How many ranges may be kept once one with these ends is among them."""
    return _MOST if len(low) + len(high) <= _SHORT_BYTES else _MOST_LONG


class EmptyRanges:
    """Ranges of ledger keys, each with the sqn and the moment from which on no key in it has lived.
    The moment, in ms UTC, is 0 if nothing in it expired: then no clock set back revives a key.

    Changed in the Bookie's turn, read without it: each range is true by itself, and a thread that
    reads while a put takes one back has a snapshot from before that put.
    """

    def __init__(self) -> None:
        self.lows: list[bytes] = []
        """First keys of the ranges, ascending; empty while nothing is noted. For a moment, or after
        a Ctrl-C, one of them may have no range."""
        self._ranges: dict[bytes, tuple[bytes, int, int]] = {}  # end, exclusive; sqn; moment
        self._used: set[bytes] = set()

    def left(
        self, low: bytes, high: bytes, upper: int, now_ms: int, reverse: bool
    ) -> tuple[bytes, bytes]:
        """Return the part of [low, high) that a reader at sqn ``upper`` and time ``now_ms`` has to
        look at: without a noted range at its beginning or, if ``reverse``, at its end. 0.5 us."""
        place = bisect_left(self.lows, high) if reverse else bisect_right(self.lows, low)
        for start in self.lows[place - 1 : place]:  # another thread may take it out meanwhile
            end, since, moment = self._ranges.get(start, (b"", 0, 0))
            if since > upper or moment > now_ms:
                continue
            if start < high <= end if reverse else start <= low < end:
                self._used.add(start)
                return (low, start) if reverse else (end, high)
        return low, high

    def note(self, low: bytes, high: bytes, sqn: int, moment: int) -> None:
        """In the turn: note that as of ``sqn``, the newest, and ``moment`` nothing lives in
        [low, high)."""
        lows, ranges = self.lows, self._ranges
        place = bisect_left(lows, low)
        if place:
            known = ranges.get(lows[place - 1])
            if known is not None and known[0] >= low:
                place -= 1
                low, high, moment = lows[place], max(known[0], high), max(known[2], moment)
        while place < len(lows) and lows[place] <= high:
            known = ranges.pop(lows[place], None)
            if known is not None:
                high, moment = max(known[0], high), max(known[2], moment)
            del lows[place]
        ranges[low] = high, sqn, moment
        insort(lows, low)
        self._used.add(low)
        most = _most(low, high)
        while len(ranges) > most:
            self._forget(next(iter(ranges)))

    def take_back(self, key: bytes) -> None:
        """In the turn: take ``key``, which is about to live, out of the noted ranges. 0.4 us."""
        lows, ranges = self.lows, self._ranges
        place = bisect_right(lows, key) - 1
        if place < 0:
            return
        low = lows[place]
        known = ranges.get(low)
        if known is None or known[0] <= key:
            return
        high, sqn, moment = known
        if low < key:
            ranges[low] = key, sqn, moment
        else:
            self._forget(low)
        behind = key + b"\x00"
        if behind < high and len(ranges) < _most(behind, high):  # or each put could add one
            ranges[behind] = high, sqn, moment
            insort(lows, behind)

    def forget_unused(self) -> None:
        """In the turn: forget the ranges that were neither noted nor used since the last call,
        since each put has to look at them."""
        for low in [low for low in self.lows if low not in self._used]:
            self._forget(low)
        self._used = set()

    def clear(self) -> None:
        """In the turn: forget all."""
        for low in self.lows[:]:
            self._forget(low)

    def _forget(self, low: bytes) -> None:
        self._ranges.pop(low, None)
        place = bisect_left(self.lows, low)
        if self.lows[place : place + 1] == [low]:
            del self.lows[place]


def no_news(
    recent: MemoryTable, frozen: Iterable[MemoryTable], low: bytes, high: bytes, upper: int,
    reverse: bool,
) -> tuple[bytes, bytes, bool] | None:  # fmt: skip
    """In the turn: return [low, high), or as much of it as one look may take, and whether any index
    entry in memory there expires. None if an entry came since ``upper``."""
    expires = False
    for table in (recent, *[table for table in frozen if table.expiring]):
        names = table.slice(low, high, _MOST_ENTRIES, reverse)
        if len(names) == _MOST_ENTRIES:  # what is behind them is left to the next query
            low, high = (names[0], high) if reverse else (low, names[-1] + b"\x00")
        entries = list(map(table.rows.__getitem__, names))
        if entries and not -upper <= min(entries) <= max(entries) <= upper:
            return None
        expires = expires or min(entries, default=0) < 0  # an index has no rows of deletes
    return low, high, expires


def may_expire(ledger: LedgerManifest, low: bytes, high: bytes) -> bool:
    """Whether any row of the ledger in [low, high) expires, or is in a file that is not open.
    0.3 ns a row in files that have any such row."""
    for level in range(len(ledger.levels)):
        for entry in ledger.overlapping(level, low, high):
            if entry.expiring:
                sst = entry.file.sst
                if sst is None:
                    return True
                flags = bytes(sst.flags[sst.lower_bound(low) : sst.lower_bound(high)])
                if flags.count(0) < len(flags):
                    return True
    return False
