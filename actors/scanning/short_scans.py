"""The first windows of a scan of keys or items, which are all that a short scan needs.

Most scans are short. So each of these windows is found in one go, without a source of chunks for
each file: the ledger's rows from what is kept of them (kept_scans.py), or else merged from its
files and then kept; with them, what memory has of that part of the range. A scan that goes on ends
up with long windows (scan.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from octavo.actors.memory_table import Slice
from octavo.actors.scanning.empty_ranges import EmptyRanges
from octavo.actors.scanning.kept_scans import Stretches
from octavo.actors.scanning.ledger_order import Between
from octavo.actors.scanning.scan import LEAST, MORE, windows
from octavo.actors.scanning.scan_sources import (
    CHUNK_BYTES,
    FIRST_WINDOW,
    LARGEST_WINDOW,
    dead_entries,
    dead_rows,
    entries_of,
)
from octavo.actors.scanning.scan_windows import Brief, ManySources, Rows, Window, merged
from octavo.actors.view import View
from octavo.files.errors import Corruption
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.row_ranges import within
from octavo.files.ledger.sst import Sst
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest

_LONG = 512
"""From so many rows on, a scan goes on in windows that are merged from chunks."""
_LONGEST_KEPT = 256
_SHORT = 32
"""Kept rows, if fewer than these, are joined with those kept behind them."""
BEHIND_A_RANGE = 16
"""Rows of memory first looked at behind a noted empty range, if it is not known how many are
wanted: a caller that takes from an end wants one, and behind a key that was put into a range and
taken, the range goes on."""

Note = Callable[[bytes, bytes, list[bytes], int, int], None]
"""Called where a scan found nothing that lives: see Bookie.stepped_over."""


def short_windows(
    view: View,
    upper: int,
    now_ms: int,
    bound: Bounds,
    take: Slice,
    first: int = FIRST_WINDOW,
    kept: Stretches | None = None,
    empty: EmptyRanges | None = None,
    note: Note | None = None,
    ahead: int = 1,
) -> Iterator[Window]:
    """Yield windows as scan.windows does, of a range of one bucket, with keys and sqns only.
    ``kept``: what is kept of the view's ledger. ``empty``: ranges to step over; ``note`` is called
    with further ones found before the first key that is given. ``ahead``: how many rows the windows
    behind the short ones have for each row that was looked at. Raises Corruption."""
    prefix, low, high, reverse = bound
    memory = Memory(view, upper, now_ms, take)
    few = BEHIND_A_RANGE if first == FIRST_WINDOW else first
    passed = given = 0
    stepped = behind = False
    while high is not None and low < high and (passed < _LONG // ahead or not given):
        if empty is not None and empty.lows:
            at = high if reverse else low
            low, high = empty.left(low, high, upper, now_ms, reverse)
            if at != (high if reverse else low):
                stepped = behind = True
                continue
        wanted = min(max(passed, first), LARGEST_WINDOW)
        bound = Bounds(prefix, low, high, reverse)
        found, lasting, again, rows = in_ledger(view.ledger, bound, wanted, now_ms, kept)
        passed += rows
        if memory.tables:
            found, full = memory.added(found, prefix, few if behind else wanted, reverse)
            if full:
                passed += wanted
        behind = False
        keys, sqns, begin, end = found
        if end <= begin:
            raise Corruption("ledger", 0, f"keys out of order at {begin[:80]!r}; verify the store")
        if note is not None and not given and (stepped or not keys):
            # Not up to the range's end: there, a put behind all other keys would take it back.
            ends = begin <= low if reverse else end >= high
            moment = 0 if lasting and not memory.expiring() else now_ms
            stepped = memory.tell(note, found, prefix, reverse, moment, ends=ends) or stepped
        if reverse:
            high = begin
            keys.reverse()
            sqns.reverse()
        else:
            low = end
        if keys:
            given += len(keys)
            yield Brief(keys, sqns, again)
    if high is None or low < high:
        bound = Bounds(prefix, low, high, reverse)
        rows = max(first, passed) * ahead
        order = None if kept is None else kept.order
        for window in windows(view, upper, now_ms, bound, take, rows, ahead, order=order):
            if kept is not None and order is None and isinstance(window, ManySources):
                kept.merged(window.merged)
            yield window


# ------------------------------------------------------------ the ledger


def in_ledger(
    ledger: LedgerManifest, bound: Bounds, wanted: int, now_ms: int, kept: Stretches | None
) -> tuple[Between, bool, bool, int]:
    """Find the rows of a ledger at a range's beginning, or end if it is reversed. Returns some
    ``wanted`` rows; whether they live at any moment; whether they were found for two scans before;
    how many rows they count as."""
    prefix, low, high, reverse = bound
    if high is None:
        raise ValueError("the range of a bucket has an end")
    if kept is not None:
        if (order := kept.order) is not None:
            news, find = order.news, order.below if reverse else order.above
            found = find(prefix, low, high, wanted, now_ms)
            return found, order.lasting, order.news == news, wanted
        news = kept.news
        known = (_known_below if reverse else _known)(kept, prefix, low, high)
        if known is not None:
            return known, True, kept.news == news, len(known[0])
    found, lasting = _in_files(ledger, bound, wanted, now_ms, kept)
    return found, lasting, False, wanted


def _known(kept: Stretches, prefix: bytes, low: bytes, high: bytes) -> Between | None:
    """The stretch kept from ``low`` on, joined with following ones if it has few rows."""
    stretch = kept.at(low, prefix)
    if stretch is None:
        return None
    keys, sqns, end = stretch
    while len(keys) < _SHORT and end < high and (more := kept.at(end, prefix)) is not None:
        keys += more.keys
        sqns += more.sqns
        end = more.end
    if end > high:
        end = high
        if high.startswith(prefix):
            cut = bisect_left(keys, high[len(prefix) :])
            del keys[cut:], sqns[cut:]
    return keys, sqns, low, end


def _known_below(kept: Stretches, prefix: bytes, low: bytes, high: bytes) -> Between | None:
    """As ``_known``, down from ``high``."""
    stretch = kept.below(high, prefix)
    if stretch is None:
        return None
    begin, keys, sqns = stretch
    while len(keys) < _SHORT and begin > low and (more := kept.below(begin, prefix)) is not None:
        begin = more[0]
        keys = more[1] + keys
        sqns = more[2] + sqns
    if begin < low:
        begin = low
        cut = bisect_left(keys, low[len(prefix) :])
        del keys[:cut], sqns[:cut]
    return keys, sqns, begin, high


def _in_files(
    ledger: LedgerManifest, bound: Bounds, wanted: int, now_ms: int, kept: Stretches | None
) -> tuple[Between, bool]:
    """Find some ``wanted`` rows of the files at a range's beginning, or end; and whether they live
    at any moment."""
    prefix, low, high, reverse = bound
    if high is None:
        raise ValueError("the range of a bucket has an end")
    runs = _runs(ledger, low, high, reverse)
    if not runs:
        return ([], [], low, high), True
    scale = MORE * wanted / sum([rows for _, _, rows in runs])
    parts: list[Rows] = []
    edge: bytes | None = None
    lasting = True
    for entry, more, rows in runs:
        share = int(scale * rows) + LEAST
        sst: Sst = entry.file.sst or entry.file.reader()
        at, end, left = _rows_of(sst, low, high, share if share < wanted else wanted, reverse)
        if at == end:
            continue
        ends = sst.key_ends
        if ends[end] - ends[at] > CHUNK_BYTES:
            at, end = within(sst, at, end, CHUNK_BYTES, reverse=reverse, metas=False)
            left = True
        keys = sst.user_keys(at, end)
        sqns = sst.sqns[at:end].tolist()
        if base := entry.sqn_base:
            sqns = [sqn + base for sqn in sqns]
        if left or more:
            last = keys[0 if reverse else -1]
            if edge is None or (last > edge if reverse else last < edge):
                edge = last
        gone: Sequence[int] = ()
        if sst.tombstones or sst.expiring:
            gone = dead_rows(sst, at, end, now_ms)
            lasting = lasting and not sst.expiring
        parts.append((keys, sqns, gone))
    begin, behind = low, high
    if edge is not None:
        parts = [_cut(part, edge, reverse) for part in parts]
        if reverse:
            begin = prefix + edge
        else:
            behind = prefix + edge + b"\x00"
    keys, sqns = merged(parts) if parts else ([], [])
    if parts and kept is not None:
        kept.searched(len(parts))
    if lasting and kept is not None and len(keys) <= _LONGEST_KEPT:
        kept.keep(begin, keys, sqns, behind)
        return (keys[:], sqns[:], begin, behind), True
    return (keys, sqns, begin, behind), lasting


def _runs(
    ledger: LedgerManifest, low: bytes, high: bytes, reverse: bool
) -> list[tuple[LedgerEntry, bool, int]]:
    """Each level's first file in a range, and every file of level zero there, newest first; whether
    others of its level follow, and about how many rows all of them have."""
    if not ledger.levels:
        return []
    runs = [
        (entry, False, entry.rows)
        for entry in ledger.levels[0]
        if entry.first_key < high and entry.last_key >= low
    ]
    for entries, firsts in zip(ledger.levels[1:], ledger.firsts[1:], strict=True):
        if reverse:
            at = bisect_left(firsts, high) - 1
            more = at > 0 and entries[at - 1].last_key >= low
            there = at >= 0 and entries[at].last_key >= low
        else:
            at = bisect_right(firsts, low) - 1
            if at < 0 or entries[at].last_key < low:
                at += 1
            more = at + 1 < len(entries) and firsts[at + 1] < high
            there = at < len(entries) and firsts[at] < high
        if there:
            runs.append((entries[at], more, len(entries) * entries[at].rows))
    return runs


def _rows_of(sst: Sst, low: bytes, high: bytes, share: int, reverse: bool) -> tuple[int, int, bool]:
    """The file's rows [first, end) at the beginning, or end, of a range, at most ``share``; and
    whether more may follow."""
    if reverse:
        end = sst.rows if high > sst.last_key else sst.lower_bound(high)
        at = max(end - share, 0)
        if low > sst.first_key and at < end and sst.ledger_key(at) < low:
            return min(sst.lower_bound(low), end), end, False
        return at, end, at > 0
    at = sst.lower_bound(low)
    end = min(at + share, sst.rows)
    if high <= sst.last_key and at < end and sst.ledger_key(end - 1) >= high:
        return at, max(sst.lower_bound(high), at), False
    return at, end, end < sst.rows


def _cut(part: Rows, edge: bytes, reverse: bool) -> Rows:
    """The rows of a part up to the edge, inclusive."""
    keys, sqns, gone = part
    if reverse:
        cut = bisect_left(keys, edge)
        return keys[cut:], sqns[cut:], [at - cut for at in gone if at >= cut] if gone else ()
    if keys[-1] > edge:
        cut = bisect_right(keys, edge)
        del keys[cut:], sqns[cut:]
        if gone:
            gone = [at for at in gone if at < cut]
    return keys, sqns, gone


# ------------------------------------------------------------ memory


class Memory:
    """The memory tables of a view, newest first."""

    def __init__(self, view: View, upper: int, now_ms: int, take: Slice) -> None:
        self._recent = view.recent
        self._rows = len(view.recent.rows)
        self.tables = [table for table in (view.recent, *view.frozen) if table.rows]
        self._names: list[list[bytes]] = []
        self._upper = upper
        self._now_ms = now_ms
        self._take = take

    def added(
        self, found: Between, prefix: bytes, most: int, reverse: bool
    ) -> tuple[Between, bool]:
        """Merge what was found in the ledger with what memory has there. If a table has ``most``
        rows or more there (then also True), the result reaches no farther than those."""
        keys, sqns, begin, end = found
        full = False
        each: list[list[bytes]] = []
        if self.tables[0] is self._recent:  # else (it was empty then) all its rows are new
            self._rows = len(self._recent.rows)
        self._names = each
        for table in self.tables:
            names = self._take(table, begin, end, most, reverse)
            each.append(names)
            if len(names) == most:
                full = True
                if reverse:
                    begin = names[0]
                else:
                    end = names[-1] + b"\x00"
        if not any(each):
            return found, False
        skip = len(prefix)
        if full and keys:
            low = bisect_left(keys, begin[skip:]) if reverse else 0
            high = len(keys) if reverse else bisect_left(keys, end[skip:])
            keys, sqns = keys[low:high], sqns[low:high]
        if full:
            each[:] = [names[bisect_left(names, begin) : bisect_left(names, end)] for names in each]
        parts: list[Rows] = []
        for table, names in zip(self.tables, each, strict=True):
            if names:
                names, entries = entries_of(table, names, self._upper)
            if names:
                gone: Sequence[int] = ()
                if min(entries) < 0:
                    gone = dead_entries(table, entries, self._now_ms)
                    entries = list(map(abs, entries))
                parts.append(([name[skip:] for name in names], entries, gone))
        if keys or not parts:
            parts.append((keys, sqns, ()))
        keys, sqns = merged(parts)
        return (keys, sqns, begin, end), full

    def expiring(self) -> bool:
        """Whether anything in memory expires."""
        return any(table.expiring for table in self.tables)

    def tell(
        self, note: Note, found: Between, prefix: bytes, reverse: bool, moment: int, *, ends: bool
    ) -> bool:
        """Call ``note`` with the part of what ``added`` found last before its first live key.
        Returns whether there is such a part. ``ends``: what was found goes to the range's end."""
        keys, _, begin, end = found
        if keys:
            if reverse:
                begin = prefix + keys[-1] + b"\x00"
            else:
                end = prefix + keys[0]
        elif ends:
            names = [names[0 if reverse else -1] for names in self._names if names]
            if not names:
                return False
            if reverse:
                begin = min(names)
            else:
                end = max(names) + b"\x00"
        if begin >= end:
            return False
        here: list[bytes] = []
        if self._names and self.tables[0] is self._recent:
            here = self._names[0]
            here = here[bisect_left(here, begin) : bisect_left(here, end)]
        note(begin, end, here, self._rows, moment)
        return True
