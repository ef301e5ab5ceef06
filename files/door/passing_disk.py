"""A disk for what a process makes beside a store just while it reads there. It syncs none of that:
nothing of it need outlive a power cut, which ends the reader, too.

A power cut may leave any part of such a directory, or bring one back that was removed. Then it is
like what a killed reader leaves: nobody asks for it any more, checksums and missing files stop
whoever does, and it is swept.
"""

from __future__ import annotations

import os

from octavo.files.door.disk import Disk, RealDisk, directory_of
from octavo.files.door.open_file import AppendFile, RealFile


class _Passing(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        """Do nothing: the file goes with its directory."""

    begin_sync = AppendFile.begin_sync


class PassingDisk(RealDisk):
    """The operating system's file systems; a directory that it makes, and the names and the new
    files in it, are not synced. A file that is linked there is synced as any other."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def create(self, path: str) -> AppendFile:
        file = super().create(path)
        return _Passing(path, file.fd) if directory_of(path) in self._made else file

    def mkdir(self, path: str, within: str = "") -> None:
        """Make a new directory; those above it, if they are missing, are made durably."""
        above = directory_of(path)
        if not self.exists(above):
            super().mkdir(above, within)
        os.mkdir(path)
        self._made.add(path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self._made.discard(path)

    def sync_dir(self, path: str) -> None:
        if path not in self._made:
            super().sync_dir(path)


def passing(disk: Disk) -> Disk:
    """The disk for a process that only reads; a simulated disk is given back as it is."""
    return PassingDisk() if type(disk) is RealDisk else disk
