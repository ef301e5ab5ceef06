"""Finds the sequence number that a moment stands for, in a journal whose write times may go
back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, HistoryCompacted, UnsupportedFormat
from octavo.files.journal import record
from octavo.files.journal.journal_rows import headers_of
from octavo.files.journal.sparse_offsets import columns_of
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints
from octavo.files.wall_clock import utc

if TYPE_CHECKING:
    from octavo.actors.keeping.restoring import SourceFile

_RECORDS = 1 << 14
"""So many records are looked at together."""
_LAST_MS = (1 << 64) - 1

Moments: TypeAlias = "npt.NDArray[np.uint64]"
"""Write times, ms UTC."""


def last_at(
    disk: Disk, directory: str, files: Sequence[SourceFile], time_ms: int
) -> tuple[int, list[str]]:
    """Return the sqn before the first record, in the order of sqns, that was written later than a
    moment; and notes about records after it that were not written later.

    Every header is looked at, since write times are only what the clock said, and it may have been
    set back. 0.6 us a record; a damaged one has no time. Raises HistoryCompacted if the first
    record written later may be one that compaction dropped.
    """
    moment = np.uint64(min(max(time_ms, 0), _LAST_MS))
    found = max((file.last for file in files), default=0)
    begun, later_ms, behind = False, 0, 0
    for file in files:
        for sqns, times in _written(disk, file):
            if not begun:
                late = np.flatnonzero(times > moment)
                if not len(late):
                    continue
                begun, found = True, int(sqns[late[0]]) - 1
                later_ms = int(times[late[0]])
                sqns, times = sqns[late[0] :], times[late[0] :]
            early = np.flatnonzero(times <= moment)
            behind = int(sqns[early[-1]]) if len(early) else behind
    for file in files:
        if file.last <= found and file.latest_ms > moment:  # nothing left in it is that late
            raise HistoryCompacted(
                f"{directory}: compaction dropped what was written after {utc(time_ms)}, up to "
                f"{utc(file.latest_ms)}, and was replaced or deleted by sqn {file.last}: no state "
                "before that can be restored any more; name a later one with sqn="
            )
    if not behind:
        return found, []
    told = (
        f"sqn {found + 1} was written at {utc(later_ms)}, and others behind it, up to sqn "
        f"{behind}, by {utc(time_ms)}: the clock was set back, or a load came in that had begun "
        "before. They are left out; sqn= names a later state"
    )
    return found, [told]


def _written(disk: Disk, file: SourceFile) -> Iterator[tuple[Ints, Moments]]:
    """Yield (sqns, write times) of a file's records, some at a time."""
    path, view = file.path, memoryview(disk.map(file.path))
    numbers, starts = columns_of(file.offsets)
    for low in range(0, len(numbers), _RECORDS):
        some = numbers[low : low + _RECORDS]
        places = starts[low : low + len(some) + 1]
        try:
            times = headers_of(view, places, 0, file.seed, path).times
        except Corruption:
            whole, times = _one_by_one(view, places, file.seed)
            some = some[whole]
        yield some + file.base, times


def _one_by_one(
    view: memoryview, places: npt.NDArray[np.uint32], seed: int
) -> tuple[Ints, Moments]:
    """Return which of the records have a whole header, and the write times of those."""
    whole, times = [], []
    for number, (at, end) in enumerate(zip(places.tolist(), places[1:].tolist(), strict=False)):
        try:
            times.append(record.parse_header(view[at:end], seed ^ at, end - at).time_ms)
        except (record.NotARecord, UnsupportedFormat):
            continue
        whole.append(number)
    return np.array(whole, dtype=np.int64), np.array(times, dtype=np.uint64)
