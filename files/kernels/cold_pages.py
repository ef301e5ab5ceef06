"""Reduces waiting for pages of maps that are not in memory.

A map is the cheapest way to bytes that are in memory, and the dearest to those that are not: the
thread waits in a page fault, with the interpreter lock, for one page after the other; and around
each the system reads as much as the device is set to, mostly 128 KiB but megabytes on some, where a
store that is larger than memory needs one record. So for maps that are read here and there the
system is advised not to. And once reads are seen to wait for a device, what is about to be read is
asked for before, all at once, or is read by a system call, which waits without the lock.

Advice that the system does not take, for want of memory or because a sandbox forbids it, changes
nothing: if something is wrong, the reads will show it.
"""

from __future__ import annotations

import mmap
import resource
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints
from octavo.files.kernels.resident_pages import absent

Map = TypeVar("Map", bound="mmap.mmap | bytes")

_PAGE = mmap.PAGESIZE
_PIECE_BYTES = 128 << 10
"""Linux takes no more from one advice than the device is set to, or its largest request."""
_GAP_BYTES = 16 << 10
"""Gaps of up to so many bytes are read, too: that costs less than one more request."""
_MOST_BYTES = 64 << 20
_STAYS = 64
_SELDOM = 8
_SAMPLES = 4
_MANY = 32
"""So many stretches make it worth while to ask which of them are in memory."""
_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def scattered(mapped: Map) -> Map:
    """Advise the system that a map will be read here and there, so that a page fault reads just a
    page; returns the map."""
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        with suppress(OSError):
            mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def ask_to_read(mapped: mmap.mmap | bytes | memoryview, low: int, high: int) -> None:
    """Have the system read bytes [low, high) of a map, and do not wait. Some 0.7 us where they are
    in memory, 14 us a MiB."""
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    high = min(high, len(mapped))
    with suppress(OSError):
        for at in range(low - low % _PAGE, high, _PIECE_BYTES):
            mapped.madvise(mmap.MADV_WILLNEED, at, min(_PIECE_BYTES, high - at))


def _ask_to_read_all(mapped: mmap.mmap | bytes, starts: Ints, ends: Ints) -> None:
    """``ask_to_read`` of many stretches, in any order; of no more than 64 MiB in all."""
    order = np.argsort(starts, kind="stable")
    lows, highs = starts[order], np.maximum.accumulate(ends[order])
    cuts = np.flatnonzero(lows[1:] > highs[:-1] + _GAP_BYTES) + 1
    firsts = lows[np.concatenate(([0], cuts))].tolist()
    lasts = highs[np.concatenate((cuts - 1, [len(highs) - 1]))].tolist()
    left = _MOST_BYTES
    for low, high in zip(firsts, lasts, strict=True):
        ask_to_read(mapped, low, min(high, low + left))
        left -= high - low
        if left <= 0:
            return


def reads_of_thread() -> int:
    """A count that grows when this thread has a device read, or waits for a page; 0 where the
    system does not tell. 0.4 us."""
    try:
        usage = resource.getrusage(_WHOSE)
    except OSError:  # a sandbox that does not let one ask
        return 0
    return usage.ru_inblock + usage.ru_majflt


class ColdPages:
    """Judges whether reads of files wait for a device: by some of them, for the whole process."""

    __slots__ = ("_until", "left", "reads")

    def __init__(self, reads: Callable[[], int] = reads_of_thread) -> None:
        self.left = 0
        """How many more judgements that they do not wait it takes to believe it; 0: believed."""
        self.reads = reads
        self._until = 0

    def seldom(self) -> bool:
        """True one time in eight: whether to judge now, for code that runs often."""
        self._until = until = (self._until or _SELDOM) - 1
        return not until

    def judge(self, before: int) -> bool:
        """Judge by what was read since ``reads()`` gave ``before``. Whether reads are now taken to
        wait. 0.5 us."""
        if self.reads() != before:
            self.left = _STAYS
        elif self.left:
            self.left -= 1
        return self.left > 0

    def ahead(self, mapped: mmap.mmap | bytes, starts: Ints, ends: Ints) -> None:
        """Have stretches of a map that are about to be read come into memory, all at once, if they
        are not there. None is empty, and all are within the map. 1.5 us where some of them, which
        are touched, are in memory."""
        if not len(starts):
            return
        before = self.reads()
        if not self.left and not self._waits(mapped, starts):
            return
        if isinstance(mapped, mmap.mmap) and len(starts) >= _MANY:
            missing = absent(mapped, starts, ends)
            if missing is not None and (missing.any() or not self._waits(mapped, starts)):
                starts, ends = starts[missing], ends[missing]
        if len(starts):
            _ask_to_read_all(mapped, starts, ends)
        self.judge(before)

    def _waits(self, mapped: mmap.mmap | bytes, starts: Ints) -> bool:
        """Touch some of these bytes: whether that waits."""
        before = self.reads()
        for at in starts[:: -len(starts) // _SAMPLES].tolist():
            mapped[at : at + 1]
        return self.reads() != before


COLD = ColdPages()
