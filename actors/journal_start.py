"""From one journal file to the next: starting its actor, what the file before it needs, putting a
roll off; and which file the next opening goes on writing."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap
from typing import TYPE_CHECKING

from octavo.actors.journal_file import JournalFile
from octavo.actors.view import JournalView
from octavo.files.errors import OctavoError, StorageFailed, StorageFull, room_for
from octavo.files.journal import cdb
from octavo.files.messages import messages_of

if TYPE_CHECKING:
    from octavo.actors.inker import Inker

log = messages_of("octavo.inker")

_RESUME_BELOW_BYTES = 4 << 20
_RESUME_BELOW_RECORDS = 1 << 14


def resumes(offsets: Sequence[int]) -> bool:
    """Whether an active file with these offsets is so small that the next start scans it and goes
    on writing it; a larger one is sealed as the store closes."""
    return offsets[-1] < _RESUME_BELOW_BYTES and len(offsets) <= _RESUME_BELOW_RECORDS


def started_file(inker: Inker, name: str, base_sqn: int, seed: int) -> JournalFile:
    """Start a journal-file actor; its file is not yet touched."""
    ref = JournalFile.start(inker.disk, inker.directory, name, base_sqn, seed, inker.open_files)
    file: JournalFile = ref.actor
    file.latency = inker.measures.fsync
    file.full = inker.roll_size
    return file


def map_to_roll(inker: Inker, file: JournalFile) -> mmap | bytes:
    """Map a full file, for its reads to go on from, before anything is changed. Raises StorageFull
    if no descriptor is left for it."""
    with room_for("map of a full journal file"):
        return inker.open_files.opened(file)


def retire_empty(inker: Inker, old: JournalFile) -> None:
    """Remove an active file that has no record. In the Inker's turn."""
    old.close()
    inker.disk.unlink(old.path)
    inker.view = JournalView.of(file for file in inker.view.files if file is not old)
    old.actor_ref.stop()  # or each commit into an open store would leave an actor


_LOOK_AGAIN = 1024
"""A roll that could not be done is tried again after so many records ..."""
_LOOK_AGAIN_SHIFT = 3
"""... or after an eighth of a full file's bytes."""


def look_later(inker: Inker, file: JournalFile, why: OctavoError, most: int) -> None:
    """Put off a roll, or raising the ceiling, that failed for ``why``. In the Bookie's turn. The
    active file goes on and counts as full a little later, at ``most`` bytes at the latest, or each
    put would try again. If it has no room for that, it takes no more."""
    if file.full <= inker.roll_size:
        log.warning("%s; the active file goes on for now", why)
    size = file.offsets[-1]
    file.full = min(max(size, inker.roll_size) + (inker.roll_size >> _LOOK_AGAIN_SHIFT), most)
    inker.stop_sqn = inker.last_sqn + 1 + _LOOK_AGAIN
    remedy = "make room and reopen" if isinstance(why, StorageFull) else "close it and reopen"
    # Not Inker.poison, which marks a failed fsync: there was none.
    if inker.stop_sqn + _LOOK_AGAIN > inker.manifest.to_give:
        inker.failed = file.failed = StorageFailed(f"{why}; no sqn can be reserved: {remedy}")
    elif size > most - cdb.SEALING_BYTES * len(file.offsets):
        inker.failed = file.failed = StorageFailed(f"{why}; {file.path} is full: {remedy}")
