"""Recent changes in memory: the newest version by ledger key, and older ones that snapshots need.

An entry is a sequence number, negative if a plain read is not enough: for a put that expires, or a
delete.

One thread at a time writes (in the Bookie's turn); any thread reads single keys without a turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Protocol

from sortedcontainers import SortedList

from octavo.files.journal.record import KEY_DELTA, PUT
from octavo.files.ledger import index_terms
from octavo.files.locks import new_rlock


class Change(Protocol):
    """What a table needs of an operation, or of a journal record that is read again."""

    @property
    def kind(self) -> int: ...
    @property
    def tag(self) -> int: ...
    @property
    def bucket(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...
    @property
    def expiry_ms(self) -> int: ...
    @property
    def index_changes(self) -> bytes: ...


Slice = Callable[["MemoryTable", bytes, bytes | None, int, bool], list[bytes]]
"""As ``MemoryTable.slice``: keys in order, in the Bookie's turn while the table is not frozen."""


class MemoryTable:
    """What was written since the table began; frozen when the next one begins.

    ``rows`` is read and written directly by the put and get paths: a put into a table that is
    pinned calls ``keep`` first, so that the pinned version stays findable.
    """

    __slots__ = (
        "_ordering", "entry_bytes", "expiring", "frozen", "newest_pin", "older", "order", "pins",
        "rows", "since",
    )  # fmt: skip

    def __init__(self, since: int) -> None:
        self.rows: dict[bytes, int] = {}
        self.older: dict[bytes, list[int]] = {}
        self.expiring: dict[int, int] = {}  # when puts expire, ms UTC, by sqn; replaced ones, too
        self.entry_bytes = 0  # bytes of index entries' keys: each repeats its object's key
        self.since = since  # every entry is above this sqn
        self.pins: dict[int, int] = {}
        self.newest_pin = -1  # highest sqn a live reader is bound to; -1: none
        self.order: SortedList | None = None
        self._ordering = new_rlock()
        self.frozen = False

    def keep(self, ledger_key: bytes) -> None:
        """Save the current version of a key that is about to be replaced, if a pin needs it."""
        entry = self.rows.get(ledger_key)
        if entry is not None and abs(entry) <= self.newest_pin:
            self.older.setdefault(ledger_key, []).append(entry)

    def enter(self, ledger_key: bytes, sqn: int, change: Change) -> None:
        """Take in an operation and its index entries; versions that a pin needs stay findable."""
        if change.kind == KEY_DELTA:
            return
        entry = sqn
        if change.kind != PUT:
            entry = -sqn
        elif change.expiry_ms:
            self.expiring[sqn] = change.expiry_ms  # before anyone can find the entry
            entry = -sqn
        if self.newest_pin >= 0:
            self.keep(ledger_key)
        self.rows[ledger_key] = entry
        if change.index_changes:
            for key in index_terms.ledger_keys(
                change.tag, change.bucket, change.key, change.index_changes
            ):
                if self.newest_pin >= 0:
                    self.keep(key)
                self.rows[key] = entry
                self.entry_bytes += len(key)

    def enter_all(
        self, ledger_keys: Iterable[bytes], first: int, changes: Iterable[Change]
    ) -> None:
        """Take in operations of the sqns from ``first`` on."""
        rows, enter, pinned = self.rows, self.enter, self.newest_pin >= 0
        for sqn, (ledger_key, change) in enumerate(zip(ledger_keys, changes, strict=True), first):
            if pinned or change.kind != PUT or change.expiry_ms or change.index_changes:
                enter(ledger_key, sqn, change)
            else:
                rows[ledger_key] = sqn

    def enter_run(self, ledger_keys: Iterable[bytes], first: int, kind: int) -> None:
        """Take in plain puts, or deletes, of the sqns from ``first`` on. The caller has called
        ``keep`` if there is a pin."""
        entries = count(first) if kind == PUT else count(-first, -1)
        self.rows.update(zip(ledger_keys, entries, strict=False))

    def pin(self, reader: int, upper: int) -> None:
        """Bind a reader to the versions at or below ``upper``. In the Bookie's turn. O(1)."""
        self.pins[reader] = upper
        if upper > self.newest_pin:
            self.newest_pin = upper

    def unpin(self, reader: int) -> None:
        """Let a reader go; may be repeated if it was cut short. In the Bookie's turn. O(1),
        amortised."""
        self.pins.pop(reader, None)
        if self.pins:
            self.newest_pin = next(reversed(self.pins.values()))  # pins come in ascending order
            return
        self.newest_pin = -1
        if self.older:
            self.older = {}  # a new dict: someone may be reading the old one

    def entry(self, ledger_key: bytes, upper: int) -> int | None:
        """Entry of the newest version at or below ``upper``; None if this table has none. O(log
        kept versions)."""
        entry = self.rows.get(ledger_key)
        if entry is None or -upper <= entry <= upper:
            return entry
        older = self.older.get(ledger_key, ())
        place = bisect_right(older, upper, key=abs)
        return older[place - 1] if place else None

    def deleted(self, entry: int) -> bool:
        """Whether an entry of this table is a delete."""
        return entry < 0 and -entry not in self.expiring

    def in_order(self) -> SortedList:
        """All keys in order.

        In the Bookie's turn while the table is not frozen. O(new keys * log n); O(n log n) for the
        first call.
        """
        order = self.order
        rows = self.rows
        if order is None or len(order) < len(rows):
            with self._ordering:  # many threads may ask a frozen table, in no turn
                # Whoever comes in between, such as a signal's handler, finds no order; so does the
                # next caller if an interrupt leaves it half updated. These two lines call nothing.
                order = self.order
                self.order = None
                if order is None:
                    order = SortedList(list(rows))
                elif len(order) < len(rows):
                    order.update(list(islice(reversed(rows), len(rows) - len(order))))
                self.order = order
        return order

    def slice(self, low: bytes, high: bytes | None, limit: int, reverse: bool) -> list[bytes]:
        """Up to ``limit`` keys of [low, high) from its start (its end if ``reverse``), ascending.

        In the Bookie's turn while the table is not frozen.
        """
        found = self.in_order().irange(low, high, (True, False), reverse=reverse)
        keys = list(islice(found, limit))
        if reverse:
            keys.reverse()
        return keys

    @property
    def held(self) -> int:
        """How full the table is: its rows, or its expiries if these are more, since those of
        replaced versions stay."""
        return max(len(self.rows), len(self.expiring))
