"""Makes write maps: the end of a file that is being written, as a map to write into.

A system call for a small write takes several times as long as the write itself. Into a map it is a
copy of memory: it is in the file at once, for whoever reads that, and stays if the process is
killed, as what a call wrote does.

But if the system cannot provide a page as it is first written to, a map kills the process where a
call would raise an error. So write maps are only made over bytes that a call has just written, in
file systems that find room for a page once; and the system is made to get each page ready before,
which does raise errors. Once it has written a page out, the next write to that asks the file system
anew, and may kill the process if the file system failed meanwhile, or has no room and the file's
blocks are shared with a copy. So a write map is left after a moment.
"""

from __future__ import annotations

import mmap
import sys

from octavo.files.door.mounts import type_of

_POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE, from 5.14 on, for which Python has no name."""
_FINDS_ROOM_ONCE = frozenset({"ext2", "ext3", "ext4", "tmpfs", "xfs"})
"""Others, such as btrfs, write a page to a new place each time."""


def finds_room_once(fd: int) -> bool:
    """Whether an open file is on one of those file systems. Reads the system's table of mounts."""
    return sys.platform == "linux" and type_of(fd) in _FINDS_ROOM_ONCE


def write_map_of(fd: int, begin: int, end: int) -> mmap.mmap:
    """The file up to ``end`` as a map, of which [begin, end) may be written to. Raises OSError, or
    ValueError where the file ends before ``end``."""
    mapped = mmap.mmap(fd, end, access=mmap.ACCESS_WRITE)
    try:
        start = begin // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(_POPULATE_WRITE, start, end - start)
    except BaseException:
        mapped.close()
        raise
    return mapped
