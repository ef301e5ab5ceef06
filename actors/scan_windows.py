"""Windows of a scan: the live rows of all sources up to a common bound."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Protocol, TypeVar

from octavo.actors.scan_sources import Chunk
from octavo.actors.view import Found, Head

T = TypeVar("T")

Part = tuple[int, Chunk, Sequence[int], int, int]
"""Of a source's chunk: the source's place, of which a newer one's is lower; the chunk and which of
its rows read as absent; rows [low, high)."""
_MANY_TIMES = 8
"""Where the oldest source has so many times the rows of all newer ones, those are put among its."""


class Window(Protocol):
    """Live rows in the direction of the scan. ``keys`` costs nothing more; where their versions
    stand is looked up when asked for."""

    keys: list[bytes]

    def lasting(self) -> bool:
        """Whether those are all rows that live, as long as the files are these."""
        ...

    def found(self) -> Iterator[Found]:
        """Where each key's version stands, in the order of ``keys``."""
        ...

    def heads(self) -> list[Head]:
        """Head of each key's version, in the order of ``keys``."""
        ...

    def sqns(self) -> list[int]:
        """Sequence number of each key's version, in the order of ``keys``."""
        ...

    def times(self) -> list[int]:
        """Write time of each key's version, ms UTC, in the order of ``keys``. A vector operation
        for the ledger, a look into the journal for each key in memory."""
        ...

    def keep(self, hits: Iterable[object]) -> None:
        """Leave only the rows whose ``hits`` are true."""
        ...

    def cut(self, rows: int) -> None:
        """Leave only the first so many."""
        ...


class _OneSource:
    """A window of rows [low, high) of one chunk."""

    def __init__(self, chunk: Chunk, low: int, high: int, reverse: bool) -> None:
        self.keys = chunk.keys[low:high]
        self._chunk = chunk
        self._order: Sequence[int] = range(low, high)
        if reverse:
            self.keys.reverse()
            self._order = range(high - 1, low - 1, -1)

    def lasting(self) -> bool:
        return self._chunk.lasting

    def found(self) -> Iterator[Found]:
        return map(self._chunk.found, self._order)

    def heads(self) -> list[Head]:
        return self._chunk.heads(self._order)

    def sqns(self) -> list[int]:
        order = self._order
        if not order:
            return []
        if isinstance(order, range):
            if order.step > 0:
                return self._chunk.sqns(order.start, order.stop)
            return self._chunk.sqns(order[-1], order[0] + 1)[::-1]
        sqns = self._chunk.sqns(0, len(self._chunk.keys))
        return list(map(sqns.__getitem__, order))

    def times(self) -> list[int]:
        return self._chunk.times(self._order)

    def keep(self, hits: Iterable[object]) -> None:
        self._order = list(compress(self._order, hits := list(hits)))
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if rows < len(self.keys):
            self.keys, self._order = self.keys[:rows], self._order[:rows]


class _ManySources:
    """A window merged from rows [low, high) of several chunks, newest source first."""

    def __init__(self, taken: list[Part], keys: list[bytes], sqns: list[int]) -> None:
        self.keys = keys
        self._taken = [(chunk, low, high) for _, chunk, _, low, high in taken]
        self._sqns = sqns

    def lasting(self) -> bool:
        return all(chunk.lasting for chunk, _, _ in self._taken)

    def sqns(self) -> list[int]:
        return self._sqns

    def _rows(self) -> list[tuple[int, int]]:
        """(number of the chunk, row in it) of each key."""
        places: dict[bytes, tuple[int, int]] = {}
        for number in range(len(self._taken) - 1, -1, -1):  # so that newer ones win
            chunk, low, high = self._taken[number]
            rows = zip(repeat(number), range(low, high), strict=False)
            places.update(zip(chunk.keys[low:high], rows, strict=True))
        return list(map(places.__getitem__, self.keys))

    def found(self) -> Iterator[Found]:
        taken = self._taken
        return (taken[number][0].found(row) for number, row in self._rows())

    def heads(self) -> list[Head]:
        return self._gathered(lambda chunk, rows: chunk.heads(rows))

    def times(self) -> list[int]:
        return self._gathered(lambda chunk, rows: chunk.times(rows))

    def _gathered(self, read: Callable[[Chunk, Sequence[int]], list[T]]) -> list[T]:
        """What ``read`` gives for each key's row, chunk by chunk, in the order of ``keys``."""
        places = self._rows()
        of_chunk: list[list[int]] = [[] for _ in self._taken]
        for number, row in places:
            of_chunk[number].append(row)
        found = [
            iter(read(chunk, rows) if rows else ())
            for (chunk, _, _), rows in zip(self._taken, of_chunk, strict=True)
        ]
        return [next(found[number]) for number, _ in places]

    def keep(self, hits: Iterable[object]) -> None:
        self._sqns = list(compress(self._sqns, hits := list(hits)))
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if rows < len(self.keys):
            del self.keys[rows:], self._sqns[rows:]


def window_of(taken: list[Part], reverse: bool) -> Window:
    """The rows that live of these parts, newest source first."""
    _, chunk, dead, low, high = taken[-1]
    if not dead:
        if len(taken) == 1:
            return _OneSource(chunk, low, high, reverse)
        newer = sum([part[4] - part[3] for part in taken]) - (high - low)
        if newer * _MANY_TIMES <= high - low:
            keys, sqns = chunk.keys[low:high], chunk.sqns(low, high)
            for part in reversed(taken[:-1]):  # so that newer ones win
                _enter(part, keys, sqns)
            if reverse:
                keys.reverse()
                sqns.reverse()
            return _ManySources(taken, keys, sqns)
    live = _merged(taken)
    keys = sorted(live, reverse=reverse)
    return _ManySources(taken, keys, list(map(live.__getitem__, keys)))


def _enter(part: Part, keys: list[bytes], sqns: list[int]) -> None:
    """The rows of a newer part, of which there are few, among those of older ones in order."""
    _, chunk, dead, low, high = part
    gone = dead[bisect_left(dead, low) : bisect_left(dead, high)] if dead else ()
    newer = zip(range(low, high), chunk.keys[low:high], chunk.sqns(low, high), strict=True)
    for row, key, sqn in newer:
        at = bisect_left(keys, key)
        known = at < len(keys) and keys[at] == key
        if row in gone:
            if known:
                del keys[at], sqns[at]
        elif known:
            sqns[at] = sqn
        else:
            keys.insert(at, key)
            sqns.insert(at, sqn)


def _merged(taken: list[Part]) -> dict[bytes, int]:
    """Sqns by key of the rows that live of these parts, newest source first."""
    live: dict[bytes, int] = {}
    for _, chunk, dead, low, high in reversed(taken):  # so that newer ones win
        keys: Iterable[bytes] = chunk.keys[low:high]
        sqns: Iterable[int] = chunk.sqns(low, high)
        gone = dead[bisect_left(dead, low) : bisect_left(dead, high)] if dead else ()
        if gone:
            if live:
                for at in gone:
                    live.pop(chunk.keys[at], None)
            lives = bytearray(b"\x01") * (high - low)
            for at in gone:
                lives[at - low] = 0
            keys, sqns = compress(keys, lives), compress(sqns, lives)
        live.update(zip(keys, sqns, strict=True))
    return live
