"""Asks the system for records that are about to be read, many together, if reads wait for a device.

These are only hints, and raise nothing: an error of a file is raised when it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from octavo.actors.journal_file import JournalFile
from octavo.actors.reading.recent_headers import by_file
from octavo.actors.view import JournalView
from octavo.files.errors import OctavoError
from octavo.files.journal.journal_values import spans
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints
from octavo.files.kernels.cold_pages import COLD, ask_to_read
from octavo.files.lifecycle import State

_HEAD_BYTES = 4096
_PARTS = 4
_FIRST = 16
_MOST = 128
"""How many records are asked for at once: _FIRST, then more each time, at most _MOST."""
_BYTES = 4 << 20
"""... and at most so many bytes of them, but at least one record."""


def ask_for(journal: JournalView, sqns: Iterable[int]) -> int:
    """Ask for the records of some sqns, if not in memory; how many bytes they have. 3 us each."""
    bases, files = journal
    before, asked = COLD.reads(), 0
    for sqn in sqns:
        file = files[bisect_right(bases, sqn) - 1]
        if file.state is State.WRITING:  # mostly written just now, so in memory
            continue
        try:
            mapped, offsets = file.ensure_open()
            at = offsets[sqn - file.base]
            end = offsets[sqn - file.base + 1]
        except (OctavoError, OSError, IndexError):
            continue
        ask_to_read(mapped, at, end)
        asked += end - at
    COLD.judge(before)
    return asked


def ask_for_heads(journal: JournalView, sqns: Ints) -> None:
    """Ask for the parts of some records that are read for their heads. 40 us a file."""
    for file, _, relative in by_file(journal, sqns):
        if file.state is State.WRITING:
            continue
        try:
            mapped, offsets = file.ensure_open()
        except (OctavoError, OSError):
            continue
        starts, ends = spans(offsets, relative)
        COLD.ahead(mapped, starts, np.minimum(ends, starts + _HEAD_BYTES))


def waits(journal: JournalView, sqn: int) -> bool:
    """Whether reading a record waits for a device; it stands for others. 2 us."""
    file = journal.file_of(sqn)
    mapped, offsets = file.reading
    relative = sqn - file.base
    if not mapped or not 0 <= relative < len(offsets) - 1:
        return False
    before = COLD.reads()
    mapped[offsets[relative] : offsets[relative] + 1]
    return COLD.judge(before)


def ask_in_order(file: JournalFile, low: int, high: int) -> None:
    """Ask for the bytes [low, high), which are about to be read from front to back, if the file is
    not being written and they are not in memory. 5 us."""
    mapped = file.reading[0]
    if mapped and (high := min(high, len(mapped))) > low:
        part = (high - low) // _PARTS + 1
        starts = np.arange(low, high, part)
        COLD.ahead(mapped, starts, np.minimum(starts + part, high))


def in_turn(journal: JournalView, sqns: Sequence[int]) -> Iterable[int]:
    """The same sqns, whose records the caller then reads one by one. If these come from a device,
    they are asked for ahead, a few at a time."""
    if sqns and (COLD.left or (COLD.seldom() and waits(journal, sqns[0]))):
        return asked_for(journal, sqns)
    return sqns


def asked_for(journal: JournalView, sqns: Sequence[int]) -> Iterator[int]:
    """The same sqns; the records of each few are asked for before the first of them is given."""
    at, few = 0, _FIRST
    while at < len(sqns):
        part = sqns[at : at + few]
        mean = ask_for(journal, part) // len(part)
        yield from part
        at += len(part)
        few = min(max(_BYTES // (mean + 1), 1), at, _MOST)
