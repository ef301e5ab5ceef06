"""Opens a store: starts its actors, in this order, on what each finds.

lock, identity
found files  both manifests, and journal files newer than the manifests
Inker        takes the journal's manifest
Penciller    takes the ledger's; files that no manifest names are removed
replay       journal records above the ledger's persisted sqn: sealed files straight into
             ledger files, the rest into memory
Bookie       ready
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from octavo.actors.bookie import Bookie
from octavo.actors.closed_meanwhile import or_closed
from octavo.actors.compacting import joining
from octavo.actors.compacting.compaction import seal_waiting
from octavo.actors.compacting.waste import Waste
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.journal_file import JournalFile
from octavo.actors.journal_start import resumes, started_file
from octavo.actors.memory_table import MemoryTable
from octavo.actors.open_files import OpenFiles
from octavo.actors.opening.found_files import FoundFiles, found_files, made_ours
from octavo.actors.opening.identity import Identity, identify, locked_as, registered
from octavo.actors.opening.options import Options
from octavo.actors.opening.replay import replayed
from octavo.actors.opening.resumption import resumed
from octavo.actors.opening.shutdown import closed_at_once, ended
from octavo.actors.opening.tags import NamedTag
from octavo.actors.penciller import LevelZero, Penciller
from octavo.actors.penciller_clerk import PencillerClerk, stretch_end
from octavo.actors.reading.read_cache import ReadCache
from octavo.actors.turns.runtime import A, Ref
from octavo.actors.view import JournalView, View
from octavo.actors.worker import JobRunner
from octavo.actors.writing.pace import Limits
from octavo.actors.writing.reserve import OPENING, Share, T, with_reserve
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk, FileLock
from octavo.files.door.file_lock import LOCK, locked
from octavo.files.door.own_disk import owned
from octavo.files.errors import AskCycle, AskTimeout, OctavoError
from octavo.files.handover import staging
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import published, recovery
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.consumers import Consumers
from octavo.manifest.journal_manifest import JournalEntry
from octavo.manifest.ledger_manifest import REBUILD
from octavo.manifest.level_sizes import MAX_FILE_ROWS
from octavo.manifest.register import SnapshotRegister

log = messages_of("octavo")

NICENESS = 10
"""How much lower the priority of compaction is than that of the user's process."""


@dataclass(slots=True)
class Running:
    """The parts of an open store, for its owner to use and to shut down."""

    path: str
    options: Options
    disk: Disk
    lock: FileLock
    identity: Identity
    inker: Ref[Inker]
    penciller: Ref[Penciller]
    clerk: Ref[PencillerClerk]
    inker_clerk: Ref[InkerClerk]
    bookie: Ref[Bookie]
    runner: JobRunner
    register: SnapshotRegister
    open_files: OpenFiles
    notes: list[str]
    replayed: int

    def with_reserve(self, call: Callable[[], T], share: Share) -> T:
        """Make ``call``, a way out of a full disk: see reserve.with_reserve."""
        return with_reserve(self.disk, self.path, call, share, self._work_at_hand_ended)

    @or_closed
    def _work_at_hand_ended(self) -> bool:
        try:
            self.clerk.call(lambda _: None)
            self.inker_clerk.call(lambda _: None)
        except (AskTimeout, AskCycle):
            return False
        return True


def start(
    path: str,
    options: Options,
    disk: Disk,
    *,
    clock_ms: Callable[[], int] = wall_clock_ms,
    monotonic: Callable[[], float] = time.monotonic,
    briefly: bool = False,
) -> Running:
    """Open the store at ``path``. How long it takes depends on what is not yet in the ledger.

    ``briefly``: for one change only; no merge is begun unasked.

    Raises StoreLocked, Misuse, UnsupportedFormat, Corruption, or the OSError of a directory that
    cannot be used.
    """
    identify(path, options, disk)  # first: no lock file is made in a directory of other things
    lock = locked(disk, f"{path}/{LOCK}")
    disk = owned(disk, lock)

    def opened() -> Running:
        opening = _Opening(path, options, disk, lock, clock_ms, monotonic, briefly)
        try:
            return opening.run(locked_as(path, options, disk))
        except BaseException:
            opening.undo()
            raise

    try:
        return with_reserve(disk, path, opened, OPENING)
    except BaseException:
        lock.release()
        raise


class _Opening:
    """One attempt to open a store, which can undo what it started."""

    def __init__(
        self,
        path: str,
        options: Options,
        disk: Disk,
        lock: FileLock,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        briefly: bool,
    ) -> None:
        self.path = path
        self.briefly = briefly
        self.journal, self.ledger = f"{path}/journal", f"{path}/ledger"
        self.options = options
        self.disk = disk
        self.lock = lock
        self.clock_ms = clock_ms
        self.open_files = OpenFiles(options.max_open_files)
        self.monotonic = monotonic
        self.runner, self.inker_runner = (
            JobRunner(disk, lock, in_process=not options.worker, niceness=niceness)
            for niceness in (0, NICENESS)
        )
        self.register = SnapshotRegister(monotonic, path)
        self.notes: list[str] = []
        self.refs: list[Ref[Any]] = []
        self.bookie: Ref[Bookie] | None = None
        self.replayed = 0
        self.recalculated: dict[int, NamedTag] = {}
        self.not_recalculated: list[str] = []

    @unbroken
    def undo(self) -> None:
        """Let go of all that a failed opening holds. A further Ctrl-C is raised only at the end."""
        closed_at_once(self.runner, self.inker_runner)
        ended(reversed(self.refs), self.open_files)  # actors that ask others stop before these
        self.disk.let_go(self.journal)

    @unbroken
    def _started(self, actor: type[A], *given: Any, **named: Any) -> Ref[A]:
        """Start an actor, which ``undo`` stops wherever a Ctrl-C came."""
        self.refs.append(ref := actor.start(*given, **named))
        return ref

    def run(self, identity: Identity) -> Running:
        for job in staging.sweep(self.disk, self.path, self.clock_ms()):
            self.notes.append(f"{self.path}: job {job} was never committed; its files are removed")
        identity = registered(self.disk, self.path, identity, self.options)
        self.recalculated = identity.tags.recalculated()
        self.not_recalculated = identity.tags.not_recalculated()
        published.sweep(self.disk, self.path, self.clock_ms())
        found = found_files(self.disk, self.path, identity.head_only, self.notes)
        for note in self.notes:
            log.warning("%s", note)
        inker = self._start_inker(found)
        penciller = self._start_penciller(found)
        penciller.actor.rebuildable = not identity.head_only
        self._sweep_orphans(penciller)  # before a merge makes files that no manifest names yet
        bookie, clerk = self._start_bookie(inker, penciller, found.tails)
        inker_clerk = self._start_inker_clerk(inker, bookie, identity)
        if any(tail.damaged for tail in found.tails.tails):
            # Now: other readers refuse damaged unsealed files. Does not wait for a long sealing.
            with suppress(AskTimeout):
                seal_waiting(inker.actor)
        return Running(
            path=self.path,
            options=self.options,
            disk=self.disk,
            lock=self.lock,
            identity=identity,
            inker=inker,
            penciller=penciller,
            clerk=clerk,
            inker_clerk=inker_clerk,
            bookie=bookie,
            runner=self.runner,
            register=self.register,
            open_files=self.open_files,
            notes=self.notes,
            replayed=self.replayed,
        )

    # ------------------------------------------------------------ the Inker

    def _start_inker(self, found: FoundFiles) -> Ref[Inker]:
        directory, tails = self.journal, found.tails.tails
        begun = resumed(
            found.journal,
            tails,
            found.ledger.persisted_sqn,
            directory=directory,
            damaged=found.doubtful,
        )
        for note in begun.notes:
            self.notes.append(note)
            log.warning("%s", note)
        # A sealed file behind an unsealed one is entered once that is sealed: see Inker.seal_next.
        entered = list(takewhile(lambda tail: tail.sealed, tails))
        manifest = begun.manifest.edit(added=tuple(map(self._sealed_entry, entered)))
        ref = self._started(
            Inker,
            self.disk,
            directory,
            manifest,
            ChangeLog.begin(self.disk, f"{directory}/manifest", found.epoch, manifest.encode()),
            found.epoch,
            self.runner,
            self.open_files,
            self.clock_ms,
            roll_size_bytes=self.options.roll_size_bytes,
            roll_count=self.options.roll_count,
            compresses=self.options.compression == "lz4",
            on_roll=self._rolled,
            on_sealed=self._sealed,
        )
        inker: Inker = ref.actor
        there = set(self.disk.listdir(directory))
        files: list[JournalFile] = []
        for entry in manifest.entries:
            file = started_file(inker, entry.name, entry.base_sqn, entry.seed)
            file.opened_sealed(missing=entry.name not in there)
            files.append(file)
        for tail in tails[len(entered) :]:
            if len(tail.offsets) == 1 and not tail.sealed:
                self.disk.unlink(f"{directory}/{tail.name}")
            else:
                files.append(self._tail_file(inker, tail, tail is tails[-1], begun.clean))
        inker.begin(JournalView.of(files), begun.following)
        return ref

    def _tail_file(self, inker: Inker, tail: recovery.Tail, last: bool, clean: bool) -> JournalFile:
        """Start a file that the manifest does not name: to be written on, sealed, or entered."""
        file = started_file(inker, tail.name, tail.base_sqn, tail.seed)
        if tail.sealed:
            file.opened_sealed()
            file.entry = self._sealed_entry(tail)
        else:
            apart = made_ours(self.disk, file.path, closed=clean)
            if last and clean and not tail.damaged and resumes(tail.offsets) and apart:
                file.resume(tail.offsets, tail.length)
                inker.active = file
                return file
            file.recovered(tail.offsets, tail.length)
        inker.unsealed.append(file)
        return file

    def _sealed_entry(self, tail: recovery.Tail) -> JournalEntry:
        """The manifest's entry for a file that was sealed, but not yet entered."""
        return JournalEntry(
            name=tail.name,
            base_sqn=tail.base_sqn,
            last_sqn=tail.last_sqn,
            count=len(tail.offsets) - 1,
            bytes=self.disk.size(f"{self.journal}/{tail.name}"),
            seed=tail.seed,
        )

    def _start_inker_clerk(
        self, inker: Ref[Inker], bookie: Ref[Bookie], identity: Identity
    ) -> Ref[InkerClerk]:
        options, retention = self.options, self.options.waste_retention_seconds
        consumers = Consumers(
            self.disk,
            self.path,
            self.clock_ms,
            self.notes,
            hold_seconds=options.consumer_hold_seconds,
            hold_bytes=options.consumer_hold_bytes,
            came_ms=partial(_came_ms, inker.actor),
        )
        ref = self._started(
            InkerClerk,
            inker,
            bookie,
            self.inker_runner,
            self.clock_ms,
            self.monotonic,
            options=options,
            identity=identity,
            waste=Waste(self.disk, f"{self.path}/waste", retention, self.clock_ms),
            consumers=consumers,
        )
        bookie.actor.inker_clerk = ref
        return ref

    def _rolled(self, view: JournalView) -> None:
        if self.bookie is not None:
            self.bookie.actor.journal_rolled(view)

    def _sealed(self, entry: JournalEntry) -> None:
        if self.bookie is not None and (clerk := self.bookie.actor.inker_clerk) is not None:
            clerk.send(joining.one_came, entry)

    # ------------------------------------------------------------ the Penciller and the Bookie

    def _start_penciller(self, found: FoundFiles) -> Ref[Penciller]:
        changes = ChangeLog.begin(
            self.disk, f"{self.ledger}/manifest", found.epoch, found.ledger.encode()
        )
        ref = self._started(
            Penciller, self.disk, self.ledger, found.ledger, changes, found.epoch,
            self.open_files, self.register,
        )  # fmt: skip
        ref.actor.adopt()
        return ref

    def _start_bookie(
        self, inker: Ref[Inker], penciller: Ref[Penciller], tails: recovery.Found
    ) -> tuple[Ref[Bookie], Ref[PencillerClerk]]:
        persisted = penciller.actor.manifest.persisted_sqn
        # By the oldest record, not the oldest row: if that was replaced, too much would be rebuilt.
        oldest = min(
            (tail.base_sqn + tail.changes[0].relative_sqn for tail in tails.tails if tail.changes),
            default=0,
        )
        recent, count = replayed(tails.tails, persisted)
        self.replayed += count
        view = View(recent, (), penciller.actor.manifest, inker.actor.view)
        limits = Limits(self.options.push_rows, self.options.push_bytes)
        bookie = self._started(
            Bookie, inker, penciller, self.register,
            ReadCache(self.options.read_cache_bytes), limits, view, self.clock_ms,
        )  # fmt: skip
        self.bookie = bookie
        clerk = self._started(
            PencillerClerk,
            penciller,
            inker,
            self.runner,
            self.clock_ms,
            bookie.actor.ledger_installed,
            briefly=self.briefly,
        )
        clerk.actor.damaged = self.notes
        bookie.actor.clerk = clerk
        self._rebuild(inker.actor, clerk, recent, oldest)
        recent.since = penciller.actor.manifest.persisted_sqn
        inker.send(Inker.seal_next)
        clerk.actor.wake()
        return bookie, clerk

    def _rebuild(
        self,
        inker: Inker,
        clerk: Ref[PencillerClerk],
        recent: MemoryTable,
        oldest: int,
    ) -> None:
        """Make ledger files directly from sealed journal files above the persisted sqn."""
        upto = oldest - 1 if oldest else inker.last_sqn
        since = persisted = recent.since
        recalculates = bool(self.recalculated) and not persisted and inker.last_sqn > 0
        if recalculates:
            # Memory has what the records say, not what the functions give: rebuild that, too.
            upto = inker.last_sqn
            recent.rows.clear()
            clerk.actor.recalculated = self.recalculated
            # If cut short, begin again: a part would be taken for a ledger made from records.
            self.disk.write_atomically(f"{self.ledger}/{REBUILD}", b"not all is worked out anew")
        while since < upto:
            stop = stretch_end(inker.view, since, upto, MAX_FILE_ROWS)
            if stop is None:
                break
            clerk.actor.do(LevelZero(MemoryTable(since), since, stop))
            self.replayed += stop - since
            since = stop
        if not persisted and since:
            self._tell_what_was_not_recalculated()
        if recalculates and not clerk.actor.penciller.actor.condemned:
            self.disk.unlink(f"{self.ledger}/{REBUILD}")
        clerk.actor.recalculated = {}

    def _tell_what_was_not_recalculated(self) -> None:
        for name in self.not_recalculated:
            note = (
                f"{self.path}: type {name!r} is under the strategy recalc, but was not registered "
                "as the ledger was rebuilt: its metadata and index entries are what its records say"
            )
            self.notes.append(note)
            log.warning("%s", note)

    def _sweep_orphans(self, penciller: Ref[Penciller]) -> None:
        """Remove ledger files that the manifest does not name: replaced, or left by a job that was
        cut short."""
        named = {entry.name for entry in penciller.actor.manifest.entries}
        for name in self.disk.listdir(self.ledger):
            ours = name.removesuffix(TEMPORARY_SUFFIX).endswith(".sst")
            if (ours and name not in named) or name == REBUILD:
                self.disk.unlink(f"{self.ledger}/{name}")


def _came_ms(inker: Inker, position: int) -> int | None:
    """When the first record above ``position`` (an sqn) was written, ms UTC; None if there is none;
    0 if that cannot be told. Reads one header. In no turn."""
    try:
        for file in inker.view.files:
            for sqn in file.sqns(position + 1, inker.last_sqn):
                return file.header(sqn).time_ms
    except (OctavoError, OSError):  # compaction reports damage itself
        return 0
    return None
