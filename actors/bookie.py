"""The Bookie: the actor that callers talk to. Every write goes through its turn; gets need none."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NoReturn, TypeAlias

from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.journal_file import JournalFile
from octavo.actors.journal_start import resumes
from octavo.actors.memory_table import MemoryTable
from octavo.actors.penciller import LevelZero, Penciller
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.actors.reading.live_reads import LiveReads
from octavo.actors.reading.read_cache import ReadCache
from octavo.actors.scanning.empty_ranges import EmptyRanges, may_expire, no_news
from octavo.actors.scanning.kept_scans import KeptScans
from octavo.actors.scanning.scan_sources import dead_entries
from octavo.actors.turns import waits
from octavo.actors.turns.runtime import Ref, TurnActor, in_turn
from octavo.actors.view import JournalView, View
from octavo.actors.worker import WorkerDied
from octavo.actors.writing.operation import Data, Ends, IndexEdit, Operation, resolved
from octavo.actors.writing.pace import FIRST_LOOK, LOOK_EVERY, Limits, pace
from octavo.actors.writing.plain_batch import plain_batches
from octavo.actors.writing.plain_put import plain_puts
from octavo.actors.writing.unfinished_writes import UnfinishedWrites
from octavo.files.errors import AskTimeout, Closed, Conflict, StorageFailed, StorageFull
from octavo.files.journal.record import PUT
from octavo.files.ledger.head_key import shown
from octavo.files.locks import new_lock
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.register import SnapshotRegister

log = messages_of("octavo.bookie")
_FOR_SCANS = 3
"""A shift: what scans keep of the ledger may take an eighth of the read cache's limit, on top."""
_MOST_IN_ORDER = 32 << 20
"""Likewise: all rows in order, half of that limit but at most this; items given, a quarter."""

Pairs: TypeAlias = list[tuple[bytes, bytes]]


class Bookie(LiveReads, TurnActor):
    """Keeps the recent changes and the current view. A write goes to the Inker's journal first."""

    def __init__(
        self,
        inker: Ref[Inker],
        penciller: Ref[Penciller],
        register: SnapshotRegister,
        cache: ReadCache,
        limits: Limits,
        view: View,
        clock_ms: Callable[[], int],
    ) -> None:
        super().__init__()
        self.inker: Inker = inker.actor
        self.penciller = penciller
        self.register = register
        self.cache = cache
        cache.reads = self
        self.kept_scans = KeptScans(
            cache.limit >> _FOR_SCANS, min(cache.limit >> 1, _MOST_IN_ORDER), cache.limit >> 2
        )
        self.empty_ranges = EmptyRanges()
        self.unfinished = UnfinishedWrites()
        self.limits = limits
        self.view = view
        self.clock_ms = clock_ms
        self.clerk: Ref[PencillerClerk] | None = None
        self.inker_clerk: Ref[InkerClerk] | None = None
        self.closed = False
        self.ended: deque[int] = deque()  # snapshots that were dropped without being closed
        self.publishing = new_lock()  # held while a snapshot is published for other processes
        self.pause_seconds = 0.0
        self._table_began = self.journal_position()
        self.inker.measures.began(self.inker.last_sqn, self._table_began)
        self._pinned_tables: dict[int, MemoryTable] = {}
        self.active = self.inker.active
        """The journal file that puts append to; None once the store is closed."""
        self.attention = 0
        """The put that gets this sqn, or a higher one, calls attend()."""
        self._first = self.inker.last_sqn + LOOK_EVERY
        """A first attend() before this sqn only sets the pace and looks at what is synced."""
        self._attend_from(self.inker.last_sqn + FIRST_LOOK)
        self.plain_put = plain_puts(self)
        """(tag, bucket, kind) -> the function that puts into that bucket, or deletes from it."""
        self.plain_batch = plain_batches(self)

    def stopped_error(self) -> Exception:
        """The Closed to raise: the store is closed, or this is a forked child's copy of it."""
        failed = self.inker.failed
        return Closed(str(failed) if isinstance(failed, Closed) else "the store is closed")

    def wait_for_turn(self, timeout: float | None, asked: object = "this call") -> float:
        """As for any actor, but threads that write all the time take it by turns: see Crowd."""
        if timeout is None:
            self.inker.crowd.meet(len(waits.waiting))
        return super().wait_for_turn(timeout, asked)

    # ------------------------------------------------------------ writing

    def refuse(self) -> NoReturn:
        """Raise the error that says why nothing can be written."""
        active, failed = self.active, self.inker.failed
        if active is None:
            raise self.stopped_error()
        raise failed or active.failed or StorageFailed(f"{active.path} takes no more")

    def undo(
        self, active: JournalFile, error: BaseException, sqn: int, written: Data, ends: Ends
    ) -> None:
        """Clean up after an interrupted append of records from ``sqn`` on, all or nothing: cut off
        what is no record, take into memory what is. Raises what an OSError means."""
        try:
            each = (ends,) if isinstance(ends, int) else ends
            active.undo(error, written, each, atomic=True)
        finally:
            self.unfinished.remember(self, sqn)

    def put_many(
        self, ledger_keys: list[bytes], tag: int, bucket: bytes, pairs: Pairs, kind: int = PUT
    ) -> int:
        """Write plain puts of one bucket in few writes; return the last sqn. With DELETE as the
        kind and empty values: deletes. Otherwise as plain_put."""
        last = self.actor_ref.call(Bookie._put_many, ledger_keys, tag, bucket, pairs, kind)
        if self.pause_seconds:
            self.wait_a_little()
        return last

    def _put_many(
        self, ledger_keys: list[bytes], tag: int, bucket: bytes, pairs: Pairs, kind: int
    ) -> int:
        if self.closed:
            raise self.stopped_error()
        table = self.view.recent
        if table.newest_pin >= 0:
            for ledger_key in ledger_keys:
                table.keep(ledger_key)
        if kind == PUT:
            self._take_back(ledger_keys)
        following = self.inker.last_sqn + 1
        try:
            first, last = self.inker.append_plain(kind, tag, bucket, pairs, self.clock_ms())
            enter = partial(table.enter_run, ledger_keys, first, kind)
            self.cache.write_without(ledger_keys, enter)
        except BaseException:
            self.unfinished.remember(self, following)
            raise
        if last >= self.attention:
            self.attend()
        return last

    def write(
        self,
        operations: Sequence[Operation],
        ledger_keys: Sequence[bytes],
        *,
        atomic: bool,
        conditions: Sequence[tuple[int, int]] = (),
        edits: Mapping[int, IndexEdit] | None = None,
    ) -> tuple[int, int]:
        """Write several operations to the journal at once; return (first sqn, last sqn).

        ``conditions``: (index, sqn that the key's live version must have, 0 for absent); if one
        fails, Conflict is raised and nothing is written. ``edits``, by index: what that operation
        changes in its key's index entries. ``atomic``: see Inker.append_group.
        """
        first, last = self.actor_ref.call(
            Bookie._write, operations, ledger_keys, atomic, conditions, edits
        )
        if self.pause_seconds:
            self.wait_a_little()
        return first, last

    def _write(
        self,
        operations: Sequence[Operation],
        ledger_keys: Sequence[bytes],
        atomic: bool,
        conditions: Sequence[tuple[int, int]],
        edits: Mapping[int, IndexEdit] | None,
    ) -> tuple[int, int]:
        if self.closed:
            raise self.stopped_error()
        for index, expected in conditions:
            self.check(ledger_keys[index], operations[index][3], expected)
        if edits:
            operations = resolved(operations, ledger_keys, edits, self.index_of, self.now_ms())
        self._take_back(ledger_keys)
        if self.empty_ranges.lows:
            for operation in operations:
                self._take_back(operation.entry_keys())
        following = self.inker.last_sqn + 1
        try:
            first, last = self.inker.append_group(operations, self.clock_ms(), atomic)
            enter = self.view.recent.enter_all
            self.cache.write_without(ledger_keys, lambda: enter(ledger_keys, first, operations))
        except BaseException:
            self.unfinished.remember(self, following)
            raise
        if last >= self.attention or self.view.recent.entry_bytes >= self.limits.push_bytes:
            self.attend()
        return first, last

    def check(self, ledger_key: bytes, key: bytes, expected: int) -> None:
        """In the turn: raise Conflict unless the key's live version has this sqn; 0 is absent."""
        found = self.view.recent.rows.get(ledger_key, 0)
        if found <= 0:  # not a put that never expires
            found = self._retried(lambda view: view.live(ledger_key, 1 << 63, self.clock_ms()))
        if found != expected:
            told = f"its version is {found}" if found else "it is absent"
            told = f"if_sqn={expected} does not hold for {shown(ledger_key[0], key)}: {told}"
            raise Conflict(told, expected=expected, found=found)

    def _take_back(self, ledger_keys: Sequence[bytes]) -> None:
        """In the turn: forget that ranges with these keys are empty; they may be about to live."""
        if self.empty_ranges.lows:
            for ledger_key in ledger_keys:
                self.empty_ranges.take_back(ledger_key)

    def take_back(self, ledger_key: bytes, told: Operation | None) -> None:
        """In the turn: as ``_take_back``, of a key that is put with the index entries ``told``."""
        self.empty_ranges.take_back(ledger_key)
        if told is not None:
            self._take_back(told.entry_keys())

    # ------------------------------------------------------------ pushing and pausing

    def journal_position(self) -> int:
        """Journal bytes written since this opening, plus those of a file that it resumed."""
        active = self.inker.active
        return self.inker.bytes_written + (active.offsets[-1] if active is not None else 0)

    def _attend_from(self, sqn: int) -> None:
        self.attention = min(sqn, self.inker.stop_sqn)

    def attend(self) -> None:
        """Roll if the file is full, push if memory is; set the pace. In the turn, every few
        hundred puts, and when a put reaches the end of the room that its file has."""
        if self.active is not None and self.active.widened(self.attention, self.clock_ms()):
            return
        self.inker.look()
        left, self._first = self._first - self.inker.last_sqn, 0
        if left > 0:
            self._pace(left)
            return
        recent = self.view.recent
        held, taken = recent.held, self.journal_position() - self._table_began + recent.entry_bytes
        if held >= self.limits.push_rows or taken >= self.limits.push_bytes:
            self.push()
        if self.clerk is not None:
            self.clerk.actor.look_again()
        self._release_ended()
        self._pace()

    def _pace(self, most: int = LOOK_EVERY) -> None:
        self.pause_seconds, puts = pace(*self.penciller.actor.backlog(), self.inker.backlog())
        puts = min(puts, most)
        if (active := self.active) is not None and (fewer := active.lengthen()):
            puts = min(puts, fewer)
        self._attend_from(self.inker.last_sqn + puts)

    def wait_a_little(self) -> None:
        """Sleep for the pause that the last look at the backlog asked for. In no turn."""
        seconds, self.pause_seconds = self.pause_seconds, 0.0
        time.sleep(seconds)
        self.inker.measures.pauses.record(int(seconds * 1e9))

    @unbroken
    def push(self) -> None:
        """Hand the recent changes to the Penciller and begin a new table. O(1)."""
        view, upto = self.view, self.inker.last_sqn
        table = view.recent
        if table.rows:
            self.empty_ranges.forget_unused()
            following = replace(view, recent=MemoryTable(upto), frozen=(table, *view.frozen))
            table.frozen = True  # nothing between this and the next line: no put may go in
            self.view = following
            self._table_began = self.journal_position()
        elif view.frozen:  # the Penciller may not know of it, if memory was short
            table, upto = view.frozen[0], table.since
        else:
            return
        self.penciller.send(Penciller.push, table, table.since, upto)
        if self.clerk is not None:
            self.clerk.actor.wake()

    def taken_in(self, view: View, last_sqn: int) -> None:
        """Take over a view with files that were made elsewhere, up to ``last_sqn``. In the turn."""
        self.empty_ranges.clear()  # first: readers of that view look at them without a turn
        self.cache.clear(partial(setattr, self, "view", view))
        self._table_began = self.journal_position()
        self._attend_from(last_sqn + LOOK_EVERY)

    def journal_rolled(self, journal: JournalView) -> None:
        """Take over the Inker's new file. Called on the thread that holds the Bookie's turn."""
        self.view = replace(self.view, journal=journal)
        self.active = None if self.closed else self.inker.active  # rolled while closing

    @in_turn
    def ledger_installed(self, manifest: LedgerManifest, saved: LevelZero | None) -> int:
        """Make a view with the ledger that the Penciller installed, without the memory tables that
        it has now. Returns the view's generation."""
        frozen = self.not_in(manifest)
        generation = self.view.generation + 1
        if manifest.expired_ms < self.view.ledger.expired_ms:  # the newer one is compaction's
            manifest = replace(manifest, expired_ms=self.view.ledger.expired_ms)
        self.view = replace(self.view, frozen=frozen, ledger=manifest, generation=generation)
        self._release_ended()
        self._pace()
        if saved is not None and self.inker_clerk is not None:
            self.inker_clerk.actor.saved()
        return generation

    def not_in(self, ledger: LedgerManifest) -> tuple[MemoryTable, ...]:
        """The frozen tables that have what a ledger does not, newest first. Decided by sqns, since
        this actor may have missed that an earlier table was saved."""
        frozen, saved = self.view.frozen, ledger.persisted_sqn
        ends = (table.since for table in (self.view.recent, *frozen))
        return tuple(table for table, end in zip(frozen, ends, strict=False) if end > saved)

    def slice(
        self, table: MemoryTable, low: bytes, high: bytes | None, limit: int, reverse: bool
    ) -> list[bytes]:
        """MemoryTable.slice, in the Bookie's turn while the table is being written."""
        if table.frozen:
            return table.slice(low, high, limit, reverse)
        return self.actor_ref.call(Bookie._slice, table, low, high, limit, reverse)

    def _slice(
        self, table: MemoryTable, low: bytes, high: bytes | None, limit: int, reverse: bool
    ) -> list[bytes]:
        return table.slice(low, high, limit, reverse)

    def stepped_over(
        self, view: View, low: bytes, high: bytes, names: list[bytes], rows: int, moment: int
    ) -> None:
        """Note that a scan of ``view`` found no live key in [low, high), if that still holds for
        the newest state: later scans then step over the range. ``moment``: the scan's, ms UTC; 0
        if nothing in its way ever expires.

        ``names``: all keys in the range that the view's table being written had when it had at
        least ``rows`` rows. Takes the turn. O(names + rows that came since).
        """
        self.actor_ref.call(Bookie._stepped_over, view, low, high, names, rows, moment)

    def _stepped_over(
        self, view: View, low: bytes, high: bytes, names: list[bytes], rows: int, moment: int
    ) -> None:
        if self.view is not view:
            return
        table = view.recent
        if names:
            entries = list(map(table.rows.__getitem__, names))
            if max(entries) > 0 or len(dead_entries(table, entries, moment)) < len(entries):
                return
        came = islice(reversed(table.rows), len(table.rows) - rows)
        if not any(low <= ledger_key < high for ledger_key in came):
            self.empty_ranges.note(low, high, self.inker.last_sqn, moment)

    def no_entries(
        self, view: View, upper: int, moment: int, low: bytes, high: bytes, reverse: bool
    ) -> None:
        """Note, as stepped_over does, that an index scan of this view, sqn and moment found neither
        a valid entry in [low, high) nor one of other objects: once replaced or expired, none is
        ever valid again. Only if no other came since; a part at a time. Takes the turn."""
        low, high = self.empty_ranges.left(low, high, upper, moment, reverse)
        if low < high:
            since = moment if may_expire(view.ledger, low, high) else 0
            told = low, high, upper, reverse
            self.actor_ref.call(Bookie._no_entries, view, told, since, moment)

    def _no_entries(
        self, view: View, told: tuple[bytes, bytes, int, bool], since: int, moment: int
    ) -> None:
        if self.view is view and (found := no_news(view.recent, view.frozen, *told)):
            low, high, expires = found
            self.empty_ranges.note(low, high, self.inker.last_sqn, moment if expires else since)

    # ------------------------------------------------------------ snapshots

    def snapshot(self, lease_seconds: float, number: int) -> tuple[View, int, int]:
        """Take a snapshot: (view, upper sqn, moment in ms UTC). In the turn. Copies nothing. O(1).
        ``number`` is one of the register's; the caller releases it however far this came."""
        if self.closed:
            raise self.stopped_error()
        self._release_ended()
        view = self.view
        upper = self.inker.last_sqn
        self._pinned_tables[number] = view.recent
        view.recent.pin(number, upper)
        self.register.register(view.generation, lease_seconds, number)
        return view, upper, self.now_ms()

    def release(self, number: int) -> None:
        """End a snapshot. Idempotent; does nothing once the store is closed."""
        if not self.closed:
            with suppress(Closed):  # it is being closed just now
                self.actor_ref.call(Bookie._release, number)

    def _release_ended(self) -> None:
        while self.ended:
            self._release(self.ended[0])
            self.ended.popleft()

    def _release(self, number: int) -> None:
        table = self._pinned_tables.get(number)
        if table is not None:
            table.unpin(number)
            self._pinned_tables.pop(number, None)
        self.register.release(number)
        if self.penciller.actor.delete_pending.waiting:
            self.penciller.send(Penciller.sweep)
        if self.inker_clerk is not None and self.inker_clerk.actor.delete_pending.waiting:
            self.inker_clerk.send(InkerClerk.sweep)

    # ------------------------------------------------------------ closing

    def close(self, save_from_rows: int) -> None:
        """Refuse further writes, save memory if a replay would take long, make all durable."""
        self.actor_ref.call(Bookie._refuse_writes, save_from_rows)
        try:
            if self.clerk is not None:
                self.clerk.actor.closing = True
                self.clerk.actor.runner.abandon("merge")
                self.clerk.call(PencillerClerk.save_all)
        except (StorageFull, WorkerDied, AskTimeout) as why:
            told = "%s: memory is not saved, the next opening replays the journal: %s"
            log.warning(told, self.inker.directory, why)
        finally:  # Inker.close makes all durable
            self.inker.actor_ref.call(Inker.close)

    def _refuse_writes(self, save_from_rows: int) -> None:
        self.closed = True
        active, self.active = self.active, None
        large = active is not None and not resumes(active.offsets)
        if large or len(self.view.recent.rows) >= save_from_rows:
            self.push()
