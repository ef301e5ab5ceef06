"""Puts aside columns of numbers, more than memory should hold, to be joined part by part.

Where there is one part, all stays in memory. Else rows are written, block by block, to a file whose
name is removed as soon as it is made, and a part is read back at its turn: so each row is written
and read once, however many parts there are (a Grace hash join). There is no checksum: nobody but
this process ever reads the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from octavo.files.door.disk import Disk
from octavo.files.door.open_file import AppendFile
from octavo.files.errors import StorageFailed, StorageFull, storage_error
from octavo.files.kernels.arrays import np, npt

Column: TypeAlias = "npt.NDArray[Any]"
Columns: TypeAlias = "Sequence[Column]"


class ScratchFailed(StorageFailed):
    """What was put aside is lost; nothing of the store is in doubt."""


class Spill:
    """Rows, each of one part; the columns of all are the same in number and kind."""

    def __init__(self, disk: Disk, path: str, parts: int) -> None:
        """``path``: where a file can be made, if there are several ``parts``."""
        self.parts = parts
        self._disk, self._path = disk, path
        self._kept: list[Columns] = []
        self._file: AppendFile | None = None
        self._blocks: list[tuple[int, Column]] = []
        """(where a block begins, how many of its rows stand before those of each part)."""
        self._filled = 0
        self._types: list[Any] = []

    def add(self, columns: Columns, part_of: npt.NDArray[np.integer[Any]] | None) -> None:
        """Put aside some rows, given the part of each (``None``: there is but one). The rows of a
        part come back in the order in which they were added. Raises StorageFull, ScratchFailed."""
        if part_of is None or self.parts == 1:
            self._kept.append(columns)
            return
        small = np.uint16 if self.parts <= 1 << 16 else np.uint32  # of 16 bits: sorted by radix
        order = np.argsort(part_of.astype(small), kind="stable")
        before = np.searchsorted(part_of[order], np.arange(self.parts + 1))
        self._types = [column.dtype for column in columns]
        block = b"".join(column[order].tobytes() for column in columns)
        try:
            if self._file is None:
                self._file = self._disk.create(self._path)
                self._disk.unlink(self._path)
            self._file.write_all(block)
        except OSError as error:
            told = storage_error(error, f"{self._path}, for what does not fit into memory")
            raise (told if isinstance(told, StorageFull) else ScratchFailed(str(error))) from error
        self._blocks.append((self._filled, before))
        self._filled += len(block)

    def part(self, number: int) -> list[Columns]:
        """The rows of part ``number`` of [0, parts), block by block. Raises ScratchFailed."""
        if self._file is None:
            kept, self._kept = self._kept, []
            return kept
        try:
            return list(self._read(self._file, number))
        except OSError as error:
            raise ScratchFailed(str(error)) from error

    def _read(self, file: AppendFile, number: int) -> Iterator[Columns]:
        for at, before in self._blocks:
            low, high = int(before[number]), int(before[number + 1])
            count, columns = int(before[-1]), []
            for kind in self._types:
                size = (high - low) * kind.itemsize
                found = file.pread_all(size, at + low * kind.itemsize)
                if len(found) != size:
                    raise ScratchFailed(f"{self._path}: what was put aside there is gone")
                columns.append(np.frombuffer(found, dtype=kind))
                at += count * kind.itemsize
            yield columns

    def close(self) -> None:
        """Let go of the file, and so of its bytes. Idempotent."""
        file, self._file = self._file, None
        self._kept, self._blocks = [], []
        if file is not None:
            file.close()
