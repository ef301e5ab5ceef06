"""Finds out whether a file system can hold a store: by trying, not by a list of names."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable

from octavo.files.door.mounts import file_system_of
from octavo.files.door.open_file import OPEN_FLAGS, naming, open_directory, sync_directory
from octavo.files.errors import Misuse

PROBE_PREFIX = ".octavo-probe-"
"""Names that the probe makes and removes; one left by a crash may be removed."""

_LONGEST_NAME = 80
"""Bytes. Below its directory an open store, with its snapshots, makes no longer path."""

_ABSENT = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.EINVAL,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.ENOTSUP,
        errno.ENODEV,
        errno.ENOLCK,
        errno.EMLINK,
        errno.EBADF,
    }
)
"""Errors that say that a file system does not have something. Others are failures."""

_MARK = b"octavo"

_SET_ASIDE = 0x4030582A
"""Linux's FS_IOC_RESVSP64: fallocate with FALLOC_FL_KEEP_SIZE, for which Python has no name."""
_ROOM = struct.Struct("@hhqqiI16s")
"""Its argument: type, whence, start, length, and fields that nobody reads."""
PLENTY = 8
"""Room is set aside only where so many times as much is free."""


def refuse_unsupported(path: str) -> None:
    """Raise Misuse where the directory lacks hard links, flock, mmap or directory sync.

    A directory that cannot be written at all, or whose path leaves no room for a store's names,
    and an I/O error, pass as OSError. About 10 calls.
    """
    name = os.path.join(path, f"{PROBE_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
    other = f"{name}-link".ljust(len(os.path.join(path, "")) + _LONGEST_NAME, "-")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600)
    try:
        os.write(fd, _MARK)
        tries: list[tuple[str, Callable[[], bool]]] = [
            ("hard links", lambda: _links(name, other)),
            ("flock", lambda: _locks(name, fd)),
            ("mmap", lambda: _maps(fd)),
            ("sync of directories", lambda: _syncs(path)),
        ]
        lacking = next((what for what, has in tries if not _tried(has)), None)
        if lacking is not None:
            raise Misuse(
                f"path: {path!r} is on {file_system_of(path)}, which has no {lacking}; a store "
                "needs a local file system with hard links, flock and mmap, and no sandbox around "
                "this process that refuses them"
            )
    finally:
        os.close(fd)
        for made in (other, name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)


def _tried(has: Callable[[], bool]) -> bool:
    try:
        return has()
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise


def _links(name: str, other: str) -> bool:
    os.link(name, other)
    return os.lstat(name).st_nlink == 2 and os.path.samefile(name, other)


def _locks(name: str, fd: int) -> bool:
    """Whether flock keeps a second opener out: some answer "fine" to everyone."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    second = os.open(name, os.O_RDWR | OPEN_FLAGS)
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(second)
    return False


def _maps(fd: int) -> bool:
    with mmap.mmap(fd, len(_MARK), access=mmap.ACCESS_READ) as mapped:
        return mapped[:] == _MARK


def _syncs(path: str) -> bool:
    fd = open_directory(path)
    try:
        with naming(path):
            sync_directory(fd)
    finally:
        os.close(fd)
    return True


def finds_room_late(path: str) -> bool:
    """Whether the file system is known to look for room for appended bytes only as they are synced,
    and to set room aside at no cost worth speaking of."""
    return file_system_of(path).partition(" ")[0] == "ext4"


def set_room_aside(fd: int, length: int) -> None:
    """See Disk.set_aside. Raises OSError."""
    fcntl.ioctl(fd, _SET_ASIDE, _ROOM.pack(0, 0, 0, length, 0, 0, b""))
