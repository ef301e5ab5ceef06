"""Where the records of journal files stand, as columns: a feed may have to know of millions."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from mmap import mmap

from octavo.files.errors import Corruption
from octavo.files.journal import cdb
from octavo.files.journal.runs import Run
from octavo.files.journal.sealed_records import table_of
from octavo.files.kernels.arrays import np


def _none() -> array[int]:
    return array("Q")


@dataclass(slots=True)
class Places:
    """An element for each record of a file, or of a part of it, ascending. 12 to 24 bytes each."""

    numbers: array[int] = field(default_factory=_none)
    """Relative to the file's base."""
    starts: array[int] = field(default_factory=_none)
    ends: array[int] = field(default_factory=_none)
    follows: dict[int, int] = field(default_factory=dict)
    """By the place of a record here: how many records of its batch come behind it, if any do. Empty
    for a sealed file."""

    def __len__(self) -> int:
        return len(self.numbers)

    def within(self, low: int, high: int) -> range:
        """The places of numbers in (low, high]. O(log records)."""
        return range(bisect_right(self.numbers, low), bisect_right(self.numbers, high))

    def of(self, number: int) -> int | None:
        """The place of a number; None: it is not here. O(log records)."""
        at = bisect_left(self.numbers, number)
        return at if at < len(self.numbers) and self.numbers[at] == number else None

    def reaching(self, here: range, size: int) -> int:
        """The first of these places up to which, inclusive, their records have so many bytes; where
        ``here`` ends if they have fewer. O(log records)."""
        if not here:
            return here.stop
        return bisect_left(self.ends, self.starts[here.start] + size, here.start, here.stop)

    def add(self, more: Places) -> None:
        """Add the places of records that stand behind these."""
        known = len(self.numbers)
        self.follows.update((known + place, follow) for place, follow in more.follows.items())
        self.starts.extend(more.starts)
        self.ends.extend(more.ends)
        self.numbers.extend(more.numbers)


def sealed_places(view: memoryview, path: str) -> Places:
    """The places of a sealed file, which is the whole buffer. Raises Corruption."""
    table = table_of(view, path)
    numbers = array("I", table.numbers.astype(np.uint32).tobytes())
    starts = array("I", table.starts.astype(np.uint32).tobytes())
    return Places(numbers, starts[:-1], starts[1:])


def whole_records(
    buffer: bytes | mmap,
    start: int,
    end: int,
    seed: int,
    path: str,
    *,
    above: int = -1,
    first: int = -1,
    last: int = -1,
) -> tuple[Places, int]:
    """(records in [start, end) of a file that may still grow, where to go on).

    A batch that is not whole is left out: at the end it may still come, before that it never
    will. So is a record whose number is not above that of the one before, or ``above``: recovery
    drops it. ``first``, ``last``: relative numbers of the first and the last record there, which
    are known to be whole, though their batches may begin before ``start``, or end behind ``end``.
    O(bytes). Raises Corruption where a whole record follows something that is none, or the last
    one known is not there.
    """
    found = Places()
    end = min(end, len(buffer))
    damages: list[cdb.Damage] = []
    batch: list[cdb.Scanned] = []
    before = 0  # records of the batch that stand before ``start``
    reached = start
    newest = above
    for each in cdb.scan_runs(buffer, start, end, seed, damages):
        if damages:
            raise _damage(path, damages[0].start, damages[0].what)
        rows: Iterable[cdb.Scanned]
        if isinstance(each, Run):
            run = each.behind(newest)
            if not run.starts:
                continue
            if not run.batches:
                batch = []
                reached = run.end
                newest = run.relative_sqn + len(run.starts) - 1
                found.starts.extend(run.starts)
                found.ends.extend(chain(run.starts[1:], (run.end,)))
                found.numbers.extend(range(run.relative_sqn, newest + 1))
                continue
            rows = cdb.each_of(run)
        else:
            rows = (each,)
        for row in rows:
            if row.relative_sqn <= newest:
                continue
            newest = row.relative_sqn
            if row.batch is None:
                batch = []
                reached = _take(found, (row,))
                continue
            position, of = row.batch
            expected = before + len(batch)
            if position != expected or (batch and batch[-1].relative_sqn + 1 != newest):
                batch = []
            if not batch:
                before = position if newest == first else 0
            if position == before + len(batch):
                batch.append(row)
            if batch and (before + len(batch) == of or newest == last):
                reached = _take(found, batch)
                batch = []
    if newest < last:
        raise _damage(path, reached, damages[0].what if damages else "not there")
    return found, reached


def _damage(path: str, at: int, what: str) -> Corruption:
    return Corruption(
        path, at,
        f"journal record ({what}); open the store for writing, which recovers what is whole",
    )  # fmt: skip


def _take(places: Places, rows: Sequence[cdb.Scanned]) -> int:
    """Add the places of records; returns where the last one ends."""
    for row in rows:
        if row.batch is not None and (follow := row.batch[1] - row.batch[0] - 1):
            places.follows[len(places)] = follow
        places.numbers.append(row.relative_sqn)
        places.starts.append(row.at)
        places.ends.append(row.end)
    return rows[-1].end
