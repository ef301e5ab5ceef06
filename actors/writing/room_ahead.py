"""Zeros behind the records of a journal file, for three reasons.

A file that is synced a few KB at a time: an fsync of what was appended waits twice, for the data,
and for the file system's own journal, which has to say that the file is longer and has new blocks.
Where it finds length and blocks there already it waits for the data alone: half of its time.

A file that is put to a few KB at a time, and not synced: each write that goes behind the file's
end has the system find memory for a few pages and what describes them. Of much at once that is
cheap, and a write into pages that are there costs half.

What is small goes into such pages through a write map, for as long as nothing can have happened to
them: without a call it is written in a fifth of the time.

Others may have a map of the file by then, in this process and elsewhere, and a map of what was cut
off kills who reads it: so what was lengthened stays so long. What a failed write left is zeros
again, and a file is sealed over them.
"""

from __future__ import annotations

from mmap import mmap

from octavo.files.door.disk import AppendFile
from octavo.files.journal import cdb

_FEW_BYTES = 16 << 10
"""No more than so many a sync: zeros are written once more, so of larger pieces little is saved."""
SYNCED_AHEAD_BYTES = 64 << 10
_LONG_BYTES = cdb.MAX_FILE_BYTES // 2
WIDE_FROM_BYTES = 1 << 20
"""A file with fewer bytes of records may stay small."""
_WIDE_SHIFT = 3
"""An eighth of what a file has, at most."""
WIDE_STEP = 64 << 10
"""Zeros end at a multiple of it: the system's pieces of memory are as large as their places in
the file are even."""
_SMALL_BYTES, _MEDIUM_BYTES, LARGE_BYTES = 512, 4 << 10, 96 << 10
"""Of smaller records a page takes many, and there is nothing to gain but by a write map; what is
larger finds its memory at once by itself. Up to the middle there are twice as many zeros, so that
one put in some hundreds waits for them: every hundredth would be what the slowest of a hundred
takes. Of small ones half of the zeros are some hundreds, and what a file does not need of them in
the end is fewer bytes written."""
_ZEROS = memoryview(bytes(cdb.AHEAD_BYTES))

WriteMap = tuple[mmap | None, int, int]
"""The file as a map to write into; up to which place (exclusive end), and until when, in ms."""
NO_MAP: WriteMap = None, 0, 0
_OPEN_MS = 100
"""Who puts without a break fills one in a tenth of it: see write_map.py."""


class RoomAhead:
    """How far one file was lengthened. All in the Bookie's turn."""

    __slots__ = ("_count", "_looked", "_syncs", "_taken", "end")

    def __init__(self) -> None:
        self.end = 0
        """Zeros, or records, stand up to there; 0, or below the records' end: there are none."""
        self._count = self._taken = self._syncs = 0
        self._looked = 0, 0, 0

    def begin(self, count: int, taken: int, syncs: int) -> int:
        """The file has so many records, bytes and syncs. Where a put has to end for the first
        ``widen`` to be due."""
        self._count, self._taken, self._syncs = count, taken, syncs
        if not self._looked[0]:
            self._looked = count, taken, syncs
        return max(taken + WIDE_STEP, WIDE_FROM_BYTES)

    def lengthen(self, file: AppendFile, count: int, taken: int, syncs: int) -> int:
        """Every few hundred records at most: write zeros if few bytes at a time were synced since
        the last look. After how many records like those the next look is due; 0: it does not
        matter. Never raises OSError: whoever writes the next record is told."""
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
        records were of a size that gains by them. Where a put has to end for the next look to be
        due, ``full`` at the latest, and the write map for those before it. Never raises OSError:
        whoever writes the next record is told."""
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
        # Told before, for an interrupt: what a map may hold is never thought not to be there. And
        # no more than was written: where a file in memory was lengthened without having its pages,
        # who reads a map of it is killed when there is no room for one.
        before, self.end = self.end, end
        try:
            self.end = max(before, begin + file.pwrite(_ZEROS[: end - begin], begin))
        except OSError:
            self.end = before

    def cut(self, file: AppendFile, taken: int, reached: int) -> None:
        """Take away what a failed write left behind the records, perhaps to ``reached``. Raises
        OSError."""
        left = max(min(reached, self.end) - taken, 0)
        if left and any(file.pread(left, taken)):  # btrfs has no room for zeros over zeros, either
            try:
                file.pwrite_all(_ZEROS[:left], taken)
            except OSError:
                self.end = 0  # it is cut, or what stands there would be in front of later records
        file.truncate(max(taken, self.end))
