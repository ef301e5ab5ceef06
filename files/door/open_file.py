"""Open files: what is appended to and read at the same time. Opened by disk.py only."""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import mmap
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NoReturn
from weakref import ref

from octavo.files.door.write_map import finds_room_once, write_map_of
from octavo.files.errors import Corruption, refused

Buffer = bytes | bytearray | memoryview

# Opening a FIFO must not wait for its other end; regular files do not mind O_NONBLOCK.
OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_PIECE = 1 << 20
MOST_BYTES = 0x7FFFF000
"""The most bytes for one call: Linux takes or gives no more, macOS refuses more."""
_STANDARD = 2
"""The highest descriptor that others write to without having opened it."""
_LOOK_SECONDS = 1.0
"""How often a thread that waits for another looks whether that still exists."""


class AppendFile(ABC):
    """A file that is written at its end and can be read at the same time.

    One thread at a time may write; any number may ``pread``, ``sync`` and ``close`` beside it.
    A call that is under way while another thread closes the file ends normally: the descriptor
    goes when its last user is done, and its number is never given to another file before.
    """

    __slots__ = ("__weakref__", "fd", "path", "pread", "pwrite", "write")

    path: str
    """As it was at opening; a later rename does not change it."""
    fd: int
    """The descriptor; -1 once closed, and where there is none."""
    write: Callable[[Buffer], int]
    """Writes at the end, answers how many bytes were taken: may be fewer than given. The bare
    system call, for hot paths. Look it up for each write: ``close`` replaces it."""
    pread: Callable[[int, int], bytes]
    """(length, offset) -> bytes; fewer only where the file ends, or beyond 2 GiB in one call.
    Takes memory for ``length`` bytes first: a length that comes from a file has to be checked."""
    pwrite: Callable[[Buffer, int], int]
    """(bytes, offset) -> bytes taken; the end for ``write`` stays where it is."""

    def write_all(self, buf: Buffer) -> None:
        """Write all of ``buf`` at the end. On OSError the file may hold a part of it."""
        self._whole(buf, lambda part, _: self.write(part))

    def pwrite_all(self, buf: Buffer, offset: int) -> None:
        """Write all of ``buf`` at ``offset``. On OSError the file may hold a part of it."""
        self._whole(buf, lambda part, taken: self.pwrite(part, offset + taken))

    def pread_all(self, length: int, offset: int) -> bytes:
        """Bytes [offset, offset + length); fewer where the file ends."""
        return read_whole(self.pread, length, offset)

    def _whole(self, buf: Buffer, write: Callable[[Buffer, int], int]) -> None:
        """Call ``write(what is left, bytes taken before)`` until all of ``buf`` is taken."""
        try:
            taken = write(buf, 0)
            if type(buf) is bytes and taken == len(buf):
                return
            total = memoryview(buf).nbytes
            if taken == total:
                return  # and no cast: an array of no items cannot be cast
            view = memoryview(buf).cast("B")
            while taken < total:
                taken += self._some(write(view[taken:], taken))
        except OSError as error:
            _name(error, self.path)
            raise

    def pwrite_parts(self, parts: Sequence[bytes], offset: int) -> int:
        """As ``pwrite`` of these parts behind one another; where the system can, without a copy of
        them all. Each should have some KiB, or there should be few."""
        return self.pwrite(b"".join(parts), offset)

    def has_write_maps(self) -> bool:
        """Whether ``write_map`` may give one."""
        return False  # not abstract: a disk may do without

    def write_map(self, begin: int, end: int) -> mmap.mmap | None:
        """The file up to ``end`` as a map, whose bytes in [begin, end) may be written to for a
        moment: a call has just written them. None where that cannot be: see write_map.py."""
        return None

    def holds(self, data: memoryview, offset: int) -> bool:
        """Whether these bytes stand there. Reads a MiB at a time, up to the first that differs."""
        return all(
            self.pread(len(part := data[at : at + _PIECE]), offset + at) == part
            for at in range(0, len(data), _PIECE)
        )

    def _some(self, taken: int) -> int:
        if taken <= 0:  # or the loop above would never end
            raise OSError(errno.EIO, "a write took nothing and gave no error", self.path)
        return taken

    @abstractmethod
    def sync(self) -> None:
        """Make the bytes and the length durable; not the name. Never retry one that raised."""

    def begin_sync(self) -> Callable[[], None]:
        """Begin a ``sync`` and return a function that waits for its end, and raises what it raised;
        call that once. The file may be closed meanwhile, but not written to."""
        self.sync()
        return _nothing  # a disk may have no way to do both

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Cut the file to ``length``, or leave it where it is no longer, and write on at its end.

        Never lengthens it: for bytes that were never written, a file system in memory finds room
        only when they are read, and if there is none kills whoever reads them through a map."""

    def close(self) -> None:
        """Give the descriptor back, without syncing. Idempotent; later calls raise EBADF."""
        self.write = self.pread = self.pwrite = partial(_refuse, self.path)
        self.fd = -1


def _nothing() -> None:
    pass


def _refuse(path: str, *_: object) -> NoReturn:
    raise OSError(errno.EBADF, "the file was closed", path)


# ---------------------------------------------------------------- the operating system


if sys.platform == "darwin":

    def sync_data(fd: int) -> None:
        # fsync leaves the bytes in the drive's cache; not every file system knows the real thing.
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(fd)
        except MemoryError as untold:
            raise _failed_untold() from untold

    sync_directory = sync_data

    def _pread(fd: int, length: int, offset: int, /) -> bytes:
        return os.pread(fd, min(length, MOST_BYTES), offset)

    def _pwrite(fd: int, buf: Buffer, offset: int, /) -> int:
        whole = memoryview(buf)
        return os.pwrite(
            fd, buf if whole.nbytes <= MOST_BYTES else whole.cast("B")[:MOST_BYTES], offset
        )

    def _pwritev(fd: int, parts: Sequence[bytes], offset: int, /) -> int:
        if sum(map(len, parts)) <= MOST_BYTES and hasattr(os, "pwritev"):
            return os.pwritev(fd, parts, offset)
        return _pwrite(fd, b"".join(parts), offset)
else:
    _pread, _pwrite, _pwritev = os.pread, os.pwrite, os.pwritev

    def sync_data(fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise refused(error, "fdatasync") from None
        except MemoryError as untold:
            raise _failed_untold() from untold

    def sync_directory(fd: int) -> None:
        try:
            os.fsync(fd)
        except OSError as error:
            raise refused(error, "fsync") from None
        except MemoryError as untold:
            raise _failed_untold() from untold


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """A context in which an OSError of a descriptor, which has no name, gets this one."""
    try:
        yield
    except OSError as error:
        _name(error, path)
        raise


def _name(error: OSError, path: str) -> None:
    if error.errno is not None:  # else it is no call's, but what a signal's handler raised
        error.filename = error.filename or path


def untraced(error: OSError, path: str) -> OSError:
    """Name the error and drop the frames it came through: as long as it is kept, as by a store that
    failed, they would keep a descriptor open, and its file system could not be unmounted."""
    _name(error, path)
    if isinstance(error.__context__, MemoryError):  # its frames would, too; a failed call's stay
        error.__context__ = None
    return error.with_traceback(None)


def _failed_untold() -> OSError:
    """The error of a sync that raised MemoryError: an fsync takes no memory, only the error that
    says that it failed does. So it failed."""
    return OSError(errno.EIO, "a sync failed, and there was no memory to say why")


def open_apart(path: str, flags: int) -> int:
    """``os.open``, but never for one of the three standard descriptors: where a process has those
    closed, what anybody prints would go into a store's file."""
    return moved_apart(os.open(path, flags, 0o666))


def moved_apart(fd: int) -> int:
    """The descriptor, or, where it is one of the three standard ones, another of the same file."""
    if fd > _STANDARD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD + 1)
    finally:
        os.close(fd)


def open_directory(path: str) -> int:
    """A descriptor of a directory, to sync or to lock it."""
    return open_apart(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file; Corruption where something else is there."""
    try:
        fd = open_apart(path, flags | OPEN_FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise _not_a_file(path, "symbolic link") from None
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):
            raise _not_a_file(path, "socket or device") from None
        if error.errno == errno.EISDIR:
            raise _not_a_file(path, "directory") from None
        raise
    try:
        if stat.S_ISREG(mode := os.fstat(fd).st_mode):
            return fd
        found = "directory" if stat.S_ISDIR(mode) else "FIFO" if stat.S_ISFIFO(mode) else "device"
        raise _not_a_file(path, found)
    except BaseException:
        os.close(fd)
        raise


def link_file(source: str, target: str) -> None:
    """As ``os.link``, but of a symbolic link itself: those lead out of the store. Raises Corruption
    where a directory has the place of the file."""
    try:
        os.link(source, target, follow_symlinks=False)
    except PermissionError:
        if stat.S_ISDIR(os.lstat(source).st_mode):
            raise _not_a_file(source, "directory") from None
        raise


def pread_all(fd: int, length: int, offset: int) -> bytes:
    """As ``read_whole``, by a descriptor."""
    return read_whole(partial(_pread, fd), length, offset)


def read_whole(pread: Callable[[int, int], bytes], length: int, offset: int) -> bytes:
    """Call ``pread`` until there are ``length`` bytes, or no more. A read stops short where a
    device fails: the next one raises the error."""
    first = pread(length, offset)
    if len(first) == length or not first:
        return first
    parts = [first]
    had = len(first)
    while had < length and (more := pread(length - had, offset + had)):
        parts.append(more)
        had += len(more)
    return b"".join(parts)


def lead_nowhere(fd: int) -> None:
    """Have a descriptor lead to /dev/null: what it led to is given up, its number stays taken."""
    nowhere = open_apart(os.devnull, os.O_RDWR)
    if nowhere != fd:  # they are equal if the number was free, and so was given out for this
        os.dup2(nowhere, fd, inheritable=False)
        os.close(nowhere)


def _not_a_file(path: str, found: str) -> Corruption:
    what = "not a file of the store's; move it away, or put that in its place"
    return Corruption(path, 0, what, expected="regular file", found=found)


def closer(fd: int) -> Callable[[], None]:
    """A function that gives a descriptor back and reports nothing: no promise hangs on what close()
    says, durability is sync's work. It runs no Python code, in which a Ctrl-C could be lost, and
    come before the closing."""
    return partial(os.closerange, fd, fd + 1)


class Descriptor(int):
    """A descriptor that is closed when nobody refers to it any more.

    The bound calls of a RealFile refer to it, and so does a call under way: therefore close()
    in one thread cannot pull the descriptor from under a read in another, nor can a new file
    take over its number while that read still goes to it.
    """

    _close: Callable[[], None]

    def __new__(cls, fd: int) -> Descriptor:
        try:
            descriptor = super().__new__(cls, fd)
            descriptor._close = closer(fd)
        except BaseException:  # no memory: nobody has it yet who could close it
            os.close(fd)
            raise
        return descriptor

    __del__ = property(attrgetter("_close"))


def pread_of(path: str) -> Callable[[int, int], bytes]:
    """As Disk.opened_to_read."""
    return pread_by(Descriptor(open_regular(path, os.O_RDONLY)))


def pread_by(fd: Descriptor) -> Callable[[int, int], bytes]:
    """``pread`` of a descriptor; the system is advised to read no more than is asked for."""
    if sys.platform != "darwin" and hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # it is advice
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    return partial(_pread, fd)


class RealFile(AppendFile):
    """An AppendFile on a descriptor."""

    __slots__ = ("_write_maps",)

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._write_maps: bool | None = None
        self.fd = owned = fd if isinstance(fd, Descriptor) else Descriptor(fd)
        self.write = partial(os.write, owned)
        self.pread = partial(_pread, owned)
        self.pwrite = partial(_pwrite, owned)

    def pwrite_parts(self, parts: Sequence[bytes], offset: int) -> int:
        fd = self.fd  # as in sync
        if fd < 0:
            _refuse(self.path)
        return _pwritev(fd, parts, offset)

    def has_write_maps(self) -> bool:
        if self._write_maps is None:
            self._write_maps = finds_room_once(self.fd)
        return self._write_maps

    def write_map(self, begin: int, end: int) -> mmap.mmap | None:
        fd = self.fd  # as in sync
        if not self.has_write_maps() or fd < 0:
            return None
        try:
            return write_map_of(fd, begin, end)
        except (OSError, ValueError):
            self._write_maps = False
            return None

    def close(self) -> None:
        if self._write_maps:
            with contextlib.suppress(OSError):  # for tools that copy what has changed
                os.utime(self.fd)
        super().close()

    def sync(self) -> None:
        fd = self.fd  # keeps it open to the end of the call
        if fd < 0:
            _refuse(self.path)
        try:
            sync_data(fd)
        except OSError as error:
            del fd
            raise untraced(error, self.path) from None

    def begin_sync(self) -> Callable[[], None]:
        fd = self.fd  # the thread keeps it open
        if fd < 0:
            _refuse(self.path)
        failed = [_failed_untold()]  # until the thread clears it, which takes no memory
        over = _thread.allocate_lock()
        over.acquire()

        def run() -> None:
            try:
                sync_data(fd)
            except OSError as error:
                failed[0] = untraced(error, self.path)
            else:
                failed.clear()
            finally:
                over.release()

        running = ref(run)  # the thread alone will refer to it

        def wait() -> None:
            while not over.acquire(timeout=_LOOK_SECONDS) and running() is not None:
                pass
            if failed:
                raise failed[0]

        try:
            # Not threading.Thread: its start waits for ever if the thread has no memory to begin.
            _thread.start_new_thread(run, ())
        except RuntimeError:  # the system gives no thread
            return super().begin_sync()
        return wait

    def truncate(self, length: int) -> None:
        fd = self.fd
        if fd < 0:
            _refuse(self.path)
        size = os.fstat(fd).st_size
        length = min(length, size)
        try:
            os.ftruncate(fd, length)
        except OSError as error:
            # At its own length it only gives back what was set aside; a btrfs without room, or
            # behind its quota, refuses that, too.
            if length < size or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        os.lseek(fd, length, os.SEEK_SET)
