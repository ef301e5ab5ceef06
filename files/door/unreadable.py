"""Guards against bytes that a device does not give back, as of a bad sector: a read of them raises
an error, but a map kills the process that touches them (SIGBUS).

So a check reads a file through before it looks at it through a map. And a salvage puts other bytes
in their place, which match no checksum: they count as damaged like any others.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterator

from octavo.files.door.disk import Disk, RealDisk
from octavo.files.errors import Corruption

_OF_DEVICES = (errno.EIO, errno.EBADMSG, errno.ENODATA, getattr(errno, "EUCLEAN", errno.EIO))
"""Errors for bytes that a device does not give back, or not as they were written."""
_PIECE_BYTES = 1 << 20
_PAGE_BYTES = 4096
_FILLER = b"not to be read. " * (_PAGE_BYTES // 16)
"""Not zeros: in a journal file zeros say that nothing more was written."""


class Unreadable(Corruption):
    """A device does not give these bytes back: what a map has of them must not be touched."""


def refuse_unreadable(disk: Disk, path: str) -> None:
    """Read a file through; then it is in memory, if there is room. Raises Unreadable, OSError.
    0.04 ms a MiB where it was in memory before."""
    for at, _, error in _pieces(disk, path):
        if error is not None:
            why = f"the device does not give it back: {error.strerror}"
            raise Unreadable(path, at, f"{why}; octavo.repair saves what else there is")


def _pieces(disk: Disk, path: str) -> Iterator[tuple[int, bytes, OSError | None]]:
    """The pieces of a file from front to back: (where it begins, its bytes, None), or, where these
    cannot be read, (where it begins, other bytes in their place, the error)."""
    pread, size = disk.opened_to_read(path), disk.size(path)
    at, most = 0, _PIECE_BYTES
    while at < size:
        length = min(most - at % most, size - at)
        why = None
        try:
            found = pread(length, at)
        except OSError as error:
            if error.errno not in _OF_DEVICES:
                raise
            if most > _PAGE_BYTES:  # which of its pages?
                most = _PAGE_BYTES
                continue
            found, why = _FILLER[:length], error
        if not found:  # it was cut meanwhile
            return
        yield at, found, why
        at += len(found)
        if not at % _PIECE_BYTES:
            most = _PIECE_BYTES


class SalvageDisk(RealDisk):
    """A disk on which bytes that cannot be read read as others, so that the rest can be saved.

    A file is read through before it is mapped; if some of its bytes cannot be read, it is copied
    into memory.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        """What could not be read, by path: where that begins, and why."""

    def map(self, path: str) -> mmap.mmap | bytes:
        return self._copied(path) or super().map(path)

    def map_growing(self, path: str, start: int = 0) -> mmap.mmap | bytes:
        return self._copied(path) or super().map_growing(path, start)

    def read(self, path: str, limit_bytes: int) -> bytes:
        try:
            return super().read(path, limit_bytes)
        except OSError as error:
            return self._instead(path, error)[:limit_bytes]

    def pread(self, path: str, length: int, offset: int) -> bytes:
        try:
            return super().pread(path, length, offset)
        except OSError as error:
            return self._instead(path, error)[offset : offset + length]

    def _instead(self, path: str, error: OSError) -> mmap.mmap | bytes:
        if error.errno not in _OF_DEVICES or (copy := self._copied(path)) is None:
            raise error
        return copy

    def _copied(self, path: str) -> mmap.mmap | None:
        """A copy of a file, if not all of its bytes can be read; else None."""
        try:
            refuse_unreadable(self, path)
        except Unreadable as wrong:
            self.found.setdefault(path, str(wrong))
        else:
            return None
        copy = mmap.mmap(-1, self.size(path), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at, found, _ in _pieces(self, path):
            copy[at : at + len(found)] = found
        return copy
