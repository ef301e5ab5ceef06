"""Whole files as maps, and how many of them a process may have."""

from __future__ import annotations

import mmap
import os
import resource
import sys

HOLDS_DESCRIPTOR = sys.version_info < (3, 13)
"""Whether each map keeps a descriptor of its file, of which a process often has but 1,024."""
_MAPS = 65_530
"""What Linux lets a process map, if nobody changed it."""
_MOSTLY = {resource.RLIMIT_NOFILE: 1024}
"""What a limit mostly is."""


def map_whole(fd: int) -> mmap.mmap | bytes:
    """A file as it is now, to be read; b"" if it is empty. ``fd`` may be closed then."""
    length = os.fstat(fd).st_size
    if not length:
        return b""
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, length, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(fd, length, access=mmap.ACCESS_READ)


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
