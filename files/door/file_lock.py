"""Lets one opener at a time into a store: an exclusive flock on a file. Taken through disk.py only.

Such a lock on a file that others only read tells them that its maker is alive: ``hold_file``.

flock and not lockf: a POSIX record lock lets a second opener of the same process in, and is lost
when any descriptor of the file is closed.

Worker processes outlive a killed owner by moments, and may be in the middle of a job on its files.
So there is a second lock, on the directory around the file, which they inherit: whoever has got the
first lock waits for the second.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, call, contains
from typing import TYPE_CHECKING, TypeAlias

from octavo.files.door.belonging import hand_over
from octavo.files.door.names import directory_of
from octavo.files.door.open_file import closer, open_directory, open_regular
from octavo.files.errors import READ_ONLY, StoreLocked, refused
from octavo.files.unbroken import unbroken

if TYPE_CHECKING:
    from octavo.files.door.disk import Disk

LOCK = "LOCK"
"""The file of a store that its one opener has locked."""

READING = "octavo.open(path, read_only=True)"
"""How to only read, as messages tell it."""

_ATTEMPTS = 16
_LONGEST_PID = 20

_LONGEST_WAIT = 30.0
"""Seconds for the workers of a killed owner to leave; they notice within milliseconds, unless a
system call of theirs takes long."""
_MOMENT = 0.2
"""Seconds that a new process is given to begin its program."""
_LOOK_EVERY = 0.002
_ELSEWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
"""Errors of a path that leads nowhere any more."""
_wait = time.sleep

Steps: TypeAlias = "Iterator[Callable[[], object]]"

# token -> descriptors (of the file, and for an opener of its directory) of every lock of this
# process, and the steps that let go of it
_held: dict[object, tuple[tuple[int, ...], Steps]] = {}
_through: Callable[[Iterator[object], object], bool] = contains  # type: ignore[assignment]
"""Runs through an iterator up to the first item that is the given one, without taking memory."""


class FileLock:
    """An exclusive lock, held until ``release``, the end of its ``with``, or until this object is
    gone."""

    __slots__ = ("__weakref__", "_release", "_stands", "path", "workers")

    path: str
    workers: int | None
    """Descriptor that a worker process must inherit, so that no other owner begins before it has
    left."""

    def __init__(
        self,
        path: str,
        release: Callable[[], object],
        workers: int | None = None,
        stands: Callable[[], bool] = lambda: True,
    ) -> None:
        """``release`` must be idempotent. ``stands``: see refuse_replaced."""
        self.path = path
        self.workers = workers
        self._release = release
        self._stands = stands

    def refuse_replaced(self) -> None:
        """Raise OSError (ESTALE) where the directory around ``path`` was moved or removed, or
        another stands there now: nothing by that path is the holder's. Other OSErrors pass. Two
        system calls."""
        if not self._stands():
            raise OSError(
                errno.ESTALE,
                "the store was moved, removed or replaced while it was open",
                os.path.dirname(self.path),
            )

    def release(self) -> None:
        """Let the next one in. Idempotent; does nothing in a forked child, which has no lock."""
        try:
            self._release()
        finally:
            self._release()  # the steps that are left, if one of them failed

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    __del__ = property(attrgetter("_release"))
    """Runs no Python code, in which a Ctrl-C could be lost, and leave the file locked."""


def locked(disk: Disk, path: str, *, to_read: bool = False) -> FileLock:
    """``disk.lock(path)``, or ``lock_to_read``, with interrupts put off: or one could leave behind
    a descriptor that has the lock and no owner. That takes moments, or seconds where a killed
    owner's worker is left."""
    with unbroken:
        return disk.lock_to_read(path) if to_read else disk.lock(path)


def lock_file(path: str, flags: int = os.O_RDWR | os.O_CREAT) -> FileLock:
    """Lock a file, by default made where absent, and write this process's id into it, if the
    ``flags`` allow it.

    Raises StoreLocked, OSError; Corruption where something else than a file is there.
    """
    for _ in range(_ATTEMPTS):
        fd = open_regular(path, flags)
        try:
            _lock_alone(fd)
            current = _names(path, fd)
            if current and _left_to_others(path, fd, flags):
                current = False
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
            raise StoreLocked(f"{path} is locked by {holder}") from None
        except BaseException:
            os.close(fd)
            raise
        if current:
            try:
                directory = _without_workers(path)
            except BaseException:
                os.close(fd)
                raise
            lock = _keep(path, fd, directory)
            hand_over(fd, directory_of(path))
            # A hint for people; on a full disk, or a read-only one, the lock must work without it.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
            return lock
        os.close(fd)  # it was unlinked before we had it: that lock keeps nobody out
    raise StoreLocked(f"{path} is replaced again and again by someone else")


def lock_to_read(path: str) -> FileLock:
    """As ``lock_file``, but the file need not be writable. If it is not there and cannot be made,
    nobody has it locked, and the directory is locked instead: against whoever makes the file, not
    against others that only read."""
    try:
        return lock_file(path)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
    try:
        return lock_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return _keep(path, _shared_directory(path))


def hold_file(path: str) -> FileLock:
    """Lock a file that is there and that nobody else locks: see ``is_held``. Raises OSError."""
    fd = open_regular(path, os.O_RDONLY)
    try:
        _flock(fd, fcntl.LOCK_EX)
    except BaseException:
        os.close(fd)
        raise
    return _keep(path, fd)


def is_held(path: str) -> bool:
    """Whether the file is there and a process has it locked. Raises OSError, Corruption (it is no
    file)."""
    try:
        fd = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        _flock(fd, fcntl.LOCK_SH)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _flock(fd: int, how: int) -> None:
    """Take the lock at once. Raises OSError, BlockingIOError where others have it."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        raise refused(error, "flock") from None


def _lock_alone(fd: int) -> None:
    """Lock a file. Raises BlockingIOError where another process has it locked. If that was killed
    as it started a worker, waits a moment: until its program begins, the worker has copies of all
    descriptors of its owner."""
    deadline = time.monotonic() + _MOMENT
    while True:
        try:
            return _flock(fd, fcntl.LOCK_EX)
        except BlockingIOError:
            if _lives(fd) or time.monotonic() > deadline:
                raise
            _wait(_LOOK_EVERY)


def _without_workers(path: str) -> int:
    """Lock the directory, once the workers of whoever held ``path`` before have left."""
    deadline = time.monotonic() + _LONGEST_WAIT
    fd = open_directory(directory_of(path))
    try:
        while True:
            try:
                _flock(fd, fcntl.LOCK_EX)
                return fd
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreLocked(
                        f"{path}: its last owner is gone, but a worker process of that owner is "
                        "not; end it (octavo.files.jobs.worker) and try again"
                    ) from None
                _wait(_LOOK_EVERY)
    except BaseException:
        os.close(fd)
        raise


def _shared_directory(path: str) -> int:
    """Lock the directory of ``path``, as one of many that only read."""
    directory = directory_of(path)
    fd = open_directory(directory)
    try:
        _flock(fd, fcntl.LOCK_SH)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise StoreLocked(f"{directory} is locked by {_holder(None)}") from None
        raise
    return fd


def _keep(path: str, fd: int, *directory: int) -> FileLock:
    release: Callable[[], object] | None = None
    try:
        token = object()
        steps: Steps = iter(
            (
                partial(_held.pop, token, None),
                # A worker's copy keeps the next owner waiting.
                *[closer(each) for each in directory],
                # Not close alone: a child forked meanwhile may still have the descriptor.
                partial(fcntl.flock, fd, fcntl.LOCK_UN),
                closer(fd),
            )
        )
        # Takes all steps that are left, in one call: a Ctrl-C comes before all or behind them, and
        # two threads never take the same one. No step answers with the token, so none is left out;
        # and it takes no memory.
        release = partial(_through, map(call, steps), token)
        _held[token] = (fd, *directory), steps
        stands = partial(_stands, directory_of(path), token)
        return FileLock(path, release, directory[0] if directory else None, stands)
    except BaseException:  # for want of memory: the caller gets no lock, so none is kept
        if release is not None:
            release()
        else:
            os.close(fd)
            if directory:
                os.close(directory[0])
        raise


def _stands(path: str, token: object) -> bool:
    """Whether ``path`` is still the directory that was locked; True once the lock is released.
    Raises the OSError of a file system that failed, and so cannot tell."""
    held = _held.get(token)
    try:
        if held is None or os.path.samestat(os.stat(path), os.fstat(held[0][1])):
            return True
    except OSError as error:
        if error.errno not in _ELSEWHERE and token in _held:
            raise
    return token not in _held  # if released, the descriptor may be another file's by now


def _names(path: str, fd: int) -> bool:
    """Whether ``path`` is still the file that ``fd`` has open."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _left_to_others(path: str, fd: int, flags: int) -> bool:
    """Take the name ``path`` from the file, which is locked, if it has other names, too, as in a
    copy of the store made of links: or one of the two would lock the other. Whether it did."""
    if os.fstat(fd).st_nlink == 1 or not flags & os.O_CREAT:
        return False
    with contextlib.suppress(OSError):
        os.unlink(path)
        return True
    return False


def _written(fd: int) -> int | None:
    """The id of the process that had the lock last, where it could write it."""
    written = os.pread(fd, _LONGEST_PID, 0).strip()
    return int(written) if written.isdigit() else None


def _is_ours(fd: int) -> bool:
    """Whether this process has the file locked, by another descriptor. O(locks)."""
    try:
        file = os.fstat(fd)
        return any(os.path.samestat(file, os.fstat(held[0])) for held, _ in [*_held.values()])
    except OSError:  # one is just being released
        return False


def _lives(fd: int) -> bool:
    """Whether the process that had the lock last is alive, as far as one can tell."""
    process = _written(fd)
    if not process:
        return True
    if process == os.getpid():
        return _is_ours(fd)  # or it had that number in another container
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's; no process's id
        return True
    return True


def _holder(fd: int | None) -> str:
    """Who has the lock, as far as its file says (None: there is none), and what to do about it."""
    written = None if fd is None else _written(fd)
    who = "another opener" if written is None else f"process {written}"
    close = "close the store there"
    if fd is not None and _is_ours(fd):
        who = f"this process ({os.getpid()})"
        close = (
            "a store that was opened stays open until its close(), or the end of its `with`, also "
            "where nothing refers to it any more: use that one, which octavo.open_stores() has, "
            "close it (or wait, where another thread backs up to this path, restores or repairs it)"
        )
    elif fd is not None and not _lives(fd):
        close = "it is gone, or in another container; end what it left, or close the store there"
    return f"{who}: {close}, or only read it, with {READING}"


def _forget_in_child() -> None:
    """A forked child drops its copies, or the lock would outlive the process that holds it."""
    while _held:
        _, (descriptors, steps) = _held.popitem()
        _through(steps, None)  # uses them up: they would release the parent's lock
        for fd in descriptors:
            with contextlib.suppress(OSError):
                os.close(fd)


os.register_at_fork(after_in_child=_forget_in_child)
