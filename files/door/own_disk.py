"""The disk of a store's owner: it changes no names once the store's directory no longer stands
where it was opened.

Somebody may move an open store, or put a backup or a new store in its place. Then the names there
are not the old owner's: what it made would be taken in by another store, and what it removed would
be that store's file of the same name.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from octavo.files.door.disk import Disk, RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.files.door.open_file import Descriptor, open_directory, sync_directory, untraced
from octavo.files.errors import storage_error

P = ParamSpec("P")
T = TypeVar("T")


def _if_it_stands(
    change: Callable[Concatenate[RealDisk, P], T],
) -> Callable[Concatenate[OwnDisk, P], T]:
    """The same change of names, refused once another directory stands where the lock was taken."""

    @wraps(change)
    def made(self: OwnDisk, /, *args: P.args, **given: P.kwargs) -> T:
        self._lock.refuse_replaced()
        return change(self, *args, **given)

    return made


class OwnDisk(RealDisk):
    """Changes no name once another directory stands where the lock was taken, for two more system
    calls a change. Reading goes on: what is open stays open, and for the rest errors say why."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock
        self._held: dict[str, Descriptor] = {}

    create = _if_it_stands(RealDisk.create)
    reopen = _if_it_stands(RealDisk.reopen)
    rename = _if_it_stands(RealDisk.rename)
    link = _if_it_stands(RealDisk.link)
    unlink = _if_it_stands(RealDisk.unlink)
    rmdir = _if_it_stands(RealDisk.rmdir)
    _make_directory = _if_it_stands(RealDisk._make_directory)

    def map(self, path: str) -> mmap.mmap | bytes:
        """As any disk's; but a file that is missing because the whole store is gone is no damage:
        that raises a storage error."""
        try:
            return super().map(path)
        except FileNotFoundError:
            try:
                self._lock.refuse_replaced()
            except OSError as elsewhere:
                raise storage_error(elsewhere, path) from elsewhere
            raise

    def reason(self, error: OSError) -> OSError:
        """As any disk's; for a missing file, where the whole store is gone, the error that says
        so."""
        if isinstance(error, FileNotFoundError):
            try:
                self._lock.refuse_replaced()
            except OSError as elsewhere:
                return elsewhere
        return error

    def sync_dir(self, path: str) -> None:
        self._lock.refuse_replaced()
        held = self._held.get(path)
        if held is None:
            super().sync_dir(path)
            return
        try:
            sync_directory(held)
        except OSError as error:
            del held
            raise untraced(error, path) from None

    def hold(self, path: str) -> None:
        if path not in self._held:
            self._held[path] = Descriptor(open_directory(path))

    def let_go(self, path: str) -> None:
        self._held.pop(path, None)


def owned(disk: Disk, lock: FileLock) -> Disk:
    """The disk for the holder of a store's lock; a simulated disk is given back as it is."""
    return OwnDisk(lock) if type(disk) is RealDisk else disk
