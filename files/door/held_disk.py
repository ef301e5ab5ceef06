"""A disk that holds files open instead of linking them, where nothing can be made beside a store.

On a read-only mount, in another user's store, on a full disk no link can be made. But a file that
is open stays whole after its owner removed it. So this disk has a table of open files in the place
of a directory of links: no other process sees it, and it goes with the process, however that ends.
A new file in such a directory is a temporary file without a name, or, where none can be made, one
in memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from octavo.files.door.disk import RealDisk, directory_of
from octavo.files.door.file_lock import FileLock
from octavo.files.door.open_file import (
    AppendFile,
    Descriptor,
    RealFile,
    moved_apart,
    open_regular,
    pread_by,
)
from octavo.files.errors import READ_ONLY
from octavo.files.later import loading
from octavo.files.unbroken import unbroken

NO_LINKS = (
    *READ_ONLY, errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP,
    errno.ENOSYS,
)  # fmt: skip
"""Errors that say that this process can make or link nothing."""


class HeldDisk(RealDisk):
    """Reads the file systems; the directories that it makes are tables of open files.

    One descriptor a file. A forked child has the files, too, in a table of its own.
    """

    def __init__(self) -> None:
        self._made: dict[str, dict[str, Descriptor]] = {}

    def _table(self, path: str) -> dict[str, Descriptor] | None:
        """The table that a path is in; None: the path is the file system's."""
        return self._made.get(directory_of(path))

    def _held(self, path: str) -> Descriptor | None:
        """The open file of a path; None: the path is the file system's. Raises
        FileNotFoundError."""
        table = self._table(path)
        if table is None:
            return None
        if (held := table.get(os.path.basename(path))) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return held

    def _hold(self, path: str, held: Descriptor) -> None:
        table = self._table(path)
        if table is None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        if table.setdefault(os.path.basename(path), held) is not held:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    @contextmanager
    def _opened(self, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        held = self._held(path)
        if held is not None:
            yield held
        else:
            with super()._opened(path, flags) as fd:
                yield fd

    def opened_to_read(self, path: str) -> Callable[[int, int], bytes]:
        held = self._held(path)
        return super().opened_to_read(path) if held is None else pread_by(held)

    def create(self, path: str) -> AppendFile:
        if self._table(path) is None:
            return super().create(path)
        where, fd = _nameless()
        held = Descriptor(fd)
        self._hold(path, held)
        return RealFile(where, held)

    def mkdir(self, path: str, within: str = "") -> None:
        """A directory that this process alone sees."""
        self._made.setdefault(path, {})

    def _hand_over(self, directory: str) -> None:
        """Do nothing: nothing was made that another user could see."""

    def link(self, source: str, target: str) -> None:
        held = self._held(source)
        self._hold(target, Descriptor(open_regular(source, os.O_RDONLY)) if held is None else held)

    def rename(self, source: str, target: str) -> None:
        if (held := self._held(source)) is None:
            super().rename(source, target)
            return
        self._made[directory_of(target)][os.path.basename(target)] = held
        self.unlink(source)

    def unlink(self, path: str) -> None:
        if self._held(path) is None:
            super().unlink(path)
        else:
            del self._made[directory_of(path)][os.path.basename(path)]

    def rmdir(self, path: str) -> None:
        if self._made.pop(path, None) is None:
            super().rmdir(path)

    def size(self, path: str) -> int:
        held = self._held(path)
        return super().size(path) if held is None else os.fstat(held).st_size

    def exists(self, path: str) -> bool:
        table = self._table(path)
        if table is None:
            return path in self._made or super().exists(path)
        return os.path.basename(path) in table

    def listdir(self, path: str) -> list[str]:
        table = self._made.get(path)
        return super().listdir(path) if table is None else sorted(table)

    def sync_dir(self, path: str) -> None:
        if path not in self._made:  # what is there goes with the process
            with _where_any_is_written():
                super().sync_dir(path)

    def sync_file(self, path: str) -> None:
        with _where_any_is_written():
            super().sync_file(path)

    def hold_file(self, path: str) -> FileLock:
        """As any disk's; but of a file in a table nobody else sees that it is held."""
        return FileLock(path, bool) if self._held(path) else super().hold_file(path)


@contextmanager
def _where_any_is_written() -> Iterator[None]:
    """Within it a sync does nothing in a file system that never writes, as squashfs, and so has no
    fsync: all is durable there. Not where it is refused as EROFS: such a file system has stopped
    writing because of an error."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _nameless() -> tuple[str, int]:
    """(where it is, a descriptor) of a new file without a name, in memory if need be."""
    with unbroken, loading:
        import tempfile
    try:
        where = tempfile.gettempdir()
        with tempfile.TemporaryFile() as file:
            return f"{where}/(a temporary file)", moved_apart(os.dup(file.fileno()))
    except OSError:  # nothing can be made anywhere
        if not hasattr(os, "memfd_create"):
            raise
        return "(a file in memory)", moved_apart(os.memfd_create("octavo"))
