"""The change log: how an immutable value that changes by small edits is made durable.

A value (a manifest) is kept as a *snapshot*, all of it, and the *changes* since, one small
record each. The log does not know what either means. Files are of one epoch each: whoever opens
the log takes a higher epoch than any before and writes a snapshot first, the *barrier* behind
which the older epochs' writes no longer count. A new file begins

- with each snapshot, which counts only once it was read back and found equal;
- after each write that failed, since nobody knows what that write left behind;
- when the file has reached its size limit.

The file before is never touched again. The previous snapshot and what followed it are kept until
the next snapshot, so that there is always something to fall back to.

How files look is in log_file.py, what is believed when they are read again in log_history.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from octavo.files.door.disk import AppendFile, Disk
from octavo.files.errors import (
    Closed,
    Corruption,
    Fenced,
    Misuse,
    OctavoError,
    StorageFailed,
    StorageFull,
    storage_error,
)
from octavo.files.messages import messages_of
from octavo.manifest.log_file import (
    CHANGE,
    FULL_BYTES,
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    RECORD_BYTES,
    SNAPSHOT,
    FileId,
    header,
    record,
)
from octavo.manifest.log_history import Recovered, files_in, read_file, recover

__all__ = ["ChangeLog", "Limits", "Recovered", "recover", "recover_whole", "settle"]

log = messages_of("octavo.change_log")

SNAPSHOT_ATTEMPTS = 3
"""How often a snapshot is tried, each time under the next name."""
READERS_ATTEMPTS = 4
"""How often a reader, which has no lock, reads a log before it takes something to be lost."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a log begins a new file or asks for a snapshot."""

    file_bytes: int = FULL_BYTES
    """A file of this size is not continued; one record may pass it."""
    snapshot_changes: int = 100
    snapshot_bytes: int = 64 << 10
    """A snapshot is due after that many changes *and* bytes, and not before the changes have
    grown as large as the last snapshot: so the bytes written stay within twice the changes'."""


def recover_whole(disk: Disk, directory: str) -> Recovered:
    """Recover as ``recover`` does, for a reader without the lock: tries again if something seems
    lost, as when the store is opened meanwhile. Raises Corruption if it is.
    """
    for _ in range(READERS_ATTEMPTS):
        found = recover(disk, directory)
        if not found.damaged:
            return found
    raise Corruption(
        directory, 0, "something was lost; open the store for writing to have it recovered"
    )


def settle(disk: Disk, directory: str) -> None:
    """Make a log durable that another process may be writing: a change can be seen before its
    writer has synced it. Files before the newest are durable. Raises OSError."""
    while disk.exists(directory) and (files := files_in(disk, directory)[0]):
        with suppress(FileNotFoundError):  # a newer one replaced it
            return disk.sync_file(f"{directory}/{files[-1].name}")


class _Started(NamedTuple):
    """A file that was begun, durably."""

    who: FileId
    path: str
    file: AppendFile
    content: bytes


class ChangeLog:
    """The writing end of a log, for one epoch. One thread at a time.

    Get one with ``begin``. A change whose ``append`` raised is not in the log. Where that was
    StorageFull or Misuse, it never will be; else it may be found there after a crash, as if it had
    succeeded, unless another one was appended since.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        epoch: int,
        parent: tuple[int, int],
        previous: Sequence[str],
        limits: Limits,
    ) -> None:
        self.directory = directory
        self.epoch = epoch
        self.sequence = 0
        """Of the last change that is in."""
        self.limits = limits
        self.bytes_written = 0
        """By this object, snapshots included."""
        self._disk = disk
        self._parent = parent
        self._previous = list(previous)  # names of the generation before
        self._current: list[str] = []  # names since the newest snapshot, failed ones too
        self._numbers = 0
        self._file: AppendFile | None = None  # None: the next record begins a new file
        self._seed = 0
        self._size = 0
        self._changes = 0  # since the last snapshot
        self._bytes = 0
        self._due_bytes = limits.snapshot_bytes
        self._closed = False

    @classmethod
    def begin(
        cls,
        disk: Disk,
        directory: str,
        epoch: int,
        snapshot: bytes,
        *,
        limits: Limits | None = None,
    ) -> ChangeLog:
        """Take the log over with a new epoch, whose first record is ``snapshot``.

        On return the snapshot is durable and was read back, and files that are older than the
        generation before it are gone. Reads that generation once more; some five syncs.

        Raises Fenced where a file of this or a higher epoch is there, Misuse, StorageFull,
        StorageFailed, and what ``recover`` raises.
        """
        if epoch < 1:
            raise Misuse(f"epoch={epoch}: must be 1 or more")
        try:
            if not disk.exists(directory):
                disk.mkdir(directory)
            files, _ = files_in(disk, directory)
            if files and files[-1].epoch >= epoch:
                raise Fenced(
                    f"{directory}: epoch {files[-1].epoch} is there already, ours is {epoch}: "
                    "another owner has taken the store over; close it"
                )
            found = recover(disk, directory)
            oldest = found.files[0] if found.files else FileId(0, 0)
            previous = [who.name for who in files if who >= oldest]
            parent = (found.state_epoch, found.sequence)
            made = cls(disk, directory, epoch, parent, previous, limits or Limits())
            made._check(snapshot)
            made._write_snapshot(snapshot)
        except OSError as error:
            raise storage_error(error, f"{directory}: the log cannot be begun") from error
        made._remove([who.name for who in files if who < oldest])
        return made

    @property
    def snapshot_due(self) -> bool:
        """Whether the changes since the last snapshot are worth a new one."""
        return self._changes >= self.limits.snapshot_changes and self._bytes > self._due_bytes

    def append(self, payload: bytes) -> None:
        """Add one change, which is durable on return.

        One write and one fdatasync; the first change after a failure or a full file also a new
        file and a directory sync. Raises Misuse, Closed, StorageFull, StorageFailed; the change
        is not in then, and the next one goes to a new file.
        """
        self._check(payload)
        number = self.sequence + 1
        # Made ahead: once the change is in, a lack of memory must not report that it is not.
        changes, size = self._changes + 1, self._bytes + RECORD_BYTES + len(payload)
        try:
            if self._file is None or self._size >= self.limits.file_bytes:
                self._adopt(self._new_file(CHANGE, self.sequence, payload))
                self.sequence = number
            else:
                self._append(self._file, number, payload)
        except OSError as error:
            what = f"{self.directory}: change {number} cannot be logged"
            raise storage_error(error, what) from error
        self._changes, self._bytes = changes, size

    def snapshot(self, payload: bytes) -> None:
        """Write the whole value, as it is after every change appended so far.

        On return it is durable and was read back; the generation before the previous one is
        removed. Raises as ``append``: the changes that are in stay in, the log can go on, and
        the next snapshot is due later.
        """
        self._check(payload)
        try:
            self._write_snapshot(payload)
        except (OSError, OctavoError) as error:
            self._changes = 0
            self._due_bytes = self._bytes + max(self._due_bytes, self.limits.snapshot_bytes)
            if isinstance(error, OSError):
                what = f"{self.directory}: the snapshot cannot be written"
                raise storage_error(error, what) from error
            raise

    def snapshot_if_due(self, encoded: Callable[[], bytes]) -> None:
        """Write the whole value if a snapshot is due. If disk or memory is full, that is put off,
        since all changes are in; other errors as ``snapshot``."""
        if self.snapshot_due:
            try:
                self.snapshot(encoded())
            except (StorageFull, MemoryError) as full:
                log.warning("%r; the log goes on without a new snapshot", full)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._closed = True
        file, self._file = self._file, None
        if file is not None:
            file.close()

    # ------------------------------------------------------------ changes

    def _check(self, payload: bytes) -> None:
        if self._closed:
            raise Closed("the change log was closed")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise Misuse(f"payload of {len(payload)} bytes; allowed are {MAX_PAYLOAD_BYTES}")

    def _append(self, file: AppendFile, number: int, payload: bytes) -> None:
        # Until the write is known to be good the log has no file: whatever interrupts it, be it
        # a KeyboardInterrupt, what follows goes to a new file that replaces this record.
        self._file = None
        framed = record(self._seed, self._size, CHANGE, self.epoch, number, payload)
        whole = False
        try:
            file.write_all(framed)
            whole = True
            file.sync()
        except OSError as error:
            with closing(file), self._taking_back(error, whole):
                file.truncate(self._size)
                file.sync()
            raise
        self._size += len(framed)
        self.bytes_written += len(framed)
        self.sequence = number
        self._file = file

    def _adopt(self, started: _Started) -> None:
        size = len(started.content)
        self._seed, self._size = started.who.seed, size
        self._file = started.file

    @contextmanager
    def _taking_back(self, error: OSError, whole: bool) -> Iterator[None]:
        """Context in which a change whose write failed is taken back, durably, so that no crash
        brings it to light. Raises StorageFailed if that fails, too, and the change may be
        ``whole``."""
        try:
            yield
        except OSError as again:
            if whole:
                raise StorageFailed(
                    f"{self.directory}: {error}, and what was written cannot be taken back: "
                    f"{again}; close the store and reopen it"
                ) from error

    # ------------------------------------------------------------ files

    def _new_file(self, begins: int, follows: int, payload: bytes) -> _Started:
        """Begin a file with this record, durably, name and all. Raises OSError and Fenced."""
        old, self._file = self._file, None
        if old is not None:
            old.close()
        self._numbers += 1
        who = FileId(self.epoch, self._numbers)
        path = f"{self.directory}/{who.name}"
        sequence = follows + (begins == CHANGE)
        content = header(who, begins, follows, self._parent)
        content += record(who.seed, HEADER_BYTES, begins, self.epoch, sequence, payload)
        try:
            file = self._disk.create(path)
        except FileExistsError:
            raise Fenced(
                f"{path} is there already: another owner has taken the store over; close it"
            ) from None
        self._current.append(who.name)
        whole = False
        try:
            file.write_all(content)
            self.bytes_written += len(content)
            whole = begins == CHANGE  # that a snapshot comes to light later does no harm
            file.sync()
            self._disk.sync_dir(self.directory)
        except BaseException as error:
            file.close()
            if isinstance(error, OSError):
                with self._taking_back(error, whole):
                    self._disk.unlink(path)
                    self._disk.sync_dir(self.directory)
            raise
        return _Started(who, path, file, content)

    def _write_snapshot(self, payload: bytes) -> None:
        """Begin a new generation. If that raises OSError or OctavoError, the old one stays."""
        older = self._current
        self._current = []
        try:
            started = self._tried_snapshot(payload)
        except BaseException:
            self._current = older + self._current
            raise
        self._changes = 0
        self._bytes = 0
        self._due_bytes = max(self.limits.snapshot_bytes, len(payload))
        self._adopt(started)
        if older:
            self._remove(self._previous)
            self._previous = older

    def _tried_snapshot(self, payload: bytes) -> _Started:
        left = SNAPSHOT_ATTEMPTS
        while True:
            left -= 1
            started: _Started | None = None
            try:
                started = self._new_file(SNAPSHOT, self.sequence, payload)
                if read_file(self._disk, started.path) == started.content:
                    return started
                wrong: OSError | OctavoError = StorageFailed(
                    f"{started.path}: a snapshot reads back otherwise than it was written"
                )
            except Fenced:
                raise
            except (OSError, OctavoError) as error:
                wrong = error
            if started is not None:
                started.file.close()
            if not left:
                raise wrong
            log.warning("%s: snapshot attempt failed: %s", self.directory, wrong)

    def _remove(self, names: Sequence[str]) -> None:
        """Remove files that no recovery needs. One that stays is removed, or ignored, later."""
        for name in names:
            try:
                self._disk.unlink(f"{self.directory}/{name}")
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("%s/%s cannot be removed: %s", self.directory, name, error)
