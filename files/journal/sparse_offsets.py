"""The sparse table of offsets, of a compacted journal file few of whose numbers have a record.

    u32 x n        relative numbers of the records, ascending
    u32 x (n + 1)  where each begins; the last one ends where the records end

A plain table has an entry for each number, with a record or without; this one gives the same answer
for the same index, by a binary search.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, cast, overload

from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import array_of

Table: TypeAlias = "npt.NDArray[np.uint32]"

SPARSE_BELOW = 4
"""A file is written sparse where fewer than one number in so many has a record: a search costs a
get about a microsecond, a plain table 4 bytes a number."""


class SparseOffsets(Sequence[int]):
    """Behaves as the plain table of ``count`` numbers: record i begins at [i] and ends at or before
    [i + 1]; both are equal where there is no record i."""

    __slots__ = ("numbers", "size", "starts")

    def __init__(self, numbers: memoryview, starts: memoryview, count: int) -> None:
        self.numbers = numbers
        self.starts = starts
        self.size = count

    def __len__(self) -> int:
        return self.size + 1

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> array[int]: ...
    def __getitem__(self, index: int | slice) -> int | array[int]:
        if isinstance(index, slice):
            low, high, step = index.indices(self.size + 1)
            wanted = np.arange(low, high, step, dtype=np.uint32)
            at = np.searchsorted(array_of(self.numbers), wanted)
            return array("I", array_of(self.starts)[at].tobytes())
        if index < 0:
            index += self.size + 1
        if not 0 <= index <= self.size:
            raise IndexError(index)
        start: int = self.starts[bisect_left(self.numbers, index)]
        return start

    def between(self, low: int, high: int) -> tuple[int, int]:
        """Which records, counted from the first, have numbers in [low, high)."""
        return bisect_left(self.numbers, low), bisect_left(self.numbers, high)


def plain(numbers: Table, starts: Table, count: int) -> Table:
    """The plain table of the same records."""
    table: Table = starts[np.searchsorted(numbers, np.arange(count + 1, dtype=np.uint32))]
    return table


def columns_of(offsets: Sequence[int]) -> tuple[npt.NDArray[np.int64], Table]:
    """(relative numbers of the records, where each begins and one more, for the last's end), of a
    table of either kind. Nothing is checked."""
    if isinstance(offsets, SparseOffsets):
        return array_of(offsets.numbers).astype(np.int64), array_of(offsets.starts)
    table: Table = np.asarray(offsets, dtype=np.uint32)
    numbers = np.flatnonzero(table[1:] > table[:-1])
    return numbers, np.append(table[numbers], table[-1:])


def numbers_of(offsets: Sequence[int], low: int, high: int) -> Iterator[int]:
    """Every number in [low, high) that has a record, ascending, in a table of either kind."""
    if isinstance(offsets, SparseOffsets):
        begin, end = offsets.between(low, high)
        yield from offsets.numbers[begin:end]
        return
    for number, (at, end) in enumerate(pairwise(offsets[low : high + 1]), low):
        if end > at:
            yield number


def count_from(offsets: Sequence[int], low: int) -> int:
    """How many numbers from ``low`` on have a record, in a table of either kind."""
    if isinstance(offsets, SparseOffsets):
        return len(offsets.numbers) - bisect_left(offsets.numbers, low)
    numbers, _ = columns_of(offsets)
    return len(numbers) - int(np.searchsorted(numbers, low))


def stretch(offsets: Sequence[int], low: int, high: int, room: int) -> tuple[int, int]:
    """(last number, records) of the longest stretch of the numbers [low, high] that begins at
    ``low`` and has at most ``room`` records; in a plain table every number counts as one."""
    if not isinstance(offsets, SparseOffsets):
        last = min(high, low + room - 1)
        return last, last - low + 1
    begin, end = offsets.between(low, high + 1)
    if end - begin <= room:
        return high, end - begin
    return offsets.numbers[begin + room - 1], room


class Cut(NamedTuple):
    """A stretch of a table of offsets, as jobs take it."""

    table: bytes
    """Native u32: a plain table of one entry more than numbers, or the columns of a sparse one."""
    records: int
    sparse: bool

    def part(self, name: str, seed: int, base_sqn: int, first: int) -> dict[str, Any]:
        """This stretch of a journal file as ledger_files.level_zero wants it described; ``first``
        is the number with which it begins."""
        return {
            "name": name, "seed": seed, "base_sqn": base_sqn,
            "first": first, "count": self.records, "sparse": self.sparse,
        }  # fmt: skip


def cut(offsets: Sequence[int], low: int, high: int) -> Cut:
    """Cut the numbers [low, high) out of a table of either kind."""
    if isinstance(offsets, SparseOffsets):
        begin, end = offsets.between(low, high)
        numbers, starts = offsets.numbers[begin:end], offsets.starts[begin : end + 1]
        return Cut(numbers.tobytes() + starts.tobytes(), end - begin, sparse=True)
    part = cast("array[int] | memoryview", offsets[low : high + 1])
    return Cut(part.tobytes(), high - low, sparse=False)
