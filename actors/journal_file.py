"""The journal-file actor: one file of the journal, from its first record to its removal."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import ENOENT
from mmap import mmap
from typing import TYPE_CHECKING, TypeVar

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.file_actor import FileActor
from octavo.actors.open_files import OpenFiles, Pread
from octavo.actors.reading.growing_map import GrowingMap
from octavo.actors.reading.journal_offsets import first_and_last, sealed_offsets
from octavo.actors.turns.messages import interruptible
from octavo.actors.turns.runtime import Ref
from octavo.actors.worker import JobRunner
from octavo.actors.writing.group_commit import NOT_WRITTEN, GroupCommit
from octavo.actors.writing.operation import Data, joined, standing
from octavo.actors.writing.room_ahead import LARGE_BYTES, NO_MAP, WIDE_FROM_BYTES, RoomAhead
from octavo.files.door.disk import AppendFile, Disk
from octavo.files.errors import Corruption, OctavoError, StorageFailed, call_behind, storage_error
from octavo.files.jobs.worker import no_memory
from octavo.files.journal import cdb, journal_names, record, short_value
from octavo.files.journal.record import FRAME_BYTES
from octavo.files.journal.sparse_offsets import numbers_of
from octavo.files.kernels.cold_pages import COLD, scattered
from octavo.files.later import loading
from octavo.files.lifecycle import State, after
from octavo.files.unbroken import unbroken
from octavo.manifest.journal_manifest import JournalEntry

if TYPE_CHECKING:
    from octavo.actors.inker import Inker
    from octavo.actors.latency import Latency

T = TypeVar("T")

_NONE: array[int] = array("I")
Reading = tuple[mmap | bytes | None, Sequence[int]]
_SYNCED_OFTEN_BYTES = 64 << 10
_READ_BYTES = 1 << 30  # a system call reads no more than 2 GiB


class JournalFile(FileActor):
    """Owns one journal file. Appends are in the Bookie's turn; anyone reads, without a turn.

    Readers use ``reading``: (map, or None while the file grows or is not open; offsets). A record
    is published by the append of its end to the offsets, after its bytes are in the file.
    """

    def __init__(
        self, disk: Disk, directory: str, name: str, base_sqn: int, seed: int, open_files: OpenFiles
    ) -> None:
        super().__init__(disk, directory, name, open_files)
        self.base = base_sqn
        self.seed = seed
        self.offsets: array[int] = _NONE  # until it is sealed
        self.reading: Reading = (None, _NONE)
        self.file: AppendFile | None = None
        self.commit = NOT_WRITTEN
        self.latency: Latency | None = None  # of its syncs
        self.failed: OctavoError | None = None
        self.pread: Pread | None = None
        self.growing = GrowingMap(self.map_now, lambda: open_files.mapped(self))
        self._name_durable = self._expects = self.missing = False
        self._ahead = RoomAhead()
        self.write_map = NO_MAP  # for a small put that ends within it, and in time
        self.full = cdb.MAX_FILE_BYTES  # at this size it is time to roll
        self.bound = 0  # a put that ends there, or behind, has ``widened`` called
        self.entry: JournalEntry | None = None  # once sealed since the store was opened
        self.damage: Corruption | None = None  # why a sealed file is read record by record
        self._unsealable: StorageFailed | None = None
        self._not_synced = StorageFailed(f"{name}: a sync failed; close the store and reopen it")

    # ------------------------------------------------------------ writing

    def create(self, header: cdb.FileHeader) -> None:
        """Make the file with its first pair. One create, one write, no fsync."""
        self.state = after(self.state, "create", self.name)
        try:
            self.file = self.disk.create(self.path)
            self.file.write_all(cdb.beginning(header))
        except OSError as error:
            if self.file is not None:
                self.file.close()
                with suppress(OSError):  # the next start removes an empty file
                    self.disk.unlink(self.path)
            raise storage_error(error, self.path) from error
        self._begin(array("I", (cdb.RECORDS_AT,)))

    def resume(self, offsets: array[int], length: int) -> None:
        """Go on appending behind the records that a scan found whole, in a file of this length."""
        self.state = after(self.state, "create", self.name)
        self.file = self.disk.reopen(self.path, length)
        self._ahead.end = length
        self._begin(offsets)

    def expect(self, length: int) -> None:
        """Set aside room for ``length`` bytes, once; in the Bookie's turn. Not if every few records
        are synced: a put waits for that anyway, and would wait 20 % longer (4 to 8 KiB, ext4)."""
        if not self._expects:
            self._expects = True
            if self.commit.syncs * _SYNCED_OFTEN_BYTES <= self.offsets[-1]:
                self.disk.set_aside(self.path, length)

    def lengthen(self) -> int:
        """RoomAhead.lengthen for this file, in the Bookie's turn; 0 if it takes no more."""
        file = self.file
        if file is None or self.failed is not None:
            return 0
        return self._ahead.lengthen(file, len(self.offsets), self.offsets[-1], self.commit.syncs)

    def widened(self, attention: int, now_ms: int) -> bool:
        """RoomAhead.widen, if a put ended at ``bound`` or behind, in the Bookie's turn. Returns
        whether no more is due: the file is not full, and ``attention`` (an sqn) not reached."""
        file, end, count = self.file, self.offsets[-1], len(self.offsets)
        if end < self.bound or file is None or self.failed is not None:
            return False
        found = self._ahead.widen(file, count, end, self.commit.syncs, self.full, now_ms)
        self.bound, self.write_map = found
        return end < self.full and self.base + count - 2 < attention

    def _begin(self, offsets: array[int]) -> None:
        self.commit = GroupCommit(self._sync, self.latency, offsets[-1])
        self.offsets = offsets
        self.bound = min(self._ahead.begin(len(offsets), offsets[-1], syncs=0), self.full)
        self.reading = (None, offsets)

    def append_encoded(self, data: Data, ends: Sequence[int], atomic: bool = False) -> None:
        """Write records that were encoded for this place. ``ends``: where each ends in the file.

        If this fails or is interrupted, some of them may be records all the same; ``atomic``: all
        or none. In the Bookie's turn, as every append: that alone keeps all others from the
        file's end.
        """
        offsets, ends = self.offsets, array("I", ends)  # an array is appended whole, or not at all
        try:
            if self.failed is not None:
                raise self.failed
            # Not at the file's end: an append whose undo was interrupted may have left bytes there.
            self.write(data, offsets[-1], size := ends[-1] - offsets[-1])
            offsets.extend(ends)
        except BaseException as error:
            self.undo(error, data, ends, atomic)
            raise
        self.commit.appended = ends[-1]
        if size > LARGE_BYTES:
            self.bound = min(ends[-1] + WIDE_FROM_BYTES, self.full)

    def write(self, data: Data, at: int, size: int) -> None:
        """Write records of ``size`` bytes at ``at`` by a call. Raises OSError, StorageFailed."""
        if (file := self.file) is None:
            raise StorageFailed(f"{self.name} is no longer being written")
        taken = file.pwrite(data, at) if isinstance(data, bytes) else file.pwrite_parts(data, at)
        if taken != size:
            if self.failed is not None:  # a sync failed meanwhile
                raise self.failed
            file.pwrite_all(memoryview(joined(data))[taken:], at + taken)

    def undo(
        self, error: BaseException, data: Data, ends: Sequence[int], atomic: bool = False
    ) -> None:
        """Take back what a failed or interrupted append left behind the last record. Whole records
        stay: another process may have read them, so their numbers cannot be given again."""
        self.write_map = NO_MAP  # a write to a map of what was cut off would kill us
        try:
            if self.file is not None and self.failed is None:
                if self.offsets[-1] < ends[-1]:
                    found = standing(self.file, self.offsets[-1], joined(data), ends, atomic)
                    self.offsets.extend(found)
                    self.commit.appended = self.offsets[-1]
                self._ahead.cut(self.file, self.offsets[-1], ends[-1])
        except OSError as worse:
            self.failed = StorageFailed(f"{self.path}: {worse}; close the store and reopen it")
        if isinstance(error, OSError) and error.errno is not None:  # no handler's TimeoutError
            raise self._told(error) from error

    def _told(self, error: OSError) -> OctavoError:
        """The error that a failed write means; new each time, for its frames keep the file open."""
        told = storage_error(error, self.path)
        self.failed = self.failed or (told if isinstance(told, StorageFailed) else None)
        return told if self.failed is None else StorageFailed(*self.failed.args)

    def end_of(self, sqn: int) -> int:
        """Position behind the record of ``sqn``, or behind the last one if it is not here; 0
        once the file is sealed, and so durable."""
        offsets = self.offsets
        at = sqn - self.base + 1
        return offsets[at] if at < len(offsets) else offsets[-1] if offsets else 0

    def _sync(self) -> None:
        """Make everything appended so far durable, and the file's name once. Outside any turn.

        If that fails, what was written since the last sync may be gone: this file takes no more.
        That is noted before anything is called, since a pending Ctrl-C would be raised there."""
        before = sys.exception()
        try:
            if self.file is not None:
                self.file.sync()
            if not self._name_durable:
                self.disk.sync_dir(self.directory)
                self._name_durable = True
        except OSError as error:
            lost = call_behind(error, before) if error.errno is None else error
            if lost is not None:
                self.commit.failure, self.failed = lost, self._not_synced
            raise
        except BaseException as interrupt:
            if (lost := call_behind(interrupt, before)) is not None:
                self.commit.failure, self.failed = lost, self._not_synced
            raise

    # ------------------------------------------------------------ the turn of the tide

    def roll(self, mapped: mmap | bytes) -> None:
        """No record comes after this. Reads go on from a map of the file: see map_to_roll."""
        self.state, self.write_map = after(self.state, "roll", self.name), NO_MAP
        self.reading = (mapped, self.offsets)
        self.growing.forget()
        self.open_files.settle(self)

    def recovered(self, offsets: array[int], length: int) -> None:
        """Take over a file that a stopped process left: whole as far as ``offsets`` goes."""
        self.state = after(self.state, "recover", self.name)
        self.file = self.disk.reopen(self.path, length)
        self._begin(offsets)

    @interruptible
    def seal(self, runner: JobRunner, inker: Ref[Inker]) -> None:
        """Have the worker turn the file into stock CDB, then report to the Inker. Appends and reads
        of the store go on meanwhile."""
        with unbroken, loading:
            from octavo.actors.inker import Inker
        try:
            inker.send(Inker.sealed, self, self.seal_now(runner))
        except (OctavoError, OSError) as error:
            if isinstance(error, StorageFailed):
                inker.actor.poison(error)  # at once: an fsync that succeeds now means nothing
            inker.send(Inker.sealing_failed, self, error)
        except MemoryError:
            inker.send(Inker.sealing_failed, self, no_memory())
        except Exception as error:
            inker.send(Inker.sealing_failed, self, OctavoError(f"{self.path}: {error!r}"))
            raise

    def seal_now(self, runner: JobRunner) -> JournalEntry:
        """Make the file durable and seal it, once; return its entry for the manifest. Raises what
        stopped it; StorageFailed again at every later call, as no later fsync means anything."""
        if self._unsealable is not None:
            raise self._unsealable
        if self.entry is None:
            self.commit.wait_durable(self.offsets[-1], self.DEADLINE_SECONDS)
            count, (first, last) = len(self.offsets) - 1, self._times()
            name = journal_names.when_sealed(self.name)
            try:
                result = runner.run(
                    "seal", self.offsets.tobytes(), directory=self.directory, name=self.name,
                    sealed_name=name, seed=self.seed, first_ms=first, last_ms=last,
                )  # fmt: skip
            except StorageFailed as failed:
                self._unsealable = failed
                raise
            except BaseException:  # a failed fsync may be unheard of: the next one here reports it
                self.commit.durable = 0
                raise
            last_sqn, size = self.base + count - 1, result["bytes"]
            entry = JournalEntry(name, self.base, last_sqn, count, size, self.seed)
            with unbroken:  # or it would be sealed again without its offsets
                self.sealed_as(entry)
            return entry
        return self.entry

    def _times(self) -> tuple[int, int]:
        """Write times of the first and the last record present, ms UTC; 0 if none. O(holes)."""
        first, last = first_and_last(self.offsets)
        if first < 0:
            return 0, 0
        return self.header(self.base + first).time_ms, self.header(self.base + last).time_ms

    def sealed_as(self, entry: JournalEntry) -> None:
        """Read from now on from the stock CDB file that the worker made, described by ``entry``.
        What may run out of memory is done before the first change or after the last."""
        state, reading = after(self.state, "seal", self.name), (None, _NONE)
        self.open_files.dropped(self)
        self.growing.forget()
        file, self.file = self.file, None
        self.state, self.name, self.entry = state, entry.name, entry
        self.commit.durable, self._name_durable = self.commit.appended, True
        self.reading, self.pread, self.offsets = reading, None, _NONE
        if file is not None:
            file.close()

    def opened_sealed(self, *, missing: bool = False) -> None:
        """Take over a sealed file of the manifest; nothing is read until someone asks for a record.
        A ``missing`` file has none: asking for one raises Corruption."""
        self.state = after(self.state, "open", self.name)
        self._name_durable, self.missing = True, missing
        if missing:
            self.reading = (b"", array("I", (cdb.RECORDS_AT,)))

    # ------------------------------------------------------------ reading, in any thread

    def map_now(self) -> mmap | bytes:
        """The file's map. Raises Corruption (missing), FileNotFoundError (compacted away)."""
        return scattered(self.by_name(self.disk.map))

    def by_name(self, found: Callable[[str], T]) -> T:
        """``found`` of the file's path. Raises as ``map_now``."""
        with suppress(FileNotFoundError):
            # A file that is just being sealed has its new name before this actor knows.
            return journal_names.by_either_name(self.path, found)
        if self.state in (State.DELETE_PENDING, State.CLOSED):
            raise FileNotFoundError(ENOENT, "compacted away", self.path)
        raise Corruption(self.path, 0, "the journal file is missing")

    def forget_map(self) -> None:
        """Give up map and offsets; whoever still reads them keeps them alive."""
        self.pread = None
        if self.state is not State.WRITING:
            self.reading = (None, self.offsets)

    def ensure_open(self) -> tuple[mmap | bytes, Sequence[int]]:
        """(map, offsets) of a file that is not being written. Opening a sealed one reads its
        trailer and passes once over its offsets. Raises Corruption."""
        mapped, offsets = self.reading
        if mapped is not None:
            return mapped, offsets
        mapped = self.open_files.opened(self)
        if not offsets:  # only a sealed file is without them
            offsets, self.damage = sealed_offsets(mapped, self.path, self.seed)
        self.reading = (mapped, offsets)
        self.open_files.settle(self)
        return mapped, offsets

    def raw(self, relative: int) -> tuple[bytes | memoryview, int]:
        """(bytes of a record, its offset), by one copy at most and mostly without a system call,
        which would hand the interpreter lock to another thread. Raises Corruption."""
        mapped, offsets = self.reading
        try:
            if relative < 0:  # Python would count it from the end
                raise IndexError
            if mapped is None:
                file = self.file
                if file is not None and self.state is State.WRITING:
                    at = offsets[relative]
                    end = offsets[relative + 1]
                    mapped = self.growing.mapped
                    if end > len(mapped) and end > len(mapped := self.growing.missed()):
                        try:
                            if end - at <= _READ_BYTES:
                                return file.pread_all(end - at, at), at
                            mapped = self.growing.up_to(end)
                        except OSError as error:
                            if file.fd >= 0:
                                raise storage_error(error, self.path) from error
                            mapped, offsets = self.ensure_open()  # sealed or closed meanwhile
                else:
                    mapped, offsets = self.ensure_open()
            at = offsets[relative]
            end = offsets[relative + 1]
        except IndexError:
            raise Corruption(
                self.path, 0, f"no record of sqn {self.base + relative}: a journal file is missing"
            ) from None
        if end - at > 4096:
            return memoryview(mapped)[at:end], at
        return mapped[at:end], at

    def value(self, relative: int, bucket_and_key: bytes, plain: bytes) -> bytes | None:
        """The value of the put of this key, or None. As short_value.value_of, whose lines are
        repeated here for records that are mapped and plain."""
        mapped, offsets = self.reading
        if mapped is None:
            mapped = self.growing.mapped
        if 0 <= relative < len(offsets) - 1:
            at = offsets[relative]
            end = offsets[relative + 1]
            if COLD.left and self.reading[0] and (raw := self.open_files.read(self, at, end - at)):
                return short_value.value_of(raw, 0, len(raw), self.seed ^ at, bucket_and_key, plain)
            value_at = at + FRAME_BYTES + len(bucket_and_key)
            head = mapped[at : value_at - 8]
            if end <= len(mapped):
                if head[19:24] != plain or head[34:] != bucket_and_key or value_at > end:
                    check = self.seed ^ at
                    return short_value.value_of(mapped, at, end, check, bucket_and_key, plain)
                value = mapped[value_at:end]
                h = xxh3(head, self.seed ^ at)
                if xxh3(value, h) & record.LOW_32 == record.unpack_u32(mapped, value_at - 4)[0]:
                    return value
        data, at = self.open_files.one(self, relative) or self.raw(relative)
        return short_value.value_of(data, 0, len(data), self.seed ^ at, bucket_and_key, plain)

    def read(self, sqn: int) -> record.Record:
        """The whole record, every checksum verified. Raises Corruption."""
        data, at = self.raw(sqn - self.base)
        if not data:
            raise Corruption(self.path, at, f"the record of sqn {sqn} was lost to damage")
        return record.decode(data, self.seed ^ at, self.base, self.path, at)

    def header(self, sqn: int) -> record.Header:
        """The record's header, checksum verified; its value is not read. Raises Corruption."""
        data, at = self.raw(sqn - self.base)
        try:
            return record.parse_header(data, self.seed ^ at, len(data))
        except record.NotARecord as wrong:
            raise Corruption(self.path, at, f"journal record: {wrong}") from None

    def sqns(self, first: int, last: int) -> Iterator[int]:
        """Every sqn in [first, last] that has a record, ascending."""
        offsets = self.offsets or self.ensure_open()[1]
        for number in numbers_of(offsets, max(first - self.base, 0), last - self.base + 1):
            yield self.base + number

    def close(self) -> None:
        """Let go of every descriptor. Idempotent."""
        self.state, self.write_map = after(self.state, "close", self.name), NO_MAP
        self.open_files.dropped(self)
        self.growing.forget()
        self.reading, self.pread = (None, _NONE), None
        file, self.file = self.file, None
        if file is not None:
            file.close()
