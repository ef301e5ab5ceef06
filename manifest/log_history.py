"""Recovers from a change log the newest state that can be vouched for.

A history is a snapshot and the changes after it, all of one epoch. The rules:

- The highest epoch that has a whole snapshot counts; its first snapshot is a *barrier*: what an
  older epoch writes later, a zombie, is never looked at. An epoch without a whole snapshot died
  before its barrier and leaves no trace.
- Within the epoch the newest whole snapshot counts, and then the changes in order of their
  sequence numbers without a gap. A change that is met again is ignored.
- A file says which change it follows. A change of an older file with a higher number is the
  trace of a write that was reported as failed, and is dropped: what follows replaced it.
- A snapshot that is damaged is no loss where the older snapshot and the changes behind it lead
  to the same number.
- What a power cut may have left of an unfinished write is noted and ignored. Anything else that
  is missing is damage: the history ends before it, and ``damaged`` is set.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, storage_error
from octavo.manifest.log_file import (
    CHANGE,
    MAX_FILE_BYTES,
    SNAPSHOT,
    FileId,
    LogFile,
    Record,
    id_of,
    parse,
)

READ_ATTEMPTS = 3
"""How often a file is read before its I/O error counts. One that is not there is not retried."""


@dataclass(slots=True)
class Recovered:
    """What a log says: apply ``changes`` to ``snapshot`` in order."""

    snapshot: bytes | None = None
    """None: there is no state; begin with an empty value."""
    changes: list[bytes] = field(default_factory=list)
    epoch: int = 0
    """The highest epoch that was seen, whole or not; 0: none. The next one to take is above."""
    notes: list[str] = field(default_factory=list)
    """What was ignored, and why."""
    state_epoch: int = 0
    """The epoch that wrote the state; lower than ``epoch`` if a later one came to nothing."""
    sequence: int = 0
    """Of the last change, within that epoch."""
    files: list[FileId] = field(default_factory=list)
    """Those that the state needs, oldest first."""
    damaged: bool = False
    """Something durable was lost, or may have been: the state is an earlier one. What a power
    cut leaves of an unfinished write is not damage."""


def files_in(disk: Disk, directory: str) -> tuple[list[FileId], list[str]]:
    """(the log's files in the order of writing, names that are something else)."""
    files: list[FileId] = []
    others: list[str] = []
    for name in disk.listdir(directory):
        who = id_of(name)
        if who is None:
            others.append(name)
        else:
            files.append(who)
    return sorted(files), others


def recover(disk: Disk, directory: str) -> Recovered:
    """Read the log in ``directory``; changes nothing. An absent directory is an empty log.

    Reads the files of one generation: O(last snapshot + changes since); more only where they
    are damaged. Raises UnsupportedFormat (written by a newer release), Corruption (whole records
    that contradict each other), StorageFailed (I/O errors).
    """
    found = Recovered()
    if not disk.exists(directory):
        return found
    files, others = files_in(disk, directory)
    found.notes += [f"{directory}/{name}: not a file of this log; ignored" for name in others]
    found.epoch = files[-1].epoch if files else 0
    limits: dict[int, int] = {}  # epoch: last change that its successor took over
    for epoch in sorted({who.epoch for who in files}, reverse=True):
        _Epoch(disk, directory, found, limits).read([who for who in files if who.epoch == epoch])
        if found.snapshot is not None:
            break
    return found


class _Epoch:
    """One epoch's files, as a part of a history."""

    def __init__(
        self, disk: Disk, directory: str, found: Recovered, limits: dict[int, int]
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.found = found
        self.limits = limits

    def read(self, files: list[FileId]) -> None:
        """Add this epoch's history to what was found, or a note of why it has none."""
        parsed: list[LogFile] = []
        for who in reversed(files):
            file = self._file(who)
            parsed.insert(0, file)
            at = file.last_snapshot()
            if at is not None:
                self._replay(parsed, at)
                return
        self._without_barrier(parsed)

    def _path(self, who: FileId) -> str:
        return f"{self.directory}/{who.name}"

    def _note(self, who: FileId, what: str) -> None:
        self.found.notes.append(f"{self._path(who)}{what}")

    def _file(self, who: FileId) -> LogFile:
        try:
            content = read_file(self.disk, self._path(who))
        except Corruption as wrong:  # not a file of ours, or too large to be one
            self.found.notes.append(f"{wrong}: ignored")
            self.found.damaged = True
            return LogFile(who)
        file = parse(who, self._path(who), content)
        if file.header is None:
            kind = "cut short" if file.header_torn else "damaged"
            self._note(who, f": its header is {kind}")
        for wound in file.wounds:
            what = "cut short" if wound.torn else "damaged"
            length = wound.end - wound.start
            self._note(who, f" at offset {wound.start}: a record is {what} ({length} bytes)")
        return file

    def _without_barrier(self, files: list[LogFile]) -> None:
        """No whole snapshot: either the epoch never began, or its state is lost."""
        found = self.found
        began = any(
            file.records
            or (file.header is not None and file.header.begins == CHANGE)
            or (file.header is None and not file.header_torn)
            or any(not wound.torn for wound in file.wounds)
            for file in files
        )
        epoch = files[0].who.epoch
        if not began:
            found.notes.append(
                f"{self.directory}: epoch {epoch} ended before its first snapshot was whole; "
                "the state before it counts"
            )
            return
        found.damaged = True
        found.notes.append(
            f"{self.directory}: epoch {epoch} has no whole snapshot; an older state is used"
        )
        for file in files:
            if file.header is not None:
                parent, sequence = file.header.parent
                self.limits[parent] = sequence
                break

    # ------------------------------------------------------------ following the changes

    def _replay(self, files: list[LogFile], at: int) -> None:
        """Follow the changes from the newest whole snapshot on, record ``at`` of the first of
        ``files``."""
        found = self.found
        base = files[0].records[at]
        found.snapshot = base.payload
        found.state_epoch = files[0].who.epoch
        found.files = [file.who for file in files]
        chain = _Chain(base.sequence, found.changes)
        loss = self._take(files[0], files[0].records[at + 1 :], base.offset, chain)
        unvouched = False
        for file in files[1:]:
            follows = file.follows
            if follows is None:
                # Its beginning failed. If it was damaged later instead, the next file shows that.
                loss = loss or ("" if file.header_torn else f"{self._path(file.who)} is lost")
                unvouched = True
                continue
            if follows > chain.reached:
                loss = f"changes {chain.reached + 1} to {follows} are lost"
                unvouched = True
                break
            dropped = chain.cut(follows)
            if dropped:
                self._note(file.who, f" replaces {dropped} changes whose write had failed")
            reached = chain.reached
            # Whoever wrote this file knew what it follows: nothing before it was lost.
            loss = self._take(file, file.records, 0, chain)
            unvouched = file.beginning_lost and not dropped and chain.reached == reached
        if loss and unvouched:
            # The last write before the file that is lost may be one that failed.
            chain.cut(chain.reached - 1)
        limit = self.limits.get(found.state_epoch)
        late = 0 if limit is None else chain.cut(limit)
        if late:
            found.notes.append(
                f"{self.directory}: {late} changes that epoch {found.state_epoch} wrote "
                "after its successor began are ignored"
            )
        if loss:
            found.damaged = True
            found.notes.append(f"{loss}; the state after change {chain.reached} is used")
        found.sequence = chain.reached

    def _take(self, file: LogFile, records: list[Record], behind: int, chain: _Chain) -> str:
        """Take over a file's changes as far as they have no gap. Says what was lost, if any."""
        for record in records:
            if record.sequence <= chain.reached:
                self._note(
                    file.who,
                    f" at offset {record.offset}: change {record.sequence} again; ignored",
                )
            elif record.sequence == chain.reached + 1:
                chain.changes.append(record.payload)
            else:
                return self._gap(file, record, behind, chain)
            behind = record.offset
        for wound in file.wounds:
            # A lost snapshot that the changes before it replace takes nothing with it.
            if wound.start > behind and not wound.torn and wound.kind != SNAPSHOT:
                return f"{self._path(file.who)}: what stood at offset {wound.start} is lost"
        return ""

    def _gap(self, file: LogFile, there: Record, behind: int, chain: _Chain) -> str:
        if not any(behind < wound.start < there.offset for wound in file.wounds):
            raise Corruption(
                self._path(file.who),
                there.offset,
                "a whole record, but not the next change",
                expected=chain.reached + 1,
                found=there.sequence,
            )
        return (
            f"{self._path(file.who)}: changes {chain.reached + 1} to {there.sequence - 1} are lost"
        )


class _Chain:
    """Changes without a gap behind a snapshot."""

    def __init__(self, base: int, changes: list[bytes]) -> None:
        self.base = base
        self.changes = changes

    @property
    def reached(self) -> int:
        """Sequence of the last change that is in."""
        return self.base + len(self.changes)

    def cut(self, sequence: int) -> int:
        """Drop the changes above ``sequence``; returns how many there were."""
        keep = max(sequence - self.base, 0)
        dropped = max(len(self.changes) - keep, 0)
        del self.changes[keep:]
        return dropped


def read_file(disk: Disk, path: str) -> bytes:
    """A whole file of the log. Raises Corruption (no file, or too large) and StorageFailed."""
    left = READ_ATTEMPTS
    while True:
        left -= 1
        try:
            return disk.read(path, MAX_FILE_BYTES)
        except FileNotFoundError as error:
            raise Corruption(
                path, 0, "not a file", expected="regular file", found="none"
            ) from error
        except OSError as error:
            if not left:
                raise storage_error(error, f"{path} cannot be read") from error
