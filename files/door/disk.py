"""The one door to the operating system: nothing else in Octavo opens, syncs, renames or unlinks.

``Disk`` says what there is, ``RealDisk`` does it; tests put a simulated disk in its place.

What a power cut leaves, and so what the callers of this module have to order:

- the bytes of a file are durable after ``AppendFile.sync`` (or ``sync_file``), its *name* only
  after ``sync_dir`` of the directory that holds it; the two are independent of each other;
- ``rename``, ``link`` and ``unlink`` are visible at once and durable after ``sync_dir`` of each
  directory concerned. They are separate calls, so that one ``sync_dir`` can serve many of them;
- a sync that raised is never tried again: the system may have dropped the pages and forgotten
  it, and would answer "fine" the second time. The file counts as ending at its last good sync.

Paths are ``str``. Descriptors are close-on-exec. Interrupted calls are retried by Python. A missing
file raises FileNotFoundError; what is no file where one of ours must be (a link, a directory, a
FIFO) Corruption, and is never waited for. Other OSErrors pass: the caller knows what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import accumulate

from octavo.files.door import file_system
from octavo.files.door.belonging import hand_over, hand_over_directory
from octavo.files.door.file_lock import FileLock, hold_file, is_held, lock_file, lock_to_read
from octavo.files.door.file_system import PROBE_PREFIX
from octavo.files.door.maps import copied_map, length_at, length_of, map_whole
from octavo.files.door.names import directory_of, refuse_links, unlink_file
from octavo.files.door.open_file import (
    OPEN_FLAGS,
    AppendFile,
    Buffer,
    RealFile,
    link_file,
    naming,
    open_apart,
    open_directory,
    open_regular,
    pread_all,
    pread_of,
    sync_data,
    sync_directory,
)
from octavo.files.errors import Corruption

__all__ = [
    "PROBE_PREFIX", "TEMPORARY_SUFFIX", "AppendFile", "Buffer", "Disk", "FileLock", "RealDisk",
    "directory_of", "refuse_links",
]  # fmt: skip

TEMPORARY_SUFFIX = ".tmp"
"""``write_atomically`` writes here first; such a file left by a crash may be removed."""


# ---------------------------------------------------------------- what a disk can do


class Disk(ABC):
    """What Octavo asks of an operating system. Calls may come from any thread."""

    @abstractmethod
    def create(self, path: str) -> AppendFile:
        """Make a new, empty file. Raises FileExistsError. ``sync_dir`` makes its name durable."""

    @abstractmethod
    def reopen(self, path: str, length: int) -> AppendFile:
        """Open an existing file, to go on writing at ``length``; anything behind is cut off.

        The cut is durable after ``sync``, and seen through every hard link of the file. Raises
        Corruption where the file is shorter than ``length``.
        """

    def set_aside(self, path: str, length: int) -> None:
        """Have the file system set room aside for ``length`` bytes of a file in all, if it can; the
        file stays as long as it is, and gives back what it did not use when it is cut or reopened.
        0.3 ms.

        Only a hint, for a file that is appended to while another thread syncs it: where a file
        system finds room as it syncs, appends wait for that, 50 ms now and then. Never raises.
        """
        return  # not abstract: most disks have nothing of the kind

    def create_zeros(self, path: str, length: int) -> None:
        """Make a file of so many zeros, which takes that room, written or not. Raises OSError."""
        file = self.create(path)
        try:
            file.write_all(bytes(length))
        finally:
            file.close()

    @abstractmethod
    def map(self, path: str) -> mmap.mmap | bytes:
        """Map the whole file, read-only, as long as it is now; ``b""`` where it is empty.

        No copy. It lives as long as any view of it, also when the file is unlinked meanwhile,
        and before Python 3.13 holds one descriptor for that time. Map only files
        that are not cut any more: reading where a file no longer reaches kills the process.
        """

    @abstractmethod
    def opened_to_read(self, path: str) -> Callable[[int, int], bytes]:
        """``pread(length, offset)`` of a file that stays open as long as this is referred to."""

    def map_growing(self, path: str, start: int = 0) -> mmap.mmap | bytes:
        """As ``map``, for a file that its owner may cut: a copy of it from ``start`` on, with zeros
        before that, and where it was cut meanwhile. Takes that memory."""
        return self.map(path)  # for disks on which no process dies of a map of a file that was cut

    def reason(self, error: OSError) -> OSError:
        """The error to report for a call that failed, here or in a worker: ``error``, or one that
        says why there is nothing by that name."""
        return error

    @abstractmethod
    def read(self, path: str, limit_bytes: int) -> bytes:
        """The whole file. Raises Corruption where it has more than ``limit_bytes``."""

    @abstractmethod
    def pread(self, path: str, length: int, offset: int) -> bytes:
        """Bytes [offset, offset + length); fewer where the file ends. Opens and closes."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Length in bytes."""

    def room_taken(self, path: str) -> int:
        """As ``size``, without holes."""
        return self.size(path)

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the name is there, whatever it names. Errors other than absence pass."""

    def is_link(self, path: str) -> bool:
        """Whether the name is a symbolic link, wherever that leads. A disk may have none."""
        return False

    @abstractmethod
    def links(self, path: str) -> int:
        """How many names the file has. More than one: never modify it in place."""

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name; a file that was ``target`` is replaced.

        Atomic: whoever looks sees the old ``target`` or the new one. Nothing happens where
        both are names of one file. Raises OSError EXDEV across file systems.
        """

    @abstractmethod
    def link(self, source: str, target: str) -> None:
        """Give a file a second name. Raises FileExistsError, OSError EXDEV or EMLINK."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Take a name away. The bytes go with the last name, descriptor and map."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Take an empty directory away. Raises OSError ENOTEMPTY."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make every change of names in this directory durable. Never retry one that raised."""

    def hold(self, path: str) -> None:
        """Keep a directory open until ``let_go``, so that syncing it needs no new descriptor: a
        process may have none left when a sync must not fail. Idempotent."""
        return  # not abstract: a disk may do without descriptors

    def let_go(self, path: str) -> None:
        """Undo ``hold``. Idempotent, never raises."""
        return

    @abstractmethod
    def sync_file(self, path: str) -> None:
        """Make the bytes of a file durable that someone else wrote and closed."""

    @abstractmethod
    def lock(self, path: str) -> FileLock:
        """Lock a file, made where absent, against every other opener, in this process too.

        Raises StoreLocked at once, naming the holder where it left its process id. Released by
        the system when the process ends, however it ends. A forked child does not hold it.
        """

    def lock_to_read(self, path: str) -> FileLock:
        """As ``lock``, for a process that changes nothing around the file: that need not be
        writable, nor be there if it cannot be made."""
        return self.lock(path)  # not abstract: a disk may have no file that cannot be written

    def hold_file(self, path: str) -> FileLock:
        """Lock a file that is there, so that ``is_held`` tells others that its holder is alive:
        until it is released, or the process ends in any way. A forked child does not hold it."""
        raise NotImplementedError  # not abstract: a disk may serve one process alone

    def is_held(self, path: str) -> bool:
        """Whether the file is there, and held by ``hold_file``. Opens and closes."""
        return False

    @abstractmethod
    def free_bytes(self, path: str) -> int:
        """Room for this user on the file system of ``path``."""

    @abstractmethod
    def check_supported(self, path: str) -> None:
        """Raise Misuse, naming the file system, where the directory ``path`` cannot hold a store.

        Tries hard links, flock, mmap and directory sync with a file of its own: some 10 calls.
        """

    @abstractmethod
    def _make_directory(self, path: str) -> None:
        """Make one directory and make its name durable; one that is there already is fine."""

    def mkdir(self, path: str, within: str = "") -> None:
        """Make a directory and those above it, all of them durable. One that exists is fine.

        Raises NotADirectoryError if a file is in the way, FileNotFoundError if ``within`` is gone.
        """
        missing = []
        at = path
        while not self.exists(at):
            missing.append(at)
            if at in (within, directory_of(at)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), at)
            at = directory_of(at)
        # A killed process may have left the lowest one visible but not yet durable.
        self._sync_inherited(directory_of(at))
        for directory in reversed(missing or [path]):
            try:
                self._make_directory(directory)
            except OSError:
                # A later sync that goes well would say nothing of a name whose first one failed.
                if missing:
                    with contextlib.suppress(OSError):
                        self.rmdir(directory)
                raise

    def mkdir_within(self, store: str, inner: str) -> None:
        """``mkdir`` of ``inner`` in a store that is there, maybe another user's (belonging.py)."""
        self.mkdir(f"{store}/{inner}", store)
        for part in accumulate(inner.split("/"), "{}/{}".format):
            self._hand_over(f"{store}/{part}")

    def _hand_over(self, directory: str) -> None: ...  # noqa: B027 - a disk may know no users

    def _sync_inherited(self, path: str) -> None:
        """Sync a directory in which a name was found that we may have made before a crash."""
        try:
            self.sync_dir(path)
        except OSError as error:
            # Where this cannot be done _make_directory makes nothing: the name is not ours.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOSYS):
                raise

    def write_atomically(self, path: str, data: Buffer, temporary: str | None = None) -> None:
        """Put ``data`` under ``path``, durably: after a crash there is the old file or the new.

        Costs a file sync and a directory sync. One writer of a path at a time, or each with a
        ``temporary`` of its own. On OSError the old file is there, or (only the directory sync
        failed) the new one, perhaps not durably.
        """
        temporary = temporary or path + TEMPORARY_SUFFIX
        with contextlib.suppress(FileNotFoundError):
            self.unlink(temporary)  # never write into it: it may have other names
        file = self.create(temporary)
        try:
            try:
                file.write_all(data)
                file.sync()
            finally:
                file.close()
            self.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # the error that matters is the first one
                self.unlink(temporary)
            raise
        self.sync_dir(directory_of(path))


# ---------------------------------------------------------------- the operating system


class RealDisk(Disk):
    """The operating system's file systems. Has no state of its own."""

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        fd = open_regular(path, flags)
        try:
            with naming(path):
                yield fd
        finally:
            os.closerange(fd, fd + 1)  # as closer does

    def create(self, path: str) -> AppendFile:
        file = RealFile(path, open_apart(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS))
        hand_over(file.fd, directory_of(path))
        return file

    def reopen(self, path: str, length: int) -> AppendFile:
        file = RealFile(path, open_regular(path, os.O_RDWR))
        try:
            size = os.fstat(file.fd).st_size
            if size < length:
                raise Corruption(path, size, "file too short", expected=length, found=size)
            file.truncate(length)
        except BaseException:
            file.close()
            raise
        return file

    def set_aside(self, path: str, length: int) -> None:
        with contextlib.suppress(OSError):
            room = file_system.PLENTY * length
            if file_system.finds_room_late(path) and self.free_bytes(path) >= room:
                with self._opened(path, os.O_RDWR) as fd:
                    file_system.set_room_aside(fd, length)

    def create_zeros(self, path: str, length: int) -> None:
        if not hasattr(os, "posix_fallocate"):
            return super().create_zeros(path, length)
        self.create(path).close()
        with self._opened(path, os.O_RDWR) as fd:
            os.posix_fallocate(fd, 0, length)

    def map(self, path: str) -> mmap.mmap | bytes:
        with self._opened(path) as fd:
            return map_whole(fd)

    def opened_to_read(self, path: str) -> Callable[[int, int], bytes]:
        return pread_of(path)

    def map_growing(self, path: str, start: int = 0) -> mmap.mmap | bytes:
        with self._opened(path) as fd:
            return copied_map(fd, start)

    def read(self, path: str, limit_bytes: int) -> bytes:
        with self._opened(path) as fd:
            # The size is asked first, so that what is refused is not read before.
            size = os.fstat(fd).st_size
            if size <= limit_bytes:
                found = pread_all(fd, size + 1, 0)
                if len(found) <= limit_bytes:
                    return found
                size = len(found)
        raise Corruption(path, limit_bytes, "file too large", expected=limit_bytes, found=size)

    def pread(self, path: str, length: int, offset: int) -> bytes:
        with self._opened(path) as fd:
            # A length read from a damaged file must not decide how much memory is taken.
            room = max(length_of(fd) - offset, 0)
            return pread_all(fd, min(length, room), offset)

    def size(self, path: str) -> int:
        return length_at(path)

    def room_taken(self, path: str) -> int:
        found = os.lstat(path)
        return min(found.st_size, found.st_blocks * 512)

    def exists(self, path: str) -> bool:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def links(self, path: str) -> int:
        return os.lstat(path).st_nlink

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        link_file(source, target)

    def unlink(self, path: str) -> None:
        unlink_file(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = open_directory(path)
        try:
            with naming(path):
                sync_directory(fd)
        finally:
            os.close(fd)

    def sync_file(self, path: str) -> None:
        with self._opened(path) as fd:
            sync_data(fd)

    def lock(self, path: str) -> FileLock:
        return lock_file(path)

    def lock_to_read(self, path: str) -> FileLock:
        return lock_to_read(path)

    def hold_file(self, path: str) -> FileLock:
        return hold_file(path)

    def is_held(self, path: str) -> bool:
        return is_held(path)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def check_supported(self, path: str) -> None:
        file_system.refuse_unsupported(path)

    def _hand_over(self, directory: str) -> None:
        hand_over_directory(directory)

    def _make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        # Opened first: where its parent cannot be synced a directory is not made at all.
        fd = open_directory(directory_of(path))
        try:
            try:
                os.mkdir(path)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path) from None
            with naming(directory_of(path)):
                sync_directory(fd)
        finally:
            os.close(fd)
