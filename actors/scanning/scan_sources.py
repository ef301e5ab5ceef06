"""The sources that a scan merges: rows of memory tables and ledger files, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NoReturn, Protocol

from octavo.actors.memory_table import MemoryTable, Slice
from octavo.actors.view import Found, View
from octavo.files.journal import short_value
from octavo.files.journal.short_head import head_of
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.head import Head
from octavo.files.ledger.row_ranges import within
from octavo.files.ledger.rows import TOMBSTONE
from octavo.files.ledger.sst import Sst
from octavo.manifest.ledger_entry import LedgerEntry

FIRST_WINDOW = 96
LARGEST_WINDOW = 4096
CHUNK_BYTES = 2 << 20
"""Bytes of keys, and of metadata if that is read, that a file gives at a time, unless a single row
has more."""


class Chunk(Protocol):
    """Consecutive rows of one source: their user keys, ascending, and what is known of each."""

    keys: list[bytes]

    def dead(self, now_ms: int) -> Sequence[int]:
        """Rows that read as absent, ascending."""

    def sqns(self, low: int, high: int) -> list[int]:
        """Sequence numbers of rows [low, high)."""
        ...

    def times(self, rows: Sequence[int]) -> list[int]:
        """Write times of some rows, ms UTC, in their order."""
        ...

    def heads(self, rows: Sequence[int]) -> list[Head]:
        """Heads of some live rows, in their order."""
        ...


def asked_for_more() -> NoReturn:
    """Raise the error of chunks and windows that only have keys and sqns."""
    raise NotImplementedError("a scan of keys and sqns was asked for more")


def entries_of(table: MemoryTable, keys: list[bytes], upper: int) -> tuple[list[bytes], list[int]]:
    """Those of some keys of a table that were there as of ``upper``, with their entries then."""
    entries = list(map(table.rows.__getitem__, keys))
    if max(entries) <= upper and min(entries) >= -upper:
        return keys, entries
    # Some were written since: an older version may have been set aside, or there was none.
    pairs = [(key, table.entry(key, upper)) for key in keys]
    return (
        [key for key, entry in pairs if entry is not None],
        [entry for _, entry in pairs if entry is not None],
    )


def dead_entries(table: MemoryTable, entries: list[int], now_ms: int) -> list[int]:
    """Which of some entries of a table read as absent, ascending. At least one is negative."""
    rows = [at for at, entry in enumerate(entries) if entry < 0]
    expiring = table.expiring
    if not expiring:
        return rows  # deletes, all of them
    return [at for at in rows if expiring.get(-entries[at], 0) <= now_ms]


def dead_rows(sst: Sst, low: int, high: int, now_ms: int) -> Sequence[int]:
    """Which of rows [low, high) of a file read as absent, ascending, counted from ``low`` on."""
    if not sst.tombstones and not sst.expiring:
        return ()
    flags = bytes(sst.flags[low:high])
    if not any(flags):
        return ()
    if not sst.expiring:
        return [at for at, flag in enumerate(flags) if flag]
    moments = sst.expiries(low, high)
    if not sst.tombstones and min(moments) > now_ms:
        return ()
    return [
        at
        for at, (flag, moment) in enumerate(zip(flags, moments, strict=True))
        if flag and (flag & TOMBSTONE or moment <= now_ms)
    ]


def head_in_memory(view: View, entry: int, bucket_and_key: bytes, plain: bytes) -> Head | None:
    """The head of the live version for which a memory table has this entry, expired or not.
    ``plain``: see short_value.plain_fields."""
    sqn = abs(entry)
    file = view.journal.file_of(sqn)
    written, place = file.raw(sqn - file.base)
    found = head_of(written, file.seed ^ place, bucket_and_key, plain, now_ms=0)
    if found is None:
        return view.head_of(Found(sqn, entry > 0, None, -1))
    return Head(sqn, *found)


class _MemoryChunk:
    def __init__(
        self,
        view: View,
        table: MemoryTable,
        prefix: bytes,
        keys: list[bytes],
        entries: list[int],
    ) -> None:
        self.prefix = prefix
        self.keys = keys
        self.entries = entries
        self.view = view
        self.table = table

    def dead(self, now_ms: int) -> Sequence[int]:
        entries = self.entries
        return dead_entries(self.table, entries, now_ms) if min(entries) < 0 else ()

    def sqns(self, low: int, high: int) -> list[int]:
        return list(map(abs, self.entries[low:high]))

    def times(self, rows: Sequence[int]) -> list[int]:
        file_of = self.view.journal.file_of
        sqns = (abs(self.entries[at]) for at in rows)
        return [file_of(sqn).header(sqn).time_ms for sqn in sqns]

    def heads(self, rows: Sequence[int]) -> list[Head]:
        view, entries, keys = self.view, self.entries, self.keys
        tag, bucket, _ = ledger_key.split(self.prefix)
        plain = short_value.plain_fields(tag, bucket)
        heads = [head_in_memory(view, entries[at], bucket + keys[at], plain) for at in rows]
        return [head for head in heads if head is not None]


class _FileChunk:
    def __init__(self, sst: Sst, base: int, low: int, high: int) -> None:
        self.keys = sst.user_keys(low, high)
        self.sst = sst
        self.base = base
        self.low = low

    def dead(self, now_ms: int) -> Sequence[int]:
        return dead_rows(self.sst, self.low, self.low + len(self.keys), now_ms)

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


def memory_chunks(
    view: View,
    table: MemoryTable,
    upper: int,
    bounds: Bounds,
    take: Slice,
    window: int,
    more: int,
) -> Iterator[Chunk]:
    """Yield the rows of a table: ``window`` at first, ``more`` times as many in the next chunk."""
    low: bytes = bounds.low
    high = bounds.high
    cut = len(bounds.prefix)
    following = min(window * more, LARGEST_WINDOW)
    while True:
        keys = take(table, low, high, window, bounds.reverse)
        if not keys:
            return
        if bounds.reverse:
            high = keys[0]
        else:
            low = keys[-1] + b"\x00"
        rows = len(keys)
        keys, entries = entries_of(table, keys, upper)
        if keys:
            yield _MemoryChunk(view, table, bounds.prefix, [key[cut:] for key in keys], entries)
        if rows < window:
            return
        window, following = following, min(following * 2, LARGEST_WINDOW)


def file_chunks(
    entries: Sequence[LedgerEntry],
    bounds: Bounds,
    window: int,
    more: int,
    *,
    heads: bool,
) -> Iterator[Chunk]:
    """Yield the rows of files that do not overlap: ``window`` at first, ``more`` times as many in
    the next chunk (once as many if many scans end in the second window, too); fewer if they exceed
    ``CHUNK_BYTES``, with metadata if ``heads`` will be asked for."""
    following = min(window * more, LARGEST_WINDOW)
    for entry in reversed(entries) if bounds.reverse else entries:
        sst: Sst = entry.file.sst or entry.file.reader()
        low = sst.lower_bound(bounds.low)
        end = bounds.high
        high = sst.rows if end is None or end > sst.last_key else sst.lower_bound(end)
        while low < high:
            if bounds.reverse:
                at = max(low, high - window)
                at, _ = within(sst, at, high, CHUNK_BYTES, reverse=True, metas=heads)
                yield _FileChunk(sst, entry.sqn_base, at, high)
                high = at
            else:
                at = min(high, low + window)
                _, at = within(sst, low, at, CHUNK_BYTES, reverse=False, metas=heads)
                yield _FileChunk(sst, entry.sqn_base, low, at)
                low = at
            window, following = following, min(following * 2, LARGEST_WINDOW)
