"""All rows of a small ledger, kept as columns for folds.

A fold of a few thousand rows spends most of its time on looking into each file of the ledger, and
on putting in order what it finds. So once folds were given as many rows as the ledger has, all of
them are put in order and kept: a fold takes a slice, and an Arrow stream gives it as it is.
"""

from __future__ import annotations

from bisect import bisect_left

from octavo.files.kernels.arrays import np
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.live_batches import merged, rows_at, rows_between
from octavo.files.ledger.rows import TOMBSTONE, Columns
from octavo.manifest.ledger_manifest import LedgerManifest

_MOST_ROWS = 1 << 16
_MOST_BYTES = 8 << 20


class KeptRows:
    """The kept rows of one ledger manifest; at most 8 MiB. For any thread."""

    __slots__ = ("_columns", "_ledger", "_rows", "given")

    def __init__(self, ledger: LedgerManifest) -> None:
        self.given = 0
        """How many rows folds were given, from the ledger's files or from memory."""
        self._ledger = ledger
        self._rows = -1
        """How many rows the files have, 0 if too many (or none lives); below 0: not yet counted."""
        self._columns: Columns | None = None

    def columns(self) -> Columns | None:
        """Rows of all keys that are not deleted, in order; None as long as that does not pay. The
        first time takes 0.2 us a row. Raises Corruption."""
        if self._columns is None and self.given:
            if self._rows < 0:
                self._rows = self._counted()
            if 0 < self._rows <= self.given:
                self._columns = self._made()
        return self._columns

    def _counted(self) -> int:
        entries = self._ledger.entries
        rows = sum(entry.rows for entry in entries)
        small = rows <= _MOST_ROWS and sum(entry.bytes for entry in entries) <= _MOST_BYTES
        return rows if small else 0

    def _made(self) -> Columns | None:
        """The columns; None if nothing lives, and then this is never called again."""
        entries = self._ledger.entries
        columns, rows = merged([entry.file.reader().columns(entry.sqn_base) for entry in entries])
        rows = rows[(columns.flags[rows] & TOMBSTONE) == 0]
        if not len(rows):
            self._rows = 0
            return None
        columns = rows_at(columns, rows)
        columns.sqns = columns.sqns.astype(np.uint64, copy=False)  # as Arrow has them
        metas = None if columns.metas is None else columns.metas.blob
        given = (columns.keys.blob, columns.sqns, columns.sizes, columns.times)
        for column in (*given, columns.expiries, metas):
            if column is not None:
                column.setflags(write=False)  # they are given to callers as they are
        return columns


class ColumnRows:
    """A Source of the rows in a range of columns that are in order."""

    def __init__(self, columns: Columns, bound: Bounds, window_rows: int) -> None:
        self.more = True
        self._columns = columns
        self._reverse = bound.reverse
        self._window = window_rows
        self._low = self._place(bound.low)
        self._high = len(columns) if bound.high is None else self._place(bound.high)

    def _place(self, key: bytes) -> int:
        """The first row at or above a ledger key."""
        columns, end = self._columns, len(self._columns)
        if columns.ledger_key(0) >= key:
            return 0
        if columns.ledger_key(end - 1) < key:
            return end
        return bisect_left(range(end), key, key=columns.ledger_key)

    def edge(self) -> bytes | None:
        """See Source.edge."""
        low, high = self._low, self._high
        if low >= high:
            return None
        self.more = high - low > self._window
        if self._reverse:
            return self._columns.ledger_key(max(low, high - self._window))
        return self._columns.ledger_key(min(high, low + self._window) - 1)

    def take(self, edge: bytes) -> Columns | None:
        """See Source.take."""
        low, high = self._low, self._high
        if self._reverse:
            low = self._high = max(self._place(edge), low)
        else:
            high = self._low = min(self._place(edge + b"\x00"), high)
        if high - low == len(self._columns):
            return self._columns
        return rows_between(self._columns, low, high) if low < high else None
