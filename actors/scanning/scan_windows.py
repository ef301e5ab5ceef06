"""Windows of a scan: the live rows of all sources up to a common bound."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, islice, repeat
from operator import ne
from typing import Protocol, TypeVar

from octavo.actors.scanning.scan_sources import Chunk, asked_for_more
from octavo.files.ledger.head import Head

T = TypeVar("T")

Part = tuple[int, Chunk, Sequence[int], int, int]
"""Part of a source's chunk: the source's place, lower for a newer one; the chunk; which of its rows
read as absent; the part's rows [low, high)."""
Rows = tuple[list[bytes], list[int], Sequence[int]]
"""Keys of some rows of a source, ascending; their sqns; which of them read as absent."""
_MANY_TIMES = 3
"""If the oldest source has so many times the rows of all newer ones, those are inserted among its
rows."""
_FEW, _OF_MANY = 64, 32
"""Beyond the first number, at most one row for each so many is inserted: each moves all behind
it."""
_NEARLY_ALL = 20
"""If other sources have more than one in so many of all rows, keys are sorted together, without
sqns."""


class Window(Protocol):
    """Live rows in the direction of the scan. ``keys`` costs nothing more; everything else is
    looked up on request."""

    keys: list[bytes]

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
        """Leave only the first ``rows`` rows."""
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


class Brief:
    """A window of keys and sqns only. The lists become its own."""

    def __init__(self, keys: list[bytes], sqns: list[int], again: bool = False) -> None:
        """``again``: whether its rows in files were found for two scans before."""
        self.keys = keys
        self._sqns = sqns
        self.again = again

    def sqns(self) -> list[int]:
        return self._sqns

    def heads(self) -> list[Head]:
        asked_for_more()

    def times(self) -> list[int]:
        asked_for_more()

    def keep(self, hits: Iterable[object]) -> None:
        self._sqns = list(compress(self._sqns, hits := list(hits)))
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if rows < len(self.keys):
            del self.keys[rows:], self._sqns[rows:]


class LookedUp(Brief):
    """A window of few rows, whose heads are looked up by their keys."""

    def __init__(
        self, keys: list[bytes], sqns: list[int], look: Callable[[list[bytes]], list[Head]]
    ) -> None:
        super().__init__(keys, sqns)
        self._look = look

    def heads(self) -> list[Head]:
        return self._look(self.keys)


class ManySources:
    """A window merged from rows [low, high) of several chunks, newest source first."""

    def __init__(self, taken: list[Part], keys: list[bytes], sqns: list[int] | None = None) -> None:
        """``sqns``: None if they have not been looked up."""
        self.keys = keys
        self._sqns = sqns
        self._taken = [(chunk, low, high) for _, chunk, _, low, high in taken]

    @property
    def merged(self) -> int:
        """How many rows of all sources it was made of."""
        return sum([high - low for _, low, high in self._taken])

    def sqns(self) -> list[int]:
        if self._sqns is None:
            newest: dict[bytes, int] = {}
            for chunk, low, high in reversed(self._taken):  # so that newer ones win
                newest.update(zip(chunk.keys[low:high], chunk.sqns(low, high), strict=True))
            self._sqns = list(map(newest.__getitem__, self.keys))
        return self._sqns

    def keep(self, hits: Iterable[object]) -> None:
        hits = list(hits)
        if self._sqns is not None:
            self._sqns = list(compress(self._sqns, hits))
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if self._sqns is not None:
            del self._sqns[rows:]
        if rows < len(self.keys):
            self.keys = self.keys[:rows]

    def _rows(self) -> list[tuple[int, int]]:
        """(number of the chunk, row in it) of each key."""
        places: dict[bytes, tuple[int, int]] = {}
        for number in range(len(self._taken) - 1, -1, -1):  # so that newer ones win
            chunk, low, high = self._taken[number]
            rows = zip(repeat(number), range(low, high), strict=False)
            places.update(zip(chunk.keys[low:high], rows, strict=True))
        return list(map(places.__getitem__, self.keys))

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


def window_of(taken: list[Part], reverse: bool) -> Window:
    """Make a window of the live rows of these parts, newest source first."""
    _, chunk, dead, low, high = taken[-1]
    if len(taken) == 1 and not dead:
        return _OneSource(chunk, low, high, reverse)
    if not any(dead for _, _, dead, _, _ in taken) and _apart(taken):
        keys = _together([chunk.keys[low:high] for _, chunk, _, low, high in taken])
        if reverse:
            keys.reverse()
        return ManySources(taken, keys)
    keys, sqns = merged([_rows_of(part) for part in taken])
    if reverse:
        keys.reverse()
        sqns.reverse()
    return ManySources(taken, keys, sqns)


def _apart(taken: list[Part]) -> bool:
    """Whether no part has nearly all rows. (If one has, the others' are inserted among them.)"""
    rows = [high - low for _, _, _, low, high in taken]
    return (sum(rows) - max(rows)) * _NEARLY_ALL > sum(rows)


def _together(parts: Sequence[list[bytes]]) -> list[bytes]:
    """The keys of all parts, in order, each once. Each part is in order."""
    keys = list(chain.from_iterable(parts))
    keys.sort()  # fast, since it finds the parts as runs
    return list(compress(keys, map(ne, keys, chain(islice(keys, 1, None), (None,)))))


def _rows_of(part: Part) -> Rows:
    _, chunk, dead, low, high = part
    gone: Sequence[int] = ()
    if dead:
        gone = [at - low for at in dead[bisect_left(dead, low) : bisect_left(dead, high)]]
    return chunk.keys[low:high], chunk.sqns(low, high), gone


def merged(parts: Sequence[Rows]) -> tuple[list[bytes], list[int]]:
    """Merge parts, newest source first, into the keys and sqns of their live rows. May change the
    lists of the last part, and return them."""
    keys, sqns, gone = parts[-1]
    if not gone:
        if len(parts) == 1:
            return keys, sqns
        newer = sum([len(part[0]) for part in parts]) - len(keys)
        if newer <= min(len(keys) // _MANY_TIMES, _FEW + len(keys) // _OF_MANY):
            for part in parts[-2::-1]:  # so that newer ones win
                _enter(part, keys, sqns)
            return keys, sqns
    live: dict[bytes, int] = {}
    keys, sqns = [], []
    for names, numbers, gone in reversed(parts):  # so that newer ones win
        if gone:
            live.update(zip(keys, sqns, strict=True))
            keys, sqns = [], []
            for at in gone:
                live.pop(names[at], None)
            lives = bytearray(b"\x01") * len(names)
            for at in gone:
                lives[at] = 0
            live.update(compress(zip(names, numbers, strict=True), lives))
        else:
            keys += names
            sqns += numbers
    live.update(zip(keys, sqns, strict=True))
    keys = sorted(live)
    return keys, list(map(live.__getitem__, keys))


def _enter(newer: Rows, keys: list[bytes], sqns: list[int]) -> None:
    """Insert a few newer rows among older ones, ``keys`` and ``sqns``, which stay in order."""
    names, numbers, gone = newer
    dead = set(gone)
    at = 0
    for row, (key, sqn) in enumerate(zip(names, numbers, strict=True)):
        at = bisect_left(keys, key, at)
        known = at < len(keys) and keys[at] == key
        if row in dead:
            if known:
                del keys[at], sqns[at]
        elif known:
            sqns[at] = sqn
        else:
            keys.insert(at, key)
            sqns.insert(at, sqn)
