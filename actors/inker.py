"""The Inker: keeps the journal, assigns sequence numbers, rolls files and has them sealed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

from octavo.actors.journal_file import JournalFile
from octavo.actors.journal_start import look_later, map_to_roll, resumes, retire_empty, started_file
from octavo.actors.measures import Measures
from octavo.actors.open_files import OpenFiles
from octavo.actors.turns.runtime import TurnActor, in_turn
from octavo.actors.view import JournalView
from octavo.actors.worker import JobRunner
from octavo.actors.writing.crowd import Crowd
from octavo.actors.writing.operation import Operation, encoded, packed_values, plain_encoded
from octavo.files.door.disk import Disk
from octavo.files.errors import (
    AskTimeout,
    Closed,
    Misuse,
    OctavoError,
    StorageFailed,
    StorageFull,
    storage_error,
)
from octavo.files.journal import cdb
from octavo.files.journal.compress import Compressor
from octavo.files.journal.journal_names import LOG, name_of
from octavo.files.lifecycle import State
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.manifest import unsynced
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest

log = messages_of("octavo.inker")

CEILING_STEP = 1 << 20
"""Half to twice this many sequence numbers are reserved ahead; an unclean stop skips the rest."""

_MOST_BYTES = cdb.MAX_FILE_BYTES - (256 << 20)
"""From this size on, an append has to check whether it still fits the file."""

COMPRESS_FROM_BYTES = 2048


class Inker(TurnActor):
    """Owns the journal's manifest and which file is active. Values live in the files' actors."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        manifest: JournalManifest,
        change_log: ChangeLog,
        epoch: int,
        runner: JobRunner,
        open_files: OpenFiles,
        clock_ms: Callable[[], int],
        *,
        roll_size_bytes: int,
        roll_count: int,
        compresses: bool,
        on_roll: Callable[[JournalView], None],
        on_sealed: Callable[[JournalEntry], None],
    ) -> None:
        super().__init__()
        self.disk, self.directory = disk, directory
        self.store = directory.removesuffix("/journal")
        self.manifest, self.change_log = manifest, change_log
        self.epoch = epoch
        self.runner = runner
        self.open_files = open_files
        self.clock_ms = clock_ms
        self.roll_size = roll_size_bytes
        self.roll_count = roll_count
        self.on_roll, self.on_sealed = on_roll, on_sealed
        self.compress_from = COMPRESS_FROM_BYTES if compresses else cdb.MAX_FILE_BYTES
        self.active: JournalFile | None = None
        self.stop_sqn = 0  # the sqn at which the active file rolls or the ceiling is raised
        self.view = JournalView((), ())
        self.unsealed: list[JournalFile] = []  # rolled files that the worker has yet to seal
        self.failed: OctavoError | None = None
        self.bytes_written = 0  # in files that were rolled
        self.closing = False
        self.measures = Measures(jobs=runner.history)
        self.compressor = Compressor()
        self.crowd = Crowd(lambda: self.last_sqn, set())
        self._sealing = False
        self._raising = False  # the ceiling is going to be raised
        self._not_sealed: OctavoError | OSError | None = None
        self._last = 0

    def begin(self, view: JournalView, following: int) -> None:
        """Take over the files that were found; the next sqn is ``following``."""
        self.view = view
        if self.active is None:
            self._activate(self.new_file(following))
        else:
            self._aim(self.active)

    # ------------------------------------------------------------ appending

    def append_plain(
        self, kind: int, tag: int, bucket: bytes, pairs: Sequence[tuple[bytes, bytes]], time_ms: int
    ) -> tuple[int, int]:
        """Append plain puts, or deletes, of one bucket in few writes; return (first sqn, last
        sqn). Otherwise as append_group."""
        active = self.active
        if active is None or self._crowded(active, pairs):
            return self.append_group(
                [Operation(kind, tag, bucket, key, value) for key, value in pairs],
                time_ms,
                False,
            )
        first = active.base + len(active.offsets) - 1
        packing = self.compress_from, self.compressor.packed
        for data, ends in plain_encoded(active, kind, tag, bucket, pairs, time_ms, *packing):
            active.append_encoded(data, ends)
        last = first + len(pairs) - 1
        if last >= self.stop_sqn or active.offsets[-1] >= active.full:
            self.look()
        return first, last

    def _crowded(self, active: JournalFile, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether to take the long way, since there may be too little room for these records. Only
        the last value is looked at: all others of a group take 16 MiB together at most."""
        return (
            active.offsets[-1] + len(pairs[-1][1]) > _MOST_BYTES
            or active.base + len(active.offsets) + len(pairs) > self.manifest.to_give
        )

    def append_group(
        self, operations: Sequence[Operation], time_ms: int, atomic: bool
    ) -> tuple[int, int]:
        """Append the records of several operations in one write; return (first sqn, last sqn).

        ``atomic``: they carry their position and number, and are recovered all or none. In the
        Bookie's turn, like every append; this actor's is taken only to roll or raise the ceiling.
        """
        if self.failed is not None:
            raise self.failed
        count = len(operations)
        packed = packed_values(operations, self.compress_from, self.compressor.packed)
        fresh = False
        while True:
            active = self.active
            if active is None:
                raise Closed("the store is closed")
            first = active.base + len(active.offsets) - 1
            parts, ends = encoded(active, operations, packed, time_ms, atomic)
            room = cdb.MAX_FILE_BYTES - cdb.SEALING_BYTES * (len(active.offsets) + count) - 8192
            if fresh and ends[-1] > room:
                raise Misuse(
                    f"{count} records of together {ends[-1]} bytes: what is written at once has to "
                    f"fit a journal file of {room} bytes"
                )
            if fresh or (ends[-1] <= room and first + count < self.manifest.to_give):
                break
            self._make_room(count)
            fresh = True
        active.append_encoded(b"".join(parts), ends, atomic)
        last = first + count - 1
        if last >= self.stop_sqn or ends[-1] >= active.full:
            self.look()
        return first, last

    # ------------------------------------------------------------ rolling

    def look(self) -> None:
        """Roll, or raise the ceiling, if it is time. In the Bookie's turn. Mostly O(1), and then
        without this actor's turn, whose holder may be waiting for the disk."""
        active = self.active
        if active is None:
            return
        if not resumes(active.offsets):  # else it may stay as small as it is
            active.expect(self.roll_size)
        if self.last_sqn + CEILING_STEP // 2 > self.manifest.ceiling and not self._raising:
            self._raising = True
            self.actor_ref.send(Inker.raise_ceiling)
        if self.last_sqn >= self.stop_sqn or active.offsets[-1] >= active.full:
            try:
                self._look()
            except AskTimeout as slow:  # for example, another commit waits for a hanging disk
                look_later(self, active, slow, _MOST_BYTES)

    @in_turn
    def _look(self) -> None:
        """Roll the active file if it is full; raise the ceiling if it is near. A full disk only
        puts this off: what was appended stays appended."""
        active = self.active
        if active is None:
            return
        following = active.base + len(active.offsets) - 1
        try:
            if following + CEILING_STEP // 4 > self.manifest.ceiling:
                self._reserve(following + 2 * CEILING_STEP)
            if active.offsets[-1] >= self.roll_size or len(active.offsets) > self.roll_count:
                self._roll(following)
            else:
                self._aim(active)
        except StorageFull as full:
            look_later(self, active, full, _MOST_BYTES)
        except StorageFailed as failed:
            self.poison(failed)

    def poison(self, failed: OctavoError) -> None:
        """Refuse every write from now on; reads go on. Only a reopening helps."""
        self.failed = failed
        unsynced.mark(self.disk, self.directory)
        active = self.active
        if active is not None and active.failed is None:
            active.failed = failed  # where the short paths look

    @in_turn
    def _make_room(self, count: int) -> None:
        active = self.active
        following = active.base + len(active.offsets) - 1 if active else 0
        if following + count > self.manifest.to_give:
            self._reserve(following + count + 2 * CEILING_STEP)
        self._roll(following)

    def _aim(self, active: JournalFile) -> None:
        self.stop_sqn = min(
            active.base + self.roll_count - 1, self.manifest.ceiling - CEILING_STEP // 4
        )

    @unbroken
    def raise_ceiling(self) -> None:
        """Reserve sqns ahead, on the pool, so that no put waits for the fsync that this takes. If
        it cannot be done now, a put does it later, or says why not."""
        active = self.active
        if active is None or self.failed is not None:
            return
        try:
            self._reserve(self.last_sqn + 1 + 2 * CEILING_STEP)
        except StorageFull as full:
            log.warning("%s; no sqns were reserved ahead", full)
        except StorageFailed as failed:
            self.poison(failed)
        else:
            self._aim(active)

    def _reserve(self, ceiling: int) -> None:
        """Raise the durable ceiling: no sqn below it is given twice, whatever happens."""
        self.commit(self.manifest.edit(ceiling=ceiling))
        self._raising = False

    @unbroken
    def commit(self, manifest: JournalManifest) -> None:
        self.change_log.append(self.manifest.change_to(manifest))
        self.manifest = manifest
        self.change_log.snapshot_if_due(manifest.encode)

    @in_turn
    def roll(self) -> None:
        """Begin a new active file now, unless the active one is empty."""
        active = self.active
        if active is not None and len(active.offsets) > 1:
            self._roll(active.base + len(active.offsets) - 1)

    @unbroken
    def begin_at(self, base_sqn: int) -> None:
        """Replace the active file, which is empty, by one that begins at ``base_sqn``, after
        reserving the sqns below. In a turn."""
        if base_sqn + CEILING_STEP // 2 > self.manifest.ceiling:
            self._reserve(base_sqn + 2 * CEILING_STEP)
        self._roll(base_sqn)

    @unbroken
    def _roll(self, base_sqn: int) -> None:
        old = self.active
        if old is not None and old.failed is not None and self.failed is None:
            self.poison(old.failed)  # a failed write may have left bytes behind its last record
            raise old.failed
        mapped = map_to_roll(self, old) if old is not None and len(old.offsets) > 1 else None
        fresh = self.new_file(base_sqn)
        refused = StorageFailed(f"{fresh.name} was not begun; close the store and reopen it")
        try:
            if old is not None:
                if mapped is None:
                    retire_empty(self, old)
                else:
                    old.roll(mapped)
                    self.bytes_written += old.offsets[-1]
                    self.unsealed.append(old)
                    log.info("%s is full; the journal goes on in %s", old.path, fresh.name)
                    self.actor_ref.send(Inker.seal_next)
            self._activate(fresh)
        except BaseException as error:
            self.failed = fresh.failed = refused
            if old is not None:  # neither written nor sealed: for some readers it is still the last
                old.failed = refused
                self.unsealed = [file for file in self.unsealed if file is not old]
            if isinstance(error, (OSError, StorageFull)):  # room alone would not mend this
                raise refused from error
            raise

    def new_file(self, base_sqn: int) -> JournalFile:
        """A new, empty, writable journal file."""
        seed = secrets.randbits(64)
        file = started_file(self, name_of(base_sqn, seed, LOG), base_sqn, seed)
        try:
            file.create(cdb.FileHeader(self.epoch, base_sqn, seed, self.clock_ms()))
        except BaseException:
            file.actor_ref.stop()
            raise
        return file

    def _activate(self, file: JournalFile) -> None:
        self.active = file
        if self.failed is not None:
            file.failed = self.failed  # an fsync failed meanwhile, outside any turn
        self.view = JournalView((*self.view.bases, file.base), (*self.view.files, file))
        self._aim(file)
        self.on_roll(self.view)

    # ------------------------------------------------------------ sealing, off the caller's path

    @unbroken
    def seal_next(self) -> None:
        """Have the oldest rolled file sealed. One at a time and in order, so that a file that
        the manifest does not know is always younger than all that it knows."""
        if not self.unsealed or self.closing:
            return
        file = self.unsealed[0]
        if self._sealing and (file.waiting_messages or file.holder):
            return file.schedule()  # again, in case memory was too short to schedule it before
        self._sealing = True  # until the file reports back, which may be at once
        file.actor_ref.send(JournalFile.seal, self.runner, self.actor_ref)

    def backlog(self) -> int:
        """How many files wait to be sealed; 0 while sealing cannot go on, since slowing the puts
        would gain nothing then."""
        return len(self.unsealed) if self._sealing else 0

    @unbroken
    def sealed(self, file: JournalFile, entry: JournalEntry) -> None:
        """Enter a file in the manifest that has become stock CDB, durably. After an interrupt this
        may come a second time; by then the file may have been compacted."""
        if file not in self.unsealed:
            return
        self._sealing = False
        self.measures.sealing_bytes += entry.bytes - file.commit.appended
        if self.closing:
            return  # the next start finds the file under its sealed name
        try:
            self.commit(self.manifest.edit((replace(entry, file=file),)))
        except StorageFull as full:
            log.warning("%s; %s is entered after the next roll", full, file.path)
            return
        except OctavoError as error:
            # The file is found on disk at the next start; only what follows is refused.
            self.poison(error)
            raise
        self.unsealed.remove(file)
        self.on_sealed(entry)
        self.seal_next()

    @unbroken
    def sealing_failed(self, file: JournalFile, error: OctavoError | OSError) -> None:
        """Note why a file was not sealed. It stays readable, and the next roll tries again."""
        self._sealing = False
        self._not_sealed = error
        log.warning("%s was not sealed and stays as it is for now: %s", file.path, error)
        if isinstance(error, StorageFailed):
            self.poison(error)

    def why_not_sealed(self, path: str) -> OctavoError:
        """The error to raise for a file that had to be sealed and could not be."""
        if self.closing:
            return Closed("the store was closed meanwhile")
        why = self._not_sealed
        told = storage_error(self.disk.reason(why), path) if isinstance(why, OSError) else why
        if isinstance(told, StorageFull):
            return told
        return self.failed or told or StorageFailed(f"{path} could not be sealed: see the log")

    # ------------------------------------------------------------ durability, outside any turn

    def make_durable(self, sqn: int, timeout: float = 600.0) -> None:
        """Return when every record up to ``sqn`` (inclusive) is durable.

        At most one fsync for each file that is not yet durable, shared by all who wait. Raises
        StorageFailed, also if the journal failed elsewhere: after a failed fsync, a successful
        one means nothing.
        """
        self.crowd.rested()
        for file in reversed(self.view.files):
            if file.state is State.SEALED:
                return
            if file.base <= sqn:
                end = file.end_of(sqn)
                if self.failed is not None and file.commit.durable < end:
                    raise self.failed
                try:
                    file.commit.wait_durable(end, timeout)
                except StorageFailed as failed:
                    self.poison(failed)  # even if it is a rolled file that could not be synced
                    raise

    @property
    def last_sqn(self) -> int:
        """The newest sqn given; 0 if there was none."""
        active = self.active
        return active.base + len(active.offsets) - 2 if active is not None else self._last

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Make all durable, seal what the next start would take long to scan, and enter the exact
        next sqn in the manifest."""
        self.closing = True
        active = self.active
        if active is not None:
            self._last = self.last_sqn
            try:
                self.make_durable(self._last, 60.0)
                if self.failed is None:
                    if not resumes(active.offsets):
                        active.roll(map_to_roll(self, active))
                        self.unsealed.append(active)
                    added = self._seal_all()
                    if self.failed is None:
                        self.commit(self.manifest.edit(added, ceiling=self._last + 1))
            except StorageFull as full:
                log.warning("%s; the next opening looks at the journal's end", full)
            finally:
                self.active = None
        self.change_log.close()

    def _seal_all(self) -> tuple[JournalEntry, ...]:
        """Seal the files that wait for it, oldest first, up to one that fails; their entries."""
        added = []
        for file in self.unsealed:
            try:
                added.append(file.actor_ref.call(JournalFile.seal_now, self.runner))
            except (OctavoError, OSError) as error:
                log.warning("%s is left to be sealed at the next start: %s", file.path, error)
                if isinstance(error, StorageFailed):
                    self.poison(error)
                self.make_durable(self._last, 60.0)  # syncs again if a worker was killed at it
                break
        return tuple(added)
