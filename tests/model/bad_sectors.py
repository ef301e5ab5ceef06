"""Disks that do not give some bytes back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from mmap import mmap

from octavo.files.door.disk import RealDisk
from octavo.files.door.unreadable import SalvageDisk


class BadSectors(RealDisk):
    """``bad``: by a file's inode, what cannot be read of it, [low, high). To map such a file, which
    would end the process once those bytes are touched, is a failure of the test."""

    def __init__(self) -> None:
        self.bad: dict[int, tuple[int, int]] = {}

    def spoil(self, path: str, low: int, high: int) -> None:
        self.bad[os.stat(path).st_ino] = low, high

    def _refuse(self, path: str, low: int, high: int) -> None:
        begin, end = self.bad.get(os.stat(path).st_ino, (0, 0))
        if low < end and high > begin:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def map(self, path: str) -> mmap | bytes:
        assert os.stat(path).st_ino not in self.bad, f"{path} is mapped"
        return super().map(path)

    def map_growing(self, path: str, start: int = 0) -> mmap | bytes:
        self._refuse(path, start, 1 << 62)
        return super().map_growing(path, start)

    def read(self, path: str, limit_bytes: int) -> bytes:
        self._refuse(path, 0, limit_bytes)
        return super().read(path, limit_bytes)

    def pread(self, path: str, length: int, offset: int) -> bytes:
        self._refuse(path, offset, offset + length)
        return super().pread(path, length, offset)

    def opened_to_read(self, path: str) -> Callable[[int, int], bytes]:
        pread = super().opened_to_read(path)

        def reading(length: int, offset: int) -> bytes:
            self._refuse(path, offset, offset + length)
            return pread(length, offset)

        return reading


class SalvagedBadSectors(SalvageDisk, BadSectors):
    """As a repair reads them."""

    def __init__(self) -> None:
        SalvageDisk.__init__(self)
        BadSectors.__init__(self)
