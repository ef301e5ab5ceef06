"""Tells which pages of a map are in memory, by asking the system (``mincore``)."""

from __future__ import annotations

import mmap
from typing import Any

from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, Mask
from octavo.files.later import Later

_ctypes: Any = Later("ctypes")

_PAGES_A_STRETCH = 32
"""The most pages to look at for each stretch: that costs 1 ns for a page that this process has
touched and 60 ns for another, where to ask for a stretch costs 1 to 2 us."""


def absent(mapped: mmap.mmap, starts: Ints, ends: Ints) -> Mask | None:
    """Which of these stretches, none of them empty and all within the map, are not wholly in
    memory. None: that cannot be told, or they are so far apart that to look costs too much.

    Linux says that all is in memory if the caller neither owns the file nor may write to it.
    """
    first = int(starts.min()) // mmap.PAGESIZE
    count = (int(ends.max()) - 1) // mmap.PAGESIZE + 1 - first
    if count > _PAGES_A_STRETCH * len(starts):
        return None
    told = np.empty(count, dtype=np.uint8)
    whole = np.frombuffer(mapped, dtype=np.uint8)
    at = whole.ctypes.data + first * mmap.PAGESIZE
    if _look(at, min(count * mmap.PAGESIZE, len(mapped) - first * mmap.PAGESIZE), told.ctypes.data):
        return None
    missing = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(told & 1 ^ 1, out=missing[1:])
    low, high = starts // mmap.PAGESIZE - first, (ends - 1) // mmap.PAGESIZE + 1 - first
    found: Mask = missing[high] > missing[low]
    return found


def _look(at: int, length: int, target: int) -> int:
    """Ask the system. 0: the lowest bit of each byte at ``target`` tells of a page. Else, and on
    systems that cannot tell, another number."""
    ctypes = _ctypes
    try:
        look = ctypes.CDLL(None).mincore
    except (AttributeError, OSError):
        return -1
    return int(look(ctypes.c_void_p(at), ctypes.c_size_t(length), ctypes.c_void_p(target)))
