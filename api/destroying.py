"""Destroys a store: removes its files, and nothing else."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from octavo.actors.keeping.linking import remove_tree
from octavo.actors.writing.reserve import RESERVE
from octavo.arguments import to_path
from octavo.files.door.disk import PROBE_PREFIX, TEMPORARY_SUFFIX, Disk, RealDisk
from octavo.files.door.file_lock import LOCK, locked
from octavo.files.door.own_disk import owned
from octavo.files.errors import READ_ONLY, Misuse, usable
from octavo.manifest.consumers import CONSUMERS
from octavo.manifest.published import MANIFEST, SNAPSHOTS, directories
from octavo.manifest.store_identity import IDENTITY

_FOLDERS = ("ledger", "journal", SNAPSHOTS, "staging", "inbox", "waste", "damaged")
_FILES = (CONSUMERS, RESERVE, IDENTITY + TEMPORARY_SUFFIX, CONSUMERS + TEMPORARY_SUFFIX)
_ROUNDS = 100
"""How often a folder is gone through again while readers make and remove names there."""
_STAYS = (errno.EBUSY, errno.ENOTDIR, errno.ENOTEMPTY, *READ_ONLY)
"""Errors with which a directory stays: it is a mount point, or a symbolic link; a reader that came
too late has just made a folder there, and will remove it; this user may change nothing in its
parent."""


def destroy(path: str | os.PathLike[str]) -> None:
    """Remove the store in the directory ``path``, with all its data.

    Nothing else is removed: if other files are in the directory, it stays with them. It also stays
    if it is a mount point, if ``path`` is a symbolic link, or if this user may not remove it. What
    marks a store is removed last, so a destruction that was cut short can be repeated. O(files).
    Raises Misuse if there is no store or it cannot be used, StoreLocked if it is open, OSError.
    """
    where = to_path("path", path)
    with usable("path", where):
        destroy_on(RealDisk(), where)


def destroy_on(disk: Disk, path: str) -> None:
    """As ``destroy``, on a given disk."""
    if not disk.exists(f"{path}/{IDENTITY}") and not _all_but_gone(disk, path):
        raise Misuse(f"path={path!r} holds no store")
    with locked(disk, f"{path}/{LOCK}") as lock:
        own = owned(disk, lock)  # checks the lock: another store may be put there meanwhile
        _remove_files(own, path)
        own.sync_dir(path)
        with suppress(FileNotFoundError):  # missing if only the lock was left
            own.unlink(f"{path}/{IDENTITY}")
        _remove_files(own, path)  # what readers left meanwhile; from now on none can come
        own.unlink(f"{path}/{LOCK}")
    if not disk.listdir(path):
        try:
            disk.rmdir(path)
        except OSError as error:
            if error.errno not in _STAYS:
                raise
        else:
            disk.sync_dir(os.path.dirname(path))


def _all_but_gone(disk: Disk, path: str) -> bool:
    """Whether only the lock is there, as a destruction that was cut short may leave it."""
    return disk.exists(f"{path}/{LOCK}") and disk.listdir(path) == [LOCK]


def _remove_files(disk: Disk, path: str) -> None:
    """Remove all but what marks a store."""
    for snapshot in () if disk.is_link(f"{path}/{SNAPSHOTS}") else directories(disk, path):
        with suppress(OSError):  # first of all: or its readers would report damage
            disk.unlink(f"{snapshot}/{MANIFEST}")
    for folder in _FOLDERS:
        _remove_folder(disk, f"{path}/{folder}")
    for file in disk.listdir(path):
        if file in _FILES or file.startswith(PROBE_PREFIX):
            disk.unlink(f"{path}/{file}")


def _remove_folder(disk: Disk, folder: str) -> None:
    """Remove a folder, trying again while readers that come make and remove names in it."""
    for rounds in reversed(range(_ROUNDS)):
        try:
            if disk.exists(folder):
                remove_tree(disk, folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or not rounds:
                raise
