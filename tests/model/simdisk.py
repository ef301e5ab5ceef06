"""A disk in memory that can lose power: the whole interface of ``octavo.files.door.disk.Disk``.

``after_crash`` makes a new disk from what was synced and a choice of what was not (see MODES in
simimage.py). It is harsher than any one file system: syncing a new file does not make its name
durable, and writes that were not synced survive in any combination. It is not harsher than an
ordinary journal: a rename never loses the file, lengths change in order, and the bytes of one
sector are old or new.

A sync that was made to fail drops the changes: they stay visible, are never durable, and the
next sync says it is fine, which is what Linux does.

Locks belong to the power-on time. Maps are copies of the moment. There are no symbolic links.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import lru_cache, partial
from mmap import mmap
from posixpath import normpath

from simfaults import CRASH_POINTS, READS, Faults, SimCrash
from simimage import MODES, Image
from simnodes import Change, Directory, File, Node

from octavo.files.door.disk import AppendFile, Buffer, Disk, FileLock
from octavo.files.errors import Corruption, StoreLocked

__all__ = ["CRASH_POINTS", "MODES", "READS", "SimCrash", "SimDisk"]


BEFORE_ANY_SYNC = (errno.EMFILE, errno.ENFILE)
"""What a sync by name raises that found no descriptor: nothing is dropped by that."""


class _Cursor:
    """Where an open file stands; apart from it, so that a forgotten file goes at once."""

    __slots__ = ("node", "path", "position")

    def __init__(self, path: str, node: File, position: int) -> None:
        self.path = path
        self.node = node
        self.position = position


class _SimFile(AppendFile):
    __slots__ = ("_cursor", "_disk")

    def __init__(self, disk: SimDisk, cursor: _Cursor) -> None:
        self.path = cursor.path
        self.fd = 0  # below it is closed
        self._disk = disk
        self._cursor = cursor
        self.write = partial(disk._append, cursor)
        self.pread = partial(disk._pread, cursor)
        self.pwrite = partial(disk._pwrite, cursor)
        disk._open[id(cursor)] = cursor

    def sync(self) -> None:
        self._must_be_open()
        self._disk._sync("sync", self._cursor.node, self.path)

    def begin_sync(self) -> Callable[[], None]:
        self._must_be_open()  # and nothing is durable before it is waited for: the worst there is
        return partial(self._disk._sync, "sync", self._cursor.node, self.path)

    def truncate(self, length: int) -> None:
        self._must_be_open()
        self._disk._truncate(self._cursor, length)

    def close(self) -> None:
        self._disk._open.pop(id(self._cursor), None)
        super().close()

    def _must_be_open(self) -> None:
        if id(self._cursor) not in self._disk._open:
            raise OSError(errno.EBADF, "the file was closed", self.path)

    def __del__(self) -> None:
        self._disk._open.pop(id(self._cursor), None)


@lru_cache(1 << 14)
def _parts(path: str) -> list[str]:
    return [part for part in normpath("/" + path).split("/") if part]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class SimDisk(Faults, Disk):
    """A simulated disk. Paths are as on a real one; relative ones begin at the root."""

    made = 0
    """How many there ever were in this process."""

    def __init__(self) -> None:
        super().__init__()
        SimDisk.made += 1
        self.free = 1 << 40
        """What ``free_bytes`` answers; nothing is enforced (``fail("write", ...)`` does that)."""
        self._root = Directory()
        self._directories = [self._root]
        self._locked: dict[int, File] = {}
        self._open: dict[int, _Cursor] = {}
        self._synced_again: list[tuple[str, File]] = []
        self._held: set[str] = set()

    def after_crash(self, mode: str, seed: int = 0) -> SimDisk:
        """What is found when the power comes back. This disk stays as it is.

        O(bytes on the disk). The same mode and seed give the same disk.
        """
        if mode not in MODES:
            raise ValueError(f"mode {mode!r} is not one of {MODES}")
        with self._turn:
            found = SimDisk()
            image = Image(self._directories, mode, seed)
            found._root, found._directories = image.copy(self._root)
            return found

    def after_kill(self) -> SimDisk:
        """What the next process finds when this one is killed and the power stays on.

        Everything is visible and no more durable than before; the locks are gone. Calls of the
        killed process raise SimCrash from now on. O(1).
        """
        with self._turn:
            self.crashed = True
            found = SimDisk()
            found._root, found._directories = self._root, self._directories
            return found

    def files(self) -> dict[str, bytes]:
        """Path and visible bytes of every file."""
        found: dict[str, bytes] = {}

        def walk(directory: Directory, path: str) -> None:
            for name, node in sorted(directory.names.items()):
                if isinstance(node, File):
                    found[f"{path}/{name}"] = bytes(node.content)
                else:
                    walk(node, f"{path}/{name}")

        with self._turn:
            walk(self._root, "")
        return found

    def believed(self) -> list[str]:
        """Files that were synced once more after that had failed, with bytes that were dropped
        then and never written again: that it went well the second time means nothing."""
        return [path for path, node in self._synced_again if node.dropped]

    def open_files(self) -> list[str]:
        """Paths of the AppendFiles that were neither closed nor forgotten."""
        return sorted(cursor.path for cursor in list(self._open.values()))

    # ------------------------------------------------------------ paths

    def _holder(self, path: str) -> tuple[Directory, str]:
        """(directory, name) of a path that need not exist; its directory must."""
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return self._directory(parts[:-1], path), parts[-1]

    def _directory(self, parts: list[str], path: str) -> Directory:
        at: Node = self._root
        for part in parts:
            if not isinstance(at, Directory):
                raise _error(errno.ENOTDIR, path)
            if part not in at.names:
                raise _error(errno.ENOENT, path)
            at = at.names[part]
        if not isinstance(at, Directory):
            raise _error(errno.ENOTDIR, path)
        return at

    def _node(self, path: str) -> Node:
        if not _parts(path):
            return self._root
        directory, name = self._holder(path)
        if name not in directory.names:
            raise _error(errno.ENOENT, path)
        return directory.names[name]

    def _file(self, path: str) -> File:
        node = self._node(path)
        if isinstance(node, Directory):
            raise Corruption(path, 0, "not a file", expected="regular file", found="directory")
        return node

    # ------------------------------------------------------------ open files

    def create(self, path: str) -> AppendFile:
        with self._turn:
            self._begin("create", path)
            directory, name = self._holder(path)
            if name in directory.names:
                raise _error(errno.EEXIST, path)
            self._step("create")
            node = File()
            directory.change(Change(name, node))
            return _SimFile(self, _Cursor(path, node, 0))

    def reopen(self, path: str, length: int) -> AppendFile:
        with self._turn:
            self._begin("reopen", path)
            node = self._file(path)
            size = len(node.content)
            if size < length:
                raise Corruption(path, size, "file too short", expected=length, found=size)
            self._step("reopen")
            if size > length:
                node.change(length, None)
            return _SimFile(self, _Cursor(path, node, length))

    def _append(self, cursor: _Cursor, buf: Buffer) -> int:
        with self._turn:
            taken = self._write("write", cursor, buf, cursor.position)
            cursor.position += taken
            return taken

    def _pwrite(self, cursor: _Cursor, buf: Buffer, offset: int) -> int:
        with self._turn:
            return self._write("pwrite", cursor, buf, offset)

    def _write(self, op_name: str, cursor: _Cursor, buf: Buffer, offset: int) -> int:
        cut = self._begin(op_name, cursor.path)
        if offset < 0:
            raise _error(errno.EINVAL, cursor.path)
        self._step(op_name)
        data = bytes(buf)[:cut]
        if data:
            node = cursor.node
            node.change(offset, data)
        return len(data)

    def _pread(self, cursor: _Cursor, length: int, offset: int) -> bytes:
        with self._turn:
            return self._read_at(cursor.node, length, offset, cursor.path)

    def _read_at(self, node: File, length: int, offset: int, path: str) -> bytes:
        self._begin("pread", path)
        if length < 0 or offset < 0:
            raise _error(errno.EINVAL, path)
        return bytes(node.content[offset : offset + length])

    def _sync(self, op_name: str, node: File, path: str) -> None:
        with self._turn:
            try:
                self._begin(op_name, path)
            except OSError as error:
                if error.errno not in BEFORE_ANY_SYNC:
                    node.drop()
                raise
            self._step(op_name)
            if node.dropped:
                self._synced_again.append((path, node))
            node.sync()

    def _truncate(self, cursor: _Cursor, length: int) -> None:
        with self._turn:
            self._begin("truncate", cursor.path)
            if length < 0:
                raise _error(errno.EINVAL, cursor.path)
            self._step("truncate")
            length = min(length, len(cursor.node.content))
            cursor.node.change(length, None)
            cursor.position = length

    # ------------------------------------------------------------ reading

    def map(self, path: str) -> mmap | bytes:
        with self._turn:
            self._begin("map", path)
            node = self._file(path)
            return node.mapped() if path.endswith(".log") else bytes(node.content)

    def opened_to_read(self, path: str) -> Callable[[int, int], bytes]:
        with self._turn:
            self._begin("open", path)
            node = self._file(path)

        def pread(length: int, offset: int) -> bytes:
            with self._turn:
                return self._read_at(node, length, offset, path)

        return pread

    def read(self, path: str, limit_bytes: int) -> bytes:
        with self._turn:
            self._begin("read", path)
            found = bytes(self._file(path).content)
        if len(found) > limit_bytes:
            raise Corruption(
                path, limit_bytes, "file too large", expected=limit_bytes, found=len(found)
            )
        return found

    def pread(self, path: str, length: int, offset: int) -> bytes:
        with self._turn:
            return self._read_at(self._file(path), length, offset, path)

    def size(self, path: str) -> int:
        with self._turn:
            self._begin("size", path)
            return len(self._file(path).content)

    def exists(self, path: str) -> bool:
        with self._turn:
            self._begin("exists", path)
            try:
                self._node(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def links(self, path: str) -> int:
        with self._turn:
            self._begin("links", path)
            return self._file(path).links

    def listdir(self, path: str) -> list[str]:
        with self._turn:
            self._begin("listdir", path)
            return sorted(self._directory(_parts(path), path).names)

    # ------------------------------------------------------------ names

    def rename(self, source: str, target: str) -> None:
        with self._turn:
            self._begin("rename", source)
            from_dir, from_name = self._holder(source)
            to_dir, to_name = self._holder(target)
            node = self._node(source)
            there = to_dir.names.get(to_name)
            self._check_rename(node, there, source, target)
            if there is node:
                return
            self._step("rename")
            entry = Change(to_name, node)
            to_dir.change(entry)
            from_dir.change(Change(from_name, None, joined=from_dir is to_dir, within=entry))

    def _check_rename(self, node: Node, there: Node | None, source: str, target: str) -> None:
        if isinstance(node, Directory):
            inner, outer = _parts(target), _parts(source)
            if len(inner) > len(outer) and inner[: len(outer)] == outer:
                raise _error(errno.EINVAL, target)
            if isinstance(there, File):
                raise _error(errno.ENOTDIR, target)
            if there is not None and there is not node and there.names:
                raise _error(errno.ENOTEMPTY, target)
        elif isinstance(there, Directory):
            raise _error(errno.EISDIR, target)

    def link(self, source: str, target: str) -> None:
        with self._turn:
            self._begin("link", source)
            node = self._node(source)
            directory, name = self._holder(target)
            if name in directory.names:
                raise _error(errno.EEXIST, target)
            if isinstance(node, Directory):
                self._file(source)
            self._step("link")
            directory.change(Change(name, node))

    def unlink(self, path: str) -> None:
        with self._turn:
            self._begin("unlink", path)
            if isinstance(self._node(path), Directory):
                raise _error(errno.EISDIR, path)
            directory, name = self._holder(path)
            self._step("unlink")
            directory.change(Change(name, None))

    def rmdir(self, path: str) -> None:
        with self._turn:
            self._begin("rmdir", path)
            holder, name = self._holder(path)
            found = self._directory(_parts(path), path)
            if found.names:
                raise _error(errno.ENOTEMPTY, path)
            self._step("rmdir")
            holder.change(Change(name, None))

    def _make_directory(self, path: str) -> None:
        with self._turn:
            self._begin("mkdir", path)
            if not _parts(path):
                return
            holder, name = self._holder(path)
            if isinstance(holder.names.get(name), Directory):
                return
            if name in holder.names:
                raise _error(errno.ENOTDIR, path)
            self._step("mkdir")
            made = Directory()
            self._directories.append(made)
            holder.change(Change(name, made))
            self.sync_dir("/" + "/".join(_parts(path)[:-1]))

    def hold(self, path: str) -> None:
        with self._turn:
            self._begin("hold", path)
            self._directory(_parts(path), path)
            self._held.add(path)

    def let_go(self, path: str) -> None:
        self._held.discard(path)

    def sync_dir(self, path: str) -> None:
        with self._turn:
            name = "sync_held" if path in self._held else "sync_dir"
            try:
                self._begin(name, path)
            except OSError as error:
                if error.errno not in BEFORE_ANY_SYNC:
                    self._directory(_parts(path), path).pending.clear()
                raise
            directory = self._directory(_parts(path), path)
            self._step(name)
            directory.sync()

    def sync_file(self, path: str) -> None:
        with self._turn:
            self._sync("sync_file", self._file(path), path)

    # ------------------------------------------------------------ the rest

    def lock(self, path: str) -> FileLock:
        with self._turn:
            self._begin("lock", path)
            directory, name = self._holder(path)
            node = directory.names.get(name)
            if isinstance(node, Directory):
                self._file(path)
            if node is not None and id(node) in self._locked:
                raise StoreLocked(f"{path} is locked by this process ({os.getpid()})")
            self._step("lock")
            if node is None:
                node = File()
                directory.change(Change(name, node))
            node.change(0, None)
            node.change(0, b"%d\n" % os.getpid())
            self._locked[id(node)] = node
            token = [node]
            return FileLock(path, partial(self._release, token))

    def hold_file(self, path: str) -> FileLock:
        with self._turn:
            self._begin("hold_file", path)
            node = self._file(path)
            self._locked[id(node)] = node
            return FileLock(path, partial(self._release, [node]))

    def is_held(self, path: str) -> bool:
        with self._turn:
            self._begin("is_held", path)
            try:
                return id(self._file(path)) in self._locked
            except FileNotFoundError:
                return False

    def _release(self, token: list[File]) -> None:
        with self._turn:
            if token:
                self._locked.pop(id(token.pop()), None)

    def free_bytes(self, path: str) -> int:
        with self._turn:
            self._begin("free_bytes", path)
            self._node(path)
            return self.free

    def check_supported(self, path: str) -> None:
        with self._turn:
            self._begin("check_supported", path)
            self._directory(_parts(path), path)
