"""One opener at a time: an exclusive flock on a file. Taken through disk.py only.

flock and not lockf: a POSIX record lock lets a second opener of the same process in, and is lost
when any descriptor of the file is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from functools import partial

from octavo.files.errors import StoreLocked
from octavo.files.open_file import open_regular

_ATTEMPTS = 16
_LONGEST_PID = 20

_held: dict[object, int] = {}  # token -> descriptor of every lock of this process


class FileLock:
    """An exclusive lock, held until ``release`` or until this object is gone."""

    __slots__ = ("__weakref__", "_release", "path")

    path: str

    def __init__(self, path: str, release: Callable[[], None]) -> None:
        """``release`` must be idempotent."""
        self.path = path
        self._release = release

    def release(self) -> None:
        """Let the next one in. Idempotent; does nothing in a forked child, which has no lock."""
        self._release()

    def __del__(self) -> None:
        self._release()


def lock_file(path: str) -> FileLock:
    """Lock a file, made where absent, and write this process's id into it.

    Raises StoreLocked, OSError; Corruption where something else than a file is there.
    """
    for _ in range(_ATTEMPTS):
        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            current = _names(path, fd)
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
            raise StoreLocked(f"{path} is locked by {holder}") from None
        except OSError:
            os.close(fd)
            raise
        if current:
            return _keep(path, fd)
        os.close(fd)  # somebody unlinked it before we had it: that lock keeps nobody out
    raise StoreLocked(f"{path} is replaced again and again by someone else")


def _keep(path: str, fd: int) -> FileLock:
    token = object()
    _held[token] = fd
    # A hint for people; on a full disk the lock must work without it.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return FileLock(path, partial(_release, token))


def _release(token: object, held: dict[object, int] = _held) -> None:
    fd = held.pop(token, None)  # atomic: of two threads one gets it
    if fd is None:
        return
    try:
        # Not close alone: a child forked meanwhile may still have the descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _names(path: str, fd: int) -> bool:
    """Whether ``path`` is still the file that ``fd`` has open."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _holder(fd: int) -> str:
    written = os.pread(fd, _LONGEST_PID, 0).strip()
    if not written.isdigit():
        return "another opener"
    if int(written) == os.getpid():
        return f"this process ({os.getpid()})"
    return f"process {int(written)}"


def _forget_in_child() -> None:
    """A forked child drops its copies, or the lock would outlive the process that holds it."""
    while _held:
        _, fd = _held.popitem()
        with contextlib.suppress(OSError):
            os.close(fd)


os.register_at_fork(after_in_child=_forget_in_child)
