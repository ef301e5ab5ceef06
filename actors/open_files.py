"""Bounds how many of a store's files are mapped at once.

Before Python 3.13 every map holds a descriptor, so 5,000 files would exceed the usual limit. A
file that was let go is mapped again when it is read; a map lives as long as a buffer of it does,
so nothing is ever unmapped under a reader.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from mmap import mmap
from typing import TYPE_CHECKING

from octavo.files.door.maps import share_of_descriptors, share_of_maps
from octavo.files.door.open_file import read_whole
from octavo.files.errors import OUT_OF_MEANS, Closed, Corruption, room_for, storage_error
from octavo.files.journal import cdb, record
from octavo.files.kernels.cold_pages import COLD
from octavo.files.lifecycle import State
from octavo.files.locks import new_lock

if TYPE_CHECKING:
    from octavo.actors.file_actor import FileActor
    from octavo.actors.journal_file import JournalFile

Pread = Callable[[int, int], bytes]
"""``pread(length, offset)``"""
_ONE_BY_ONE = 8
"""Of the single reads from a file that is not mapped, one in so many maps it after all."""
_MOST_BYTES = 1 << 30  # a system call reads no more than 2 GiB
_SHARE = 2
"""If no limit was given: half of the maps, or descriptors, that the process may have."""
_MOST, _LEAST = 1 << 14, 8
"""Bounds of the number of maps that this gives."""
_CALLED_OF = 8
"""One in so many of the files that may be mapped may have a descriptor, for reads by calls."""

_all: set[weakref.ref[OpenFiles]] = set()
_gone = _all.discard
"""Not a WeakSet: see turns/runtime.py."""
# In a forked child their locks may be held by threads that are gone; see ``OpenFiles.forked``.
os.register_at_fork(after_in_child=_all.clear)


def _everyone() -> list[OpenFiles]:
    """The OpenFiles of all stores that this process reads."""
    return [found for each in _all.copy() if (found := each()) is not None]


class OpenFiles:
    """Keeps at most ``limit`` files mapped; one more lets go of the one opened longest ago."""

    def __init__(self, limit: int | None = None) -> None:
        """``limit`` None: as many as suit this process, shared with all others made with None; of
        those, the one with the most files lets go."""
        self._shares = limit is None
        if limit is None:
            limit = max(min(share_of_maps(_SHARE), _MOST), _LEAST)
        self.limit = limit
        self._most_called = min(limit, share_of_descriptors(_SHARE)) // _CALLED_OF
        self._lock = new_lock()
        self._called: list[JournalFile] = []
        self._singly: dict[object, list[int]] = {}
        """By sealed file: [records read singly, modulo _ONE_BY_ONE, where its offsets begin, how
        many records it has]."""
        self._open: OrderedDict[FileActor, None] = OrderedDict()
        self.closed = False
        self._reference = weakref.ref(self, _gone)
        _all.add(self._reference)

    def opened(self, file: FileActor) -> mmap | bytes:
        """Map ``file`` and count it. One open, one mmap, one close. Raises Closed, Corruption,
        FileNotFoundError, StorageFailed, StorageFull."""
        if self.closed:
            raise Closed("the store is closed")
        mapped = self.mapped(file)
        with self._lock:
            self._open[file] = None
            self._open.move_to_end(file)
        sharing = self._sharing()
        over = sum(map(len, sharing)) - self.limit
        if over > 0:
            most = max(sharing, key=len)
            most._shrink(max(len(most) - over, 0))
        return mapped

    def mapped(self, file: FileActor) -> mmap | bytes:
        """Map ``file`` without counting it. Raises what ``opened`` does, except Closed."""
        try:
            return file.map_now()
        except FileNotFoundError:
            raise  # its caller knows what that means
        except OSError as error:
            if error.errno not in OUT_OF_MEANS:
                raise storage_error(error, "a file of the store cannot be read") from error
            with room_for("map of a file"):
                return self._with_fewer(file)

    def _sharing(self) -> list[OpenFiles]:
        """The OpenFiles that share this one's limit, itself included."""
        return [each for each in _everyone() if each._shares] if self._shares else [self]

    def read(self, file: JournalFile, at: int, length: int) -> bytes:
        """Read bytes, by a system call, of a file that is not being written: one wait for all
        pages, without the interpreter lock. Returns b"" if the file cannot be opened again. Raises
        StorageFailed, StorageFull."""
        if (pread := file.pread) is None:
            try:
                pread = self._opened_to_read(file)
            except OSError:
                return b""  # the caller reads its map
        before = COLD.reads() if COLD.seldom() else None
        try:
            data = read_whole(pread, min(length, _MOST_BYTES), at)
        except OSError as error:
            raise storage_error(error, file.path) from error
        if before is not None:
            COLD.judge(before)
        return data

    def one(self, file: JournalFile, relative: int) -> tuple[bytes, int] | None:
        """(bytes of a record, its offset), read from a sealed file that is not mapped if its map
        would push out another: four system calls, a fifth of what that costs. None: map the file,
        since it is read often, or needs a closer look. Raises as ``read``."""
        if file.reading[0] is not None or file.reading[1]:
            return None
        if sum(map(len, self._sharing())) < self.limit:
            return None
        try:
            known = self._singly.get(file) or self._table_of(file)
        except (OSError, Corruption):
            return None  # mapping it raises the error
        reads, table_at, count = known
        known[0] = (reads + 1) % _ONE_BY_ONE
        if known[0] == 0 or not 0 <= relative < count:
            return None
        pair = self.read(file, table_at + 4 * relative, 8)
        at, end = int.from_bytes(pair[:4], "little"), int.from_bytes(pair[4:], "little")
        if end > table_at or not record.LEAST_BYTES <= end - at <= _MOST_BYTES:
            return None
        data = self.read(file, at, end - at)
        # The checksum of the table was not compared, so the record has to prove that it is the one.
        front = record.CDB_KEY_LENGTH + (end - at - 16).to_bytes(4, "little")
        whole = len(data) == end - at and data[:16] == front + relative.to_bytes(8, "big")
        return (data, at) if whole else None

    def _table_of(self, file: JournalFile) -> list[int]:
        """Read and keep what ``one`` needs of a sealed file. Raises OSError, Corruption."""
        size = file.by_name(file.disk.size)
        tail = self.read(file, max(size - cdb.TRAILER_BYTES, 0), cdb.TRAILER_BYTES)
        trailer = cdb.read_trailer(tail, size, file.path)
        count = 0 if trailer.sparse else trailer.count
        known = self._singly[file] = [0, trailer.offsets_at, count]
        return known

    def _opened_to_read(self, file: JournalFile) -> Pread:
        sharing = self._sharing()
        if sum([len(each._called) for each in sharing]) >= self._most_called:
            for each in sharing:
                each._close_called()
        pread = file.pread = file.by_name(file.disk.opened_to_read)
        self._called.append(file)
        if file.state is State.CLOSED:  # as in settle
            file.pread = None
        return pread

    def _close_called(self) -> None:
        called, self._called = self._called, []
        for file in called:
            file.pread = None

    def _with_fewer(self, file: FileActor) -> mmap | bytes:
        """Map ``file`` when no descriptor, or no room for a map, is left: all stores of the process
        are cut to half of what the largest has, then to half of that, until the file can be mapped.
        Raises OSError if it cannot with none left."""
        everyone = _everyone()
        for each in everyone:
            each._close_called()
        left = max(map(len, everyone), default=0)
        while True:
            left //= 2
            for each in everyone:
                each._shrink(left)
            try:
                return file.map_now()
            except OSError as error:
                if error.errno not in OUT_OF_MEANS or not left:
                    raise

    def settle(self, file: FileActor) -> None:
        """Called once ``file`` keeps its map: it gives that up again if it was let go since
        opened(), or deleted, as the map would keep its room on disk taken."""
        if file.state is State.CLOSED:
            self.dropped(file)
        if file not in self._open:
            file.forget_map()

    def _shrink(self, limit: int) -> None:
        with self._lock:
            over = [self._open.popitem(last=False)[0] for _ in range(len(self._open) - limit)]
        for old in over:
            old.forget_map()

    def let_go(self) -> None:
        """Give up all maps for good; those of which somebody has a buffer live on."""
        self.closed = True
        self._close_called()
        self._shrink(0)

    def forked(self) -> None:
        """In a forked child that goes on reading: a new lock, as a thread that is gone may hold the
        old one."""
        self._lock = new_lock()
        _all.add(self._reference)

    def dropped(self, file: FileActor) -> None:
        """Stop counting ``file``."""
        with self._lock:
            self._open.pop(file, None)
        self._singly.pop(file, None)

    def __len__(self) -> int:
        return len(self._open)
