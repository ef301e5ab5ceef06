"""Ordered reads over a view: windows of keys merged from memory tables and ledger files.

Each source offers its rows as ascending chunks. A window is what all sources can give up to a
common bound, so within a window every version of a key is at hand, and newer sources win. Work
is done a window at a time with C-speed dict and sort operations; windows start small, for short
scans, and grow, for long ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Protocol, TypeVar

from octavo.actors.memory_table import MemoryTable
from octavo.actors.view import Found, Head, View
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

_NONE: frozenset[int] = frozenset()
FIRST_WINDOW = 32
LARGEST_WINDOW = 4096

Slice = Callable[[MemoryTable, bytes, bytes | None, int, bool], list[bytes]]
"""Keys of a memory table in order: in the Bookie's turn while the table is not frozen."""


class Chunk(Protocol):
    """Consecutive rows of one source: user keys ascending, and what each row is."""

    keys: list[bytes]

    def dead(self, now_ms: int) -> frozenset[int]:
        """Rows that read as absent."""

    def found(self, at: int) -> Found: ...

    def sqns(self) -> list[int]:
        """Sequence numbers of all rows."""
        ...

    def times(self, rows: Sequence[int]) -> list[int]:
        """Write times of some rows, ms UTC, in their order."""
        ...

    def heads(self, rows: Sequence[int]) -> list[Head]:
        """Heads of some live rows, in their order."""
        ...


class _MemoryChunk:
    def __init__(self, view: View, keys: list[bytes], entries: list[int]) -> None:
        self.keys = keys
        self.entries = entries
        self.view = view

    def dead(self, now_ms: int) -> frozenset[int]:
        out = []
        for at, entry in enumerate(self.entries):
            if entry < 0:
                head = self.view.head_of(self.found(at))
                if head is None or (head.expires_at is not None and head.expires_at <= now_ms):
                    out.append(at)
        return frozenset(out)

    def found(self, at: int) -> Found:
        entry = self.entries[at]
        return Found(abs(entry), entry > 0, None, -1)

    def sqns(self) -> list[int]:
        return [abs(entry) for entry in self.entries]

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

    def dead(self, now_ms: int) -> frozenset[int]:
        sst, low = self.sst, self.low
        if not sst.tombstones and not sst.expiring:
            return _NONE
        flags = bytes(sst.flags[low : low + len(self.keys)])
        if not any(flags):
            return _NONE
        out = []
        for at, flag in enumerate(flags):
            if flag and (flag & TOMBSTONE or (flag & EXPIRES and sst.expiry(low + at) <= now_ms)):
                out.append(at)
        return frozenset(out)

    def found(self, at: int) -> Found:
        row = self.low + at
        flags = self.sst.flags[row]
        return Found(
            self.sst.sqns[row] + self.base, not flags & (TOMBSTONE | EXPIRES), self.sst, row
        )

    def sqns(self) -> list[int]:
        base = self.base
        found = self.sst.sqns[self.low : self.low + len(self.keys)].tolist()
        return [sqn + base for sqn in found] if base else found

    def times(self, rows: Sequence[int]) -> list[int]:
        times = self.sst.times(self.low, self.low + len(self.keys)).tolist()
        return [times[at] for at in rows]

    def heads(self, rows: Sequence[int]) -> list[Head]:
        sst, low, high = self.sst, self.low, self.low + len(self.keys)
        times = self.times(rows)
        sqns, sizes = self.sqns(), sst.sizes[low:high].tolist()
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
        entries = [table.entry(key, upper) for key in keys]
        pairs = [(k[cut:], e) for k, e in zip(keys, entries, strict=True) if e is not None]
        if pairs:
            yield _MemoryChunk(view, [k for k, _ in pairs], [e for _, e in pairs])
        if len(keys) < window:
            return
        window = min(window * 2, LARGEST_WINDOW)


def _file_chunks(entries: Sequence[LedgerEntry], bounds: Bounds, window: int) -> Iterator[Chunk]:
    for entry in reversed(entries) if bounds.reverse else entries:
        sst: Sst = entry.file.reader()
        low = sst.lower_bound(bounds.low)
        high = sst.rows if bounds.high is None else sst.lower_bound(bounds.high)
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
        sqns, order = self._chunk.sqns(), self._order
        if isinstance(order, range) and order.step > 0:
            return sqns[order.start : order.stop]
        return [sqns[at] for at in order]

    def times(self) -> list[int]:
        return self._chunk.times(self._order)

    def keep(self, hits: Iterable[object]) -> None:
        self._order = list(compress(self._order, hits := list(hits)))
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if rows < len(self.keys):
            self.keys, self._order = self.keys[:rows], self._order[:rows]


class _ManySources:
    """A window merged from several chunks. A code names a chunk and a row in one int."""

    def __init__(self, chunks: list[Chunk], codes: dict[bytes, int], reverse: bool) -> None:
        self.keys = sorted(codes, reverse=reverse)
        self._chunks = chunks
        self._codes = codes

    def found(self) -> Iterator[Found]:
        for code in map(self._codes.__getitem__, self.keys):
            yield self._chunks[code >> 32].found(code & 0xFFFFFFFF)

    def heads(self) -> list[Head]:
        return self._gathered(lambda chunk, rows: chunk.heads(rows))

    def sqns(self) -> list[int]:
        of_chunk = [chunk.sqns() for chunk in self._chunks]
        codes = map(self._codes.__getitem__, self.keys)
        return [of_chunk[code >> 32][code & 0xFFFFFFFF] for code in codes]

    def times(self) -> list[int]:
        return self._gathered(lambda chunk, rows: chunk.times(rows))

    def _gathered(self, read: Callable[[Chunk, Sequence[int]], list[T]]) -> list[T]:
        """What ``read`` gives for each key's row, chunk by chunk, in the order of ``keys``."""
        codes = [self._codes[key] for key in self.keys]
        of_chunk: list[list[int]] = [[] for _ in self._chunks]
        for code in codes:
            of_chunk[code >> 32].append(code & 0xFFFFFFFF)
        found = [
            iter(read(chunk, rows) if rows else ())
            for chunk, rows in zip(self._chunks, of_chunk, strict=True)
        ]
        return [next(found[code >> 32]) for code in codes]

    def keep(self, hits: Iterable[object]) -> None:
        self.keys = list(compress(self.keys, hits))

    def cut(self, rows: int) -> None:
        if rows < len(self.keys):
            del self.keys[rows:]


def windows(
    view: View, upper: int, now_ms: int, bound: Bounds, take: Slice, first: int = FIRST_WINDOW
) -> Iterator[Window]:
    """Windows of the live rows of a range, in its direction; of each source ``first`` rows at
    first, later more.

    Raises Corruption. Memory: a few thousand rows a source, whatever the range.
    """
    if bound.high is not None and bound.low >= bound.high:
        return
    sources: list[Iterator[Chunk]] = [
        _memory_chunks(view, table, upper, bound, take, first)
        for table in (view.recent, *view.frozen)
        if table.rows
    ]
    last = b"\xff" * (ledger_key.MAX_KEY_BYTES + 8) if bound.high is None else bound.high
    for level in range(len(view.ledger.levels)):
        touched = view.ledger.overlapping(level, bound.low, last)
        if level == 0:
            sources += [_file_chunks((entry,), bound, first) for entry in touched]
        elif touched:
            sources.append(_file_chunks(touched, bound, first))
    yield from _merged(sources, now_ms, bound.reverse)


_Part = tuple[Iterator["Chunk"], "Chunk", frozenset[int], int, int]
"""A source, its chunk, the chunk's dead rows, and the rows [low, high) that are still to come."""


def _merged(sources: list[Iterator[Chunk]], now_ms: int, reverse: bool) -> Iterator[Window]:
    """Windows of all sources, newest source first. A source whose chunk is used up is asked for
    the next one only when the next window is."""
    live: list[_Part] = []
    dry = list(enumerate(sources))
    order = {id(source): number for number, source in dry}
    while True:
        for _, source in dry:
            chunk = next(source, None)
            if chunk is not None:
                live.append((source, chunk, chunk.dead(now_ms), 0, len(chunk.keys)))
        if not live:
            return
        live.sort(key=lambda part: order[id(part[0])])
        if reverse:
            edge = max(chunk.keys[low] for _, chunk, _, low, _ in live)
        else:
            edge = min(chunk.keys[high - 1] for _, chunk, _, _, high in live)
        taken: list[tuple[Chunk, frozenset[int], int, int]] = []
        rest: list[_Part] = []
        dry = []
        for source, chunk, dead, low, high in live:
            if reverse:
                cut = bisect_left(chunk.keys, edge, low, high)
                part, low, high = (cut, high), low, cut
            else:
                cut = bisect_right(chunk.keys, edge, low, high)
                part, low = (low, cut), cut
            if part[0] < part[1]:
                taken.append((chunk, dead, *part))
            if low < high:
                rest.append((source, chunk, dead, low, high))
            else:
                dry.append((order[id(source)], source))
        if not taken:
            raise Corruption("ledger", 0, f"keys out of order at {edge[:80]!r}; verify the store")
        live = rest
        window = _window(taken, reverse)
        if window.keys:
            yield window


def _window(taken: list[tuple[Chunk, frozenset[int], int, int]], reverse: bool) -> Window:
    if len(taken) == 1 and not taken[0][1]:
        chunk, _, low, high = taken[0]
        return _OneSource(chunk, low, high, reverse)
    # Older sources first, so that newer ones win.
    codes: dict[bytes, int] = {}
    for number in range(len(taken) - 1, -1, -1):
        chunk, _, low, high = taken[number]
        base = number << 32
        codes.update(zip(chunk.keys[low:high], range(base + low, base + high), strict=True))
    for number, (chunk, dead, low, high) in enumerate(taken):
        for at in dead:
            if low <= at < high and codes.get(chunk.keys[at]) == (number << 32) + at:
                del codes[chunk.keys[at]]
    return _ManySources([chunk for chunk, _, _, _ in taken], codes, reverse)
