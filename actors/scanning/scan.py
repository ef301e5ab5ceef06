"""Ordered reads over a view: windows of keys merged from memory tables and ledger files.

Each source offers its rows as ascending chunks. A window is what all sources can give up to a
common bound: so within it every version of a key is at hand, and newer sources win. A window is
made by dict and sort operations at C speed. Windows start small, for short scans, and grow, for
long ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from octavo.actors.memory_table import Slice
from octavo.actors.scanning.ledger_order import LedgerOrder
from octavo.actors.scanning.scan_sources import (
    FIRST_WINDOW,
    LARGEST_WINDOW,
    Chunk,
    file_chunks,
    memory_chunks,
)
from octavo.actors.scanning.scan_windows import Part, Window, window_of
from octavo.actors.view import View
from octavo.files.errors import Corruption
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest

MORE, LEAST = 1.25, 4
"""Each source gives so many times its share of the first window, and so many rows more, since the
source that gives least bounds the window."""
_LITTLE = 4
"""A source with less than one in so many rows of its chunk left is asked for the next chunk."""


def windows(
    view: View,
    upper: int,
    now_ms: int,
    bound: Bounds,
    take: Slice,
    first: int = FIRST_WINDOW,
    more: int = 1,
    *,
    heads: bool = False,
    order: LedgerOrder | None = None,
) -> Iterator[Window]:
    """Yield windows of the live rows of a range, in its direction. The first has some ``first``
    rows, a share from each source; the next one has ``more`` times as many, later ones twice as
    many each time. ``heads``: whether those will be asked for. ``order``: the order of all rows of
    the view's ledger, if there is one; windows, of one bucket, then have keys and sqns only.

    Raises Corruption. Memory: a few thousand rows a source, or some MiB, whatever the range.
    """
    if bound.high is not None and bound.low >= bound.high:
        return iter(())
    tables = [table for table in (view.recent, *view.frozen) if table.rows]
    in_memory = sum([len(table.rows) for table in tables])
    runs = _runs(view.ledger, bound) if order is None else []
    in_files = sum([rows for _, rows in runs]) if order is None else order.rows(bound.prefix)
    first = min(first, LARGEST_WINDOW)
    scale = MORE * first / max(in_memory + in_files, 1)

    def share(rows: int) -> int:
        return min(int(scale * rows) + LEAST, first)

    sources = [memory_chunks(view, t, upper, bound, take, share(len(t.rows)), more) for t in tables]
    sources += [file_chunks(run, bound, share(rows), more, heads=heads) for run, rows in runs]
    if order is not None:
        sources.append(order.chunks(bound, share(in_files), more))
    return merged_windows(sources, now_ms, reverse=bound.reverse)


def _runs(ledger: LedgerManifest, bound: Bounds) -> list[tuple[Sequence[LedgerEntry], int]]:
    """The runs of ledger files that do not overlap, as far as they touch a range, newest first:
    each a file of level zero or those of a level. With each, about how many rows that has."""
    last = ledger_key.ABOVE_ALL if bound.high is None else bound.high
    runs: list[tuple[Sequence[LedgerEntry], int]] = []
    for level, entries in enumerate(ledger.levels):
        touched = ledger.overlapping(level, bound.low, last)
        if not level:
            runs += [((entry,), entry.rows) for entry in touched]
        elif touched:
            runs.append((touched, len(entries) * touched[0].rows))
    return runs


def merged_windows(
    sources: list[Iterator[Chunk]], now_ms: int, *, reverse: bool = False
) -> Iterator[Window]:
    """Yield windows merged from all sources, which are newest first. A source with little left of
    its chunk is asked for the next one, but only when the next window is asked for."""
    live: list[Part] = []
    asked: Iterable[int] = range(len(sources))
    going: set[int] = set(asked)
    """Sources that may have more than their rows in ``live``."""
    while True:
        for number in asked:
            for chunk in sources[number]:
                live.append((number, chunk, chunk.dead(now_ms), 0, len(chunk.keys)))
                break
            else:
                going.discard(number)
        if not live:
            return
        if len(live) == 1:  # a single source: its whole chunk is the window
            taken, live, asked = live, [], [live[0][0]]
        else:
            live.sort(key=_place)
            taken, live = _cut(live, going, reverse)
            asked = _nearly_used_up(going, live)
        window = window_of(taken, reverse)
        if window.keys:
            yield window


_place = itemgetter(0)


def _cut(live: list[Part], going: set[int], reverse: bool) -> tuple[list[Part], list[Part]]:
    """Split into what all sources can give up to a common bound, and what is left."""
    if reverse:
        ends = {number: chunk.keys[low] for number, chunk, _, low, _ in live}
        edge = max([ends[number] for number in going], default=min(ends.values()))
    else:
        ends = {number: chunk.keys[high - 1] for number, chunk, _, _, high in live}
        edge = min([ends[number] for number in going], default=max(ends.values()))
    taken: list[Part] = []
    rest: list[Part] = []
    for number, chunk, dead, low, high in live:
        if reverse:
            cut = bisect_left(chunk.keys, edge, low, high)
            if cut < high:
                taken.append((number, chunk, dead, cut, high))
            if low < cut:
                rest.append((number, chunk, dead, low, cut))
        else:
            cut = bisect_right(chunk.keys, edge, low, high)
            if low < cut:
                taken.append((number, chunk, dead, low, cut))
            if cut < high:
                rest.append((number, chunk, dead, cut, high))
    if not taken:
        raise Corruption("ledger", 0, f"keys out of order at {edge[:80]!r}; verify the store")
    return taken, rest


def _nearly_used_up(going: set[int], left: list[Part]) -> list[int]:
    """The sources with so little left that it would make for a small window."""
    enough = {
        number for number, chunk, _, low, high in left if (high - low) * _LITTLE > len(chunk.keys)
    }
    return [number for number in going if number not in enough]
