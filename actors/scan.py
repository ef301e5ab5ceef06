"""Ordered reads over a view: windows of keys merged from memory tables and ledger files.

Each source offers its rows as ascending chunks. A window is what all sources can give up to a
common bound, so within a window every version of a key is at hand, and newer sources win. Work
is done a window at a time with C-speed dict and sort operations; windows start small, for short
scans, and grow, for long ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, compress, repeat
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar

from octavo.actors.memory_table import MemoryTable
from octavo.actors.view import Found, Head, View, found_in
from octavo.files import ledger_key
from octavo.files.bounds import HEAD_ROWS as HEAD_ROWS
from octavo.files.bounds import OBJECTS as OBJECTS
from octavo.files.bounds import Bounds as Bounds
from octavo.files.bounds import bounds as bounds
from octavo.files.errors import Corruption
from octavo.files.rows import EXPIRES, TOMBSTONE
from octavo.files.sst import Sst
from octavo.manifest.ledger_entry import LedgerEntry

T = TypeVar("T")

FIRST_WINDOW = 64
LARGEST_WINDOW = 4096
_MORE, _LEAST = 1.25, 4
"""What a source gives of the first window beyond its share: the one that gives least bounds it."""
_LAST = b"\xff" * (ledger_key.MAX_KEY_BYTES + 8)

Slice = Callable[[MemoryTable, bytes, bytes | None, int, bool], list[bytes]]
"""Keys of a memory table in order: in the Bookie's turn while the table is not frozen."""


class Chunk(Protocol):
    """Consecutive rows of one source: user keys ascending, and what each row is."""

    keys: list[bytes]

    def dead(self, now_ms: int) -> Sequence[int]:
        """Rows that read as absent, ascending."""

    def found(self, at: int) -> Found: ...

    def sqns(self, low: int, high: int) -> list[int]:
        """Sequence numbers of rows [low, high)."""
        ...

    def times(self, rows: Sequence[int]) -> list[int]:
        """Write times of some rows, ms UTC, in their order."""
        ...

    def heads(self, rows: Sequence[int]) -> list[Head]:
        """Heads of some live rows, in their order."""
        ...


class _MemoryChunk:
    def __init__(
        self, view: View, table: MemoryTable, keys: list[bytes], entries: list[int]
    ) -> None:
        self.keys = keys
        self.entries = entries
        self.view = view
        self.table = table

    def dead(self, now_ms: int) -> Sequence[int]:
        entries = self.entries
        if min(entries) >= 0:
            return ()
        rows = [at for at, entry in enumerate(entries) if entry < 0]
        expiring = self.table.expiring
        if not expiring:
            return rows  # deletes, all of them
        return [at for at in rows if expiring.get(-entries[at], 0) <= now_ms]

    def found(self, at: int) -> Found:
        return found_in(self.table, self.entries[at])

    def sqns(self, low: int, high: int) -> list[int]:
        return list(map(abs, self.entries[low:high]))

    def times(self, rows: Sequence[int]) -> list[int]:
        file_of = self.view.journal.file_of
        sqns = (abs(self.entries[at]) for at in rows)
        return [file_of(sqn).header(sqn).time_ms for sqn in sqns]

    def heads(self, rows: Sequence[int]) -> list[Head]:
        found = (self.view.head_of(self.found(at)) for at in rows)
        return [head for head in found if head is not None]


class _FileChunk:
    def __init__(self, sst: Sst, base: int, low: int, high: int) -> None:
        self.keys = sst.user_keys(low, high)
        self.sst = sst
        self.base = base
        self.low = low

    def dead(self, now_ms: int) -> Sequence[int]:
        sst, low = self.sst, self.low
        if not sst.tombstones and not sst.expiring:
            return ()
        flags = bytes(sst.flags[low : low + len(self.keys)])
        if not any(flags):
            return ()
        out = []
        for at, flag in enumerate(flags):
            if flag and (flag & TOMBSTONE or (flag & EXPIRES and sst.expiry(low + at) <= now_ms)):
                out.append(at)
        return out

    def found(self, at: int) -> Found:
        row = self.low + at
        flags = self.sst.flags[row]
        return Found(
            self.sst.sqns[row] + self.base, not flags & (TOMBSTONE | EXPIRES), self.sst, row
        )

    def sqns(self, low: int, high: int) -> list[int]:
        base = self.base
        found = self.sst.sqns[self.low + low : self.low + high].tolist()
        return [sqn + base for sqn in found] if base else found

    def times(self, rows: Sequence[int]) -> list[int]:
        times = self.sst.times(self.low, self.low + len(self.keys)).tolist()
        return [times[at] for at in rows]

    def heads(self, rows: Sequence[int]) -> list[Head]:
        sst, low, high = self.sst, self.low, self.low + len(self.keys)
        times = self.times(rows)
        sqns, sizes = self.sqns(0, high - low), sst.sizes[low:high].tolist()
        metas: Iterable[bytes] = repeat(b"")
        if sst.has_metas:
            metas = [sst.meta(low + at) for at in rows]
        expiries: Iterable[int | None] = repeat(None)
        if sst.expiring:
            expiries = [sst.expiry(low + at) or None for at in rows]
        parts = zip(
            [sqns[at] for at in rows], [sizes[at] for at in rows], metas, times, expiries,
            strict=False,
        )  # fmt: skip
        return list(map(Head._make, parts))


def _memory_chunks(
    view: View, table: MemoryTable, upper: int, bounds: Bounds, take: Slice, window: int
) -> Iterator[Chunk]:
    low: bytes = bounds.low
    high = bounds.high
    cut = len(bounds.prefix)
    while True:
        keys = take(table, low, high, window, bounds.reverse)
        if not keys:
            return
        if bounds.reverse:
            high = keys[0]
        else:
            low = keys[-1] + b"\x00"
        rows = len(keys)
        entries = list(map(table.rows.__getitem__, keys))
        if max(entries) > upper or min(entries) < -upper:
            # Some were written since: an older version may be kept, or there was none.
            pairs = [(key, table.entry(key, upper)) for key in keys]
            keys = [key for key, entry in pairs if entry is not None]
            entries = [entry for _, entry in pairs if entry is not None]
        if keys:
            yield _MemoryChunk(view, table, [key[cut:] for key in keys], entries)
        if rows < window:
            return
        window = min(window * 2, LARGEST_WINDOW)


def _file_chunks(entries: Sequence[LedgerEntry], bounds: Bounds, window: int) -> Iterator[Chunk]:
    for entry in reversed(entries) if bounds.reverse else entries:
        sst: Sst = entry.file.sst or entry.file.reader()
        low = sst.lower_bound(bounds.low)
        end = bounds.high
        high = sst.rows if end is None or end > sst.last_key else sst.lower_bound(end)
        while low < high:
            if bounds.reverse:
                at = max(low, high - window)
                yield _FileChunk(sst, entry.sqn_base, at, high)
                high = at
            else:
                at = min(high, low + window)
                yield _FileChunk(sst, entry.sqn_base, low, at)
                low = at
            window = min(window * 2, LARGEST_WINDOW)


class Window(Protocol):
    """Live rows in the direction of the scan. ``keys`` costs nothing more; where their versions
    stand is looked up when asked for."""

    keys: list[bytes]

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
    """A window merged from rows [low, high) of several chunks. A row's code is its number among
    the rows of all of them, chunk after chunk."""

    def __init__(
        self, taken: list[tuple[Chunk, int, int]], codes: dict[bytes, int], reverse: bool
    ) -> None:
        self.keys = sorted(codes, reverse=reverse)
        self._taken = taken
        self._codes = codes

    def _starts(self) -> list[int]:
        """The first code of each chunk's rows."""
        return list(accumulate([high - low for _, low, high in self._taken[:-1]], initial=0))

    def found(self) -> Iterator[Found]:
        starts, taken = self._starts(), self._taken
        for code in map(self._codes.__getitem__, self.keys):
            number = bisect_right(starts, code) - 1
            chunk, low, _ = taken[number]
            yield chunk.found(code - starts[number] + low)

    def heads(self) -> list[Head]:
        return self._gathered(lambda chunk, rows: chunk.heads(rows))

    def sqns(self) -> list[int]:
        sqns: list[int] = []
        for chunk, low, high in self._taken:
            sqns += chunk.sqns(low, high)
        return list(map(sqns.__getitem__, map(self._codes.__getitem__, self.keys)))

    def times(self) -> list[int]:
        return self._gathered(lambda chunk, rows: chunk.times(rows))

    def _gathered(self, read: Callable[[Chunk, Sequence[int]], list[T]]) -> list[T]:
        """What ``read`` gives for each key's row, chunk by chunk, in the order of ``keys``."""
        starts, taken = self._starts(), self._taken
        numbers = []
        of_chunk: list[list[int]] = [[] for _ in taken]
        for code in map(self._codes.__getitem__, self.keys):
            number = bisect_right(starts, code) - 1
            numbers.append(number)
            of_chunk[number].append(code - starts[number] + taken[number][1])
        found = [
            iter(read(chunk, rows) if rows else ())
            for (chunk, _, _), rows in zip(taken, of_chunk, strict=True)
        ]
        return [next(found[number]) for number in numbers]

    def keep(self, hits: Iterable[object]) -> None:
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if rows < len(self.keys):
            del self.keys[rows:]


def windows(
    view: View, upper: int, now_ms: int, bound: Bounds, take: Slice, first: int = FIRST_WINDOW
) -> Iterator[Window]:
    """Windows of the live rows of a range, in its direction; ``first`` rows or so at first, of
    each source its share, and later more.

    Raises Corruption. Memory: a few thousand rows a source, whatever the range.
    """
    if bound.high is not None and bound.low >= bound.high:
        return iter(())
    tables = [table for table in (view.recent, *view.frozen) if table.rows]
    ledger = view.ledger
    last = _LAST if bound.high is None else bound.high
    levels: list[Sequence[LedgerEntry]] = []
    weights = [len(table.rows) for table in tables]
    for level, entries in enumerate(ledger.levels):
        touched = ledger.overlapping(level, bound.low, last)
        if not level:
            levels += [(entry,) for entry in touched]
            weights += [entry.rows for entry in touched]
        elif touched:
            levels.append(touched)
            weights.append(len(entries) * touched[0].rows)
    scale = _MORE * first / max(sum(weights), 1)
    shares = [min(int(scale * weight) + _LEAST, first) for weight in weights]
    sources: list[Iterator[Chunk]] = [
        _memory_chunks(view, table, upper, bound, take, share)
        for table, share in zip(tables, shares, strict=False)
    ]
    sources += [
        _file_chunks(entries, bound, share)
        for entries, share in zip(levels, shares[len(tables) :], strict=True)
    ]
    return _merged(sources, now_ms, bound.reverse)


class _Part(NamedTuple):
    """What is still to come of a source's chunk: rows [low, high)."""

    number: int
    """The source's place: a newer one's is lower."""
    chunk: Chunk
    dead: Sequence[int]
    low: int
    high: int


def _merged(sources: list[Iterator[Chunk]], now_ms: int, reverse: bool) -> Iterator[Window]:
    """Windows of all sources, newest source first. A source whose chunk is used up is asked for
    the next one only when the next window is."""
    live: list[_Part] = []
    dry: Iterable[int] = range(len(sources))
    while True:
        for number in dry:
            for chunk in sources[number]:
                live.append(_Part(number, chunk, chunk.dead(now_ms), 0, len(chunk.keys)))
                break
        if not live:
            return
        if len(live) == 1:  # all of it, as it is
            taken, live, dry = live, [], [live[0].number]
        else:
            live.sort(key=itemgetter(0))
            taken, live, dry = _cut(live, reverse)
        window = _window(taken, reverse)
        if window.keys:
            yield window


def _cut(live: list[_Part], reverse: bool) -> tuple[list[_Part], list[_Part], list[int]]:
    """What all sources can give up to a common bound, what is left, and which have none left."""
    if reverse:
        edge = max([part.chunk.keys[part.low] for part in live])
    else:
        edge = min([part.chunk.keys[part.high - 1] for part in live])
    taken: list[_Part] = []
    rest: list[_Part] = []
    dry: list[int] = []
    for part in live:
        number, chunk, dead, low, high = part
        if reverse:
            cut = bisect_left(chunk.keys, edge, low, high)
            mine, left = (cut, high), (low, cut)
        else:
            cut = bisect_right(chunk.keys, edge, low, high)
            mine, left = (low, cut), (cut, high)
        if mine[0] < mine[1]:
            taken.append(_Part(number, chunk, dead, *mine))
        if left[0] < left[1]:
            rest.append(_Part(number, chunk, dead, *left))
        else:
            dry.append(number)
    if not taken:
        raise Corruption("ledger", 0, f"keys out of order at {edge[:80]!r}; verify the store")
    return taken, rest, dry


def _window(taken: list[_Part], reverse: bool) -> Window:
    if len(taken) == 1 and not taken[0].dead:
        _, chunk, _, low, high = taken[0]
        return _OneSource(chunk, low, high, reverse)
    ends = list(accumulate([part.high - part.low for part in taken]))
    # Older sources first, so that newer ones win.
    codes: dict[bytes, int] = {}
    for (_, chunk, dead, low, high), end in zip(reversed(taken), reversed(ends), strict=True):
        keys: Iterable[bytes] = chunk.keys[low:high]
        numbers: Iterable[int] = range(end - high + low, end)
        gone = dead[bisect_left(dead, low) : bisect_left(dead, high)] if dead else ()
        if gone:
            if codes:
                for at in gone:
                    codes.pop(chunk.keys[at], None)
            lives = bytearray(b"\x01") * (high - low)
            for at in gone:
                lives[at - low] = 0
            keys, numbers = compress(keys, lives), compress(numbers, lives)
        codes.update(zip(keys, numbers, strict=True))
    return _ManySources([(chunk, low, high) for _, chunk, _, low, high in taken], codes, reverse)
