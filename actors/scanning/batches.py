"""Live rows of a view as columns, for merkle trees, folds by sqn and Arrow streams.

As in scan.py, windows of all sources are merged up to a common bound. Here a window has tens of
thousands of rows and stays in arrays: no Python object is made for a row of a ledger file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import compress

from octavo.actors.memory_table import MemoryTable, Slice
from octavo.actors.reading.kept_rows import ColumnRows
from octavo.actors.reading.recent_headers import headers_by_file
from octavo.actors.scanning.scan_sources import LARGEST_WINDOW, entries_of
from octavo.actors.view import View, found_in
from octavo.files.journal.record import DELETE
from octavo.files.kernels.arrays import U32, np
from octavo.files.kernels.byte_strings import Ints, column_of, lengths_of
from octavo.files.kernels.columns import ByteColumn, Strings
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.chosen_rows import Chosen
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.head import Head
from octavo.files.ledger.live_batches import (
    WINDOW_ROWS,
    Batch,
    FileRows,
    Source,
    heads_of,
    keys_of,
    live_batches,
)
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns

_MANY = 32
"""From so many rows on, headers are read by array kernels."""


class _MemoryRows:
    """The rows of a memory table, given in the direction of the scan."""

    def __init__(
        self,
        view: View,
        table: MemoryTable,
        upper: int,
        bound: Bounds,
        take: Slice,
        chosen: Chosen | None,
        *,
        heads: bool,
        hashes: bool,
    ) -> None:
        self._view = view
        self._table = table
        self._upper = upper
        self._bound = bound
        self._slice = take
        self._chosen = chosen
        self._heads = heads
        self._hashes = hashes or chosen is not None
        self._keys: list[bytes] = []
        self.more = True

    def edge(self) -> bytes | None:
        """As of a Source."""
        low, high, reverse = self._bound.low, self._bound.high, self._bound.reverse
        if not self._keys:
            if self.more:
                self._keys = self._slice(self._table, low, high, LARGEST_WINDOW, reverse)
                # Fewer: the table is used up, since what is written meanwhile is not in this view.
                self.more = len(self._keys) == LARGEST_WINDOW
            if not self._keys:
                return None
            if reverse:
                self._bound = self._bound._replace(high=self._keys[0])
            else:
                self._bound = self._bound._replace(low=self._keys[-1] + b"\x00")
        return self._keys[0 if reverse else -1]

    def take(self, edge: bytes) -> Columns | None:
        """As of a Source."""
        keys = self._keys
        if self._bound.reverse:
            cut = bisect_left(keys, edge)
            taken, self._keys = keys[cut:], keys[:cut]
        else:
            cut = bisect_right(keys, edge)
            taken, self._keys = keys[:cut], keys[cut:]
        entries: list[int] = []
        if taken:
            taken, entries = entries_of(self._table, taken, self._upper)
        if not taken:
            return None
        column = column_of(taken)
        hashes = hash_column(column) if self._hashes else np.zeros(len(taken), np.uint32)
        if self._chosen is not None:
            hits = self._chosen.keys(taken, hashes)
            taken, entries = list(compress(taken, hits)), list(compress(entries, hits))
            column, hashes = column_of(taken), hashes[hits]
        return self._columns(taken, entries, column, hashes) if taken else None

    def _columns(
        self, keys: list[bytes], entries: list[int], column: ByteColumn, hashes: U32
    ) -> Columns:
        count = len(keys)
        numbers = np.array(entries, dtype=np.int64)
        flags = np.zeros(count, np.uint8)
        sizes, times, expiries = (np.zeros(count, np.uint64) for _ in range(3))
        metas: list[bytes] = [b""] * count
        told = np.ones(count, np.bool_) if self._heads else numbers < 0
        if self._heads and count >= _MANY:
            for rows, found in headers_by_file(self._view.journal, np.abs(numbers)):
                told[rows] = False
                flags[rows] = np.where(found.kinds == DELETE, TOMBSTONE, 0)
                flags[rows[found.expiries > 0]] |= EXPIRES
                sizes[rows], times[rows], expiries[rows] = found.sizes, found.times, found.expiries
                for at in np.flatnonzero(found.meta_bytes).tolist():
                    begin, length = found.meta_at[at], found.meta_bytes[at]
                    metas[rows[at]] = found.raw[begin : begin + length].tobytes()
        for at in np.flatnonzero(told).tolist():
            expiry_ms = self._table.expiring.get(-entries[at])
            if expiry_ms is not None and not self._heads:
                flags[at], expiries[at] = EXPIRES, expiry_ms
                continue
            head = self._view.head_of(found_in(self._table, entries[at]))
            if head is None:
                flags[at] = TOMBSTONE
                continue
            sizes[at], times[at], metas[at] = head.size, head.written_at, head.metadata
            if head.expires_at is not None:
                flags[at], expiries[at] = EXPIRES, head.expires_at
        prefixes, groups, cuts = _split(keys)
        starts, lengths = column.offsets[:-1] + cuts, lengths_of(column.offsets) - cuts
        return Columns(
            keys=Strings(column.blob, starts, lengths),
            prefixes=prefixes,
            groups=groups,
            hashes=hashes,
            sqns=np.abs(numbers).astype(np.uint64),
            flags=flags,
            sizes=sizes.astype(np.uint32),
            times=times,
            expiries=expiries if expiries.any() else None,
            metas=column_of(metas).strings() if any(metas) else None,
        )


def _split(keys: list[bytes]) -> tuple[list[bytes], Ints | None, Ints | int]:
    """Split ledger keys, which are in order, from their prefixes. Returns the distinct prefixes;
    which of them each key has, None if there is only one; the length of each key's prefix."""
    first = keys[0][: ledger_key.end_of_prefix(keys[0])]
    if keys[-1].startswith(first):
        return [first], None, len(first)
    prefixes = [first]
    groups = np.zeros(len(keys), np.int64)
    for at, key in enumerate(keys):
        if not key.startswith(prefixes[-1]):
            prefixes.append(key[: ledger_key.end_of_prefix(key)])
        groups[at] = len(prefixes) - 1
    return prefixes, groups, np.array(list(map(len, prefixes)), dtype=np.int64)[groups]


def batches(
    view: View,
    upper: int,
    now_ms: int,
    bound: Bounds,
    take: Slice,
    chosen: Chosen | None = None,
    *,
    heads: bool,
    hashes: bool = True,
    window_rows: int = WINDOW_ROWS,
) -> Iterator[Batch]:
    """Yield the live rows of a range of ledger keys, in its direction, with up to ``window_rows``
    of each source at a time, or more if rows are ``chosen``.

    The range may hold any number of buckets. Without ``heads``, sizes, times and metadata of rows
    that are still in memory are not looked up (0.5 us each) and read as zero; likewise their hashes
    without ``hashes``. Keys, sqns and flags are always right. 0.05 to 0.2 us a row.

    Raises Corruption.
    """
    if bound.high is not None and bound.low >= bound.high:
        return
    sources: list[Source] = [
        _MemoryRows(view, table, upper, bound, take, chosen, heads=heads, hashes=hashes)
        for table in (view.recent, *view.frozen)
        if table.rows
    ]
    kept = view.guide.kept
    columns = kept.columns() if chosen is None else None
    if columns is not None:
        sources.append(ColumnRows(columns, bound, window_rows))
        yield from live_batches(sources, now_ms, reverse=bound.reverse)
        return
    last = ledger_key.ABOVE_ALL if bound.high is None else bound.high
    for level in range(len(view.ledger.levels)):
        touched = view.ledger.overlapping(level, bound.low, last)
        apart = [(entry,) for entry in touched] if level == 0 else [touched] if touched else []
        sources += [
            FileRows([(e.file.reader, e.sqn_base) for e in entries], bound, chosen, window_rows)
            for entries in apart
        ]
    for batch in live_batches(sources, now_ms, reverse=bound.reverse):
        kept.given += len(batch.rows)
        yield batch


class BatchWindow:
    """A batch of one bucket as a window of a scan."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.keys = keys_of(batch)

    def heads(self) -> list[Head]:
        """As of a Window."""
        return heads_of(self.batch)

    def sqns(self) -> list[int]:
        """As of a Window."""
        sqns: list[int] = self.batch.columns.sqns[self.batch.rows].tolist()
        return sqns

    def times(self) -> list[int]:
        """As of a Window."""
        times: list[int] = self.batch.columns.times[self.batch.rows].tolist()
        return times

    def keep(self, hits: Iterable[object]) -> None:
        """As of a Window."""
        mask = np.fromiter(map(bool, hits), dtype=np.bool_, count=len(self.keys))
        self.batch = self.batch._replace(rows=self.batch.rows[mask])
        self.keys = list(compress(self.keys, mask.tolist()))

    def cut(self, rows: int) -> None:
        """As of a Window."""
        self.batch = self.batch._replace(rows=self.batch.rows[:rows])
        del self.keys[rows:]
