"""Maps and copies whole files, and tells how many maps a process may have."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import sys

from octavo.files.door.open_file import MOST_BYTES, open_regular

HOLDS_DESCRIPTOR = sys.version_info < (3, 13)
"""Whether each map keeps a descriptor of its file, of which a process often has but 1,024."""
_MAPS = 65_530
"""What Linux lets a process map, if nobody changed it."""
_MOSTLY = {resource.RLIMIT_NOFILE: 1024}
"""What a limit usually is, where the system does not tell."""
_PIECE = 1 << 20
_LONG_BYTES = 1 << 32


def length_of(fd: int) -> int:
    """A file's length in bytes; above 4 GiB only up to the last bytes that were written. Files of a
    store are hardly ever so long, and one that a hole lengthened would be read for hours."""
    length = os.fstat(fd).st_size
    if length <= _LONG_BYTES:
        return length
    end = 0
    try:
        while end < length:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return end if error.errno == errno.ENXIO else length  # nothing follows; or nobody knows
    return end


def length_at(path: str) -> int:
    """``length_of`` the file of this name; of a symbolic link its own length."""
    length = os.lstat(path).st_size
    if length <= _LONG_BYTES:
        return length
    fd = open_regular(path, os.O_RDONLY)
    try:
        return length_of(fd)
    finally:
        os.close(fd)


def map_whole(fd: int) -> mmap.mmap | bytes:
    """Map a file as it is now, to read it; b"" if it is empty. ``fd`` may be closed then."""
    length = length_of(fd)
    if not length:
        return b""
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, length, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(fd, length, access=mmap.ACCESS_READ)


def copied_map(fd: int, start: int) -> mmap.mmap | bytes:
    """As Disk.map_growing. A read of what is just being written may see a later byte without an
    earlier one. So everything up to the last byte that was not zero is read once more: what stands
    before that byte was written before it."""
    length = length_of(fd)
    if not length:
        return b""
    copy = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with memoryview(copy) as room:
        _read_into(fd, room, start)
        end = _zeros_from(copy, start)
        reached = _read_into(fd, room[:end], start)
        room[reached:end] = bytes(end - reached)  # it was cut meanwhile
    return copy


def _read_into(fd: int, room: memoryview, at: int) -> int:
    """Fill ``room`` from ``at`` on with what stands there in the file, and return where that ends.
    The descriptor's own position is not moved: others may use it."""
    while at < len(room) and (taken := _pread_into(fd, room[at:], at)):
        at += taken
    return at


def _pread_into(fd: int, room: memoryview, at: int) -> int:
    if hasattr(os, "preadv"):
        try:
            return os.preadv(fd, (room[:MOST_BYTES],), at)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS):  # as a sandbox answers
                raise
    found = os.pread(fd, min(len(room), _PIECE), at)
    room[: len(found)] = found
    return len(found)


def _zeros_from(copy: mmap.mmap, start: int) -> int:
    """Where the zeros at the end of ``copy`` begin, but not before ``start``."""
    end = len(copy)
    while end > start:
        at = max(end - _PIECE, start)
        if left := copy[at:end].rstrip(b"\0"):
            return at + len(left)
        end = at
    return start


def share_of_maps(share: int) -> int:
    """One in ``share`` of the maps that a process may have, one at least."""
    most = max(_MAPS // share, 1)
    return min(share_of_descriptors(share), most) if HOLDS_DESCRIPTOR else most


def share_of_descriptors(share: int) -> int:
    """One in ``share`` of the descriptors that a process may have, one at least."""
    return share_of(resource.RLIMIT_NOFILE, share)


def share_of(limit: int, share: int) -> int:
    """One in ``share`` of what a process may have by a limit of ``resource``, one at least;
    ``sys.maxsize`` where there is no such limit."""
    try:
        soft = resource.getrlimit(limit)[0]
    except OSError:  # a sandbox that does not let one ask
        soft = _MOSTLY.get(limit, resource.RLIM_INFINITY)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft // share, 1)
