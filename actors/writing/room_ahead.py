"""Writes zeros behind the records of a journal file, for three reasons.

A file that is synced a few KB at a time: an fsync after an append waits twice, for the data, and
for the file system's own journal, which has to record the new length and blocks. If the length and
the blocks are there already, it waits for the data alone: half the time.

A file that is put to a few KB at a time, and not synced: each write behind the file's end has the
system find memory for a few pages and what describes them. For many pages at once that is cheap,
and a write into pages that are there costs half.

Small records go into such pages through a write map, for as long as nothing can have happened to
the pages: without a call, they are written in a fifth of the time.

Others may have mapped the file by then, in this process and elsewhere, and reading a map of what
was cut off kills the reader: so these zeros stay in the file. What a failed write left among them
is made zeros again, and a file is sealed over them.
"""

from __future__ import annotations

from mmap import mmap

from octavo.files.door.disk import AppendFile
from octavo.files.journal import cdb

_FEW_BYTES = 16 << 10
"""At most so many bytes a sync: zeros cost one more write, so larger pieces save little."""
SYNCED_AHEAD_BYTES = 64 << 10
_LONG_BYTES = cdb.MAX_FILE_BYTES // 2
WIDE_FROM_BYTES = 1 << 20
"""A file with fewer bytes of records gets no zeros for puts: it may stay small."""
_WIDE_SHIFT = 3
"""Zeros are at most an eighth of what a file has."""
WIDE_STEP = 64 << 10
"""Zeros end at a multiple of this: the system uses larger pieces of memory only for places in the
file that are multiples of their size."""
_SMALL_BYTES, _MEDIUM_BYTES, LARGE_BYTES = 512, 4 << 10, 96 << 10
"""Mean sizes of records. Below the first a page takes many records, and only a write map gains
anything; above the last a record finds its memory at once by itself. From the first to the second
there are twice as many zeros, so that one put in some hundreds waits for them: one in a hundred
would show in the 99th percentile. Of smaller records, half of the zeros hold some hundreds, too,
and fewer zeros are written in vain in the end."""
_ZEROS = memoryview(bytes(cdb.AHEAD_BYTES))

WriteMap = tuple[mmap | None, int, int]
"""(the file as a map to write into, the position up to which (exclusive end), until when in ms)"""
NO_MAP: WriteMap = None, 0, 0
_OPEN_MS = 100
"""How long a write map is used. Puts without a break fill it in a tenth of that: write_map.py."""


class RoomAhead:
    """Writes zeros ahead of the records of one file. All in the Bookie's turn."""

    __slots__ = ("_count", "_looked", "_syncs", "_taken", "end")

    def __init__(self) -> None:
        self.end = 0
        """Zeros stand from the records' end up to this position; none if it is not above that."""
        self._count = self._taken = self._syncs = 0
        self._looked = 0, 0, 0

    def begin(self, count: int, taken: int, syncs: int) -> int:
        """Note how many offsets, bytes and syncs the file has. Returns the position at which a put
        has to end for the first ``widen`` to be due."""
        self._count, self._taken, self._syncs = count, taken, syncs
        if not self._looked[0]:
            self._looked = count, taken, syncs
        return max(taken + WIDE_STEP, WIDE_FROM_BYTES)

    def lengthen(self, file: AppendFile, count: int, taken: int, syncs: int) -> int:
        """Write zeros if, since the last look, a few bytes at a time were synced. To be called
        every few hundred records at most. Returns after how many such records the next look is due;
        0: it does not matter. Never raises OSError: the write of the next record will."""
        records, size, synced = count - self._count, taken - self._taken, syncs - self._syncs
        self.begin(count, taken, syncs)
        if records <= 0 or not 0 < size <= synced * _FEW_BYTES or taken > _LONG_BYTES:
            return 0
        end = self.end
        if end < taken + SYNCED_AHEAD_BYTES // 2:
            end = taken + SYNCED_AHEAD_BYTES
            self._zeros(file, taken, end)
        return max((end - taken) * records // size, 1)

    def widen(
        self, file: AppendFile, count: int, taken: int, syncs: int, full: int, now_ms: int
    ) -> tuple[int, WriteMap]:
        """Write zeros, up to ``full`` at most, if nothing was synced since the last look, and
        records were of a size that gains by it. Returns the position at which a put has to end for
        the next look to be due, ``full`` at the latest, and the write map for puts before that.
        Never raises OSError: the write of the next record will."""
        before, self._looked = self._looked, (count, taken, syncs)
        mean = (taken - before[1]) // max(count - before[0], 1)
        least = 1 if file.has_write_maps() else _SMALL_BYTES
        if syncs > before[2] or not least <= mean <= LARGE_BYTES or taken > _LONG_BYTES:
            return min(taken + WIDE_FROM_BYTES, full), NO_MAP
        if full - taken < WIDE_STEP:
            return full, NO_MAP
        room = cdb.AHEAD_BYTES if _SMALL_BYTES <= mean < _MEDIUM_BYTES else cdb.AHEAD_BYTES // 2
        end = min(taken + min(room, taken >> _WIDE_SHIFT), full) // WIDE_STEP * WIDE_STEP
        begin = max(self.end, taken)
        if begin < end:
            self._zeros(file, begin, end)
        bound = min(max(self.end - mean, end - mean, taken + 1), full)
        if mean < _MEDIUM_BYTES and self.end > taken:
            mapped = file.write_map(taken, self.end)
            if mapped is not None:
                return bound, (mapped, self.end, now_ms + _OPEN_MS)
        return bound, NO_MAP

    def _zeros(self, file: AppendFile, begin: int, end: int) -> None:
        """Write zeros in [begin, end), as far as there is room."""
        # Set before the write, in case of an interrupt: what others may have mapped must never be
        # taken for absent. Afterwards no more than was written: if a file in memory (tmpfs) were
        # lengthened without pages, reading a map of it would kill when there is no room for one.
        before, self.end = self.end, end
        try:
            self.end = max(before, begin + file.pwrite(_ZEROS[: end - begin], begin))
        except OSError:
            self.end = before

    def cut(self, file: AppendFile, taken: int, reached: int) -> None:
        """Remove what a failed write left behind the records, perhaps as far as ``reached``. Raises
        OSError."""
        left = max(min(reached, self.end) - taken, 0)
        if left and any(file.pread(left, taken)):  # on a full btrfs even zeros over zeros need room
            try:
                file.pwrite_all(_ZEROS[:left], taken)
            except OSError:
                self.end = 0  # cut all, or what was left would stand in front of later records
        file.truncate(max(taken, self.end))
