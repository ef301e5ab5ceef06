"""The operating system's file systems as the owner of a store uses them: by paths, which lead to
that store only as long as its directory stands where it was opened.

Somebody may move an open store, or put a backup or a new store in its place, and names there are
then none of the old owner's: what it made would be taken in by another store, what it removed would
be that store's file under the same name.
"""

from __future__ import annotations

import mmap

from octavo.files.disk import AppendFile, Disk, RealDisk
from octavo.files.errors import storage_error
from octavo.files.file_lock import FileLock


class OwnDisk(RealDisk):
    """Changes no name once another directory stands where the lock was taken. Two system calls
    more a change. Reading goes on: what is open is open, and what is not is told."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def create(self, path: str) -> AppendFile:
        self._lock.refuse_replaced()
        return super().create(path)

    def reopen(self, path: str, length: int) -> AppendFile:
        self._lock.refuse_replaced()
        return super().reopen(path, length)

    def map(self, path: str) -> mmap.mmap | bytes:
        """As any disk's; a file that is missing because all of them are is not called damage."""
        try:
            return super().map(path)
        except FileNotFoundError:
            try:
                self._lock.refuse_replaced()
            except OSError as elsewhere:
                raise storage_error(elsewhere, path) from elsewhere
            raise

    def rename(self, source: str, target: str) -> None:
        self._lock.refuse_replaced()
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._lock.refuse_replaced()
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self._lock.refuse_replaced()
        super().unlink(path)

    def rmdir(self, path: str) -> None:
        self._lock.refuse_replaced()
        super().rmdir(path)

    def sync_dir(self, path: str) -> None:
        self._lock.refuse_replaced()
        super().sync_dir(path)

    def _make_directory(self, path: str) -> None:
        self._lock.refuse_replaced()
        super()._make_directory(path)


def owned(disk: Disk, lock: FileLock) -> Disk:
    """The disk for who holds a store's lock; a simulated one as it is."""
    return OwnDisk(lock) if type(disk) is RealDisk else disk
