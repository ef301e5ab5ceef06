"""The mark of a failed fsync, and what the next opening does about it.

After an fsync that failed the system may keep what it could not write in its page cache, call it
clean, and say at the next fsync that all is well. So whoever opens the store next reads bytes, and
names, that a power cut may still take. The mark says so. It needs no fsync of its own: it is to be
seen as long as that page cache is, and where a power cut took it there is nothing to doubt, since
what is read then comes from the disk.

An opening that finds the mark copies each journal file that the manifest does not have to a new
file under the same name: new pages, a new name, fsyncs that mean something. If one of these fails,
so does the opening, and the mark stays.

A process that may only read the store, or whose disk is full, cannot leave the mark. Then at least
that process knows.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Container, Iterator
from weakref import WeakKeyDictionary

from octavo.files.door.copying import set_apart
from octavo.files.door.disk import Disk, RealDisk
from octavo.files.errors import (
    OUT_OF_DESCRIPTORS,
    OctavoError,
    StorageFailed,
    call_behind,
    storage_error,
)
from octavo.files.journal import journal_names
from octavo.files.messages import messages_of

log = messages_of("octavo.journal")

UNSYNCED = "UNSYNCED"
_NEVER_BEGUN = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSYS, *OUT_OF_DESCRIPTORS)
"""Errors of a file that could not even be opened, or of a call that there is not here."""
_unmarked: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
"""Journals in which an fsync of this process failed, and no mark could be left."""


_ADVICE = (
    "its newest records may not be durable; open the store for writing, which writes them anew"
)
_NOT_THERE = (
    "its newest records may not be durable, and nothing can be written there any more; mend the "
    "file system and mount it again, or make a store elsewhere of what can be read: octavo.restore "
    "with copy=True, octavo restore --copy"
)
"""Where a file system has failed, and takes nothing since: no store is opened for writing there."""


def mark(disk: Disk, directory: str) -> bool:
    """Mark that an fsync of the journal in ``directory`` failed; returns whether that was possible.
    Raises nothing."""
    try:
        disk.create(f"{directory}/{UNSYNCED}").close()
    except FileExistsError:
        return True
    except OSError as error:
        log.error(
            "%s: an fsync failed, and the next opening could not be told so: %s", directory, error
        )
        return False
    return True


@contextlib.contextmanager
def marking(disk: Disk, directory: str) -> Iterator[None]:
    """Context in which a process that is not the owner syncs what is in the journal. If that fails,
    the mark stays behind, since the next sync would report that all is well.

    Raises StorageFailed for that (not OSError, after which a caller might try another way), and
    where the mark is: what is read there is not known to be durable.
    """
    before = sys.exception()
    try:
        yield
    except BaseException as error:
        # Ctrl-C, or what a signal's handler raised, such as TimeoutError, may have replaced it.
        lost = None if isinstance(error, OctavoError) else call_behind(error, before)
        if lost is None or lost.errno in _NEVER_BEGUN:
            raise
        if not mark(disk, directory):
            _known_here(disk).add(directory)
        if lost is not error:
            raise
        advice = _NOT_THERE if lost.errno == errno.EROFS else _ADVICE
        raise StorageFailed(f"{directory}: an fsync failed: {lost}; {advice}") from lost
    # Asked afterwards: an earlier sync there by somebody else may have failed.
    if disk.exists(f"{directory}/{UNSYNCED}"):
        raise StorageFailed(f"{directory}: an fsync failed; {_ADVICE}")
    if directory in _known_here(disk):
        raise StorageFailed(
            f"{directory}: an fsync failed, and no mark of that could be left there; {_ADVICE}, in "
            "this process; or mend the disk, mount it again and begin another process"
        )


def _known_here(disk: Disk) -> set[str]:
    """The unmarked journals; all disks that are the operating system's share them."""
    return _unmarked.setdefault(RealDisk if isinstance(disk, RealDisk) else disk, set())


def written_anew(disk: Disk, directory: str, known: Container[str]) -> list[str]:
    """Write anew, durably, what could not be synced before, if there was such a failure; returns
    notes.

    ``known``: names of files that the manifest has, which are durable. One call where there is no
    mark, else O(bytes of the others). Raises StorageFull, StorageFailed.
    """
    marked = disk.exists(f"{directory}/{UNSYNCED}")
    if not marked and directory not in _known_here(disk):
        return []
    names = [
        name
        for name in disk.listdir(directory)
        if name not in known and journal_names.identity(name) is not None
    ]
    try:
        for name in names:
            set_apart(disk, f"{directory}/{name}")
        disk.sync_dir(directory)
        if marked:
            disk.unlink(f"{directory}/{UNSYNCED}")
    except OSError as error:
        raise storage_error(error, directory) from error
    _known_here(disk).discard(directory)
    note = f"{directory}: an fsync had failed; {len(names)} journal files were written anew for it"
    return [note]
