"""The low-space reserve: a file of zeros that is given up where a disk is full.

Opening writes manifests, a delete a record, a compaction what is left of the files that it
rewrites: all of these are the ways out of a full disk, and none goes without a little room.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from octavo.files.door.disk import Disk
from octavo.files.errors import OUT_OF_MEANS, StorageFull

log = logging.getLogger("octavo.reserve")

T = TypeVar("T")

RESERVE = "RESERVE"
"""Its name in the store's directory."""
RESERVE_BYTES = 4 << 20
SHARE = 16
"""It is made where so many times its size is free."""


def put_by(disk: Disk, path: str) -> None:
    """Have the reserve of the store at ``path`` there, if there is plenty of room. One call where
    it is. Raises nothing: the store goes on without it."""
    where = f"{path}/{RESERVE}"
    try:
        with suppress(FileNotFoundError):
            if disk.size(where) >= RESERVE_BYTES:
                return
            disk.unlink(where)  # its making was cut short by a kill
        if disk.free_bytes(path) < SHARE * RESERVE_BYTES:
            return
        disk.create_zeros(where, RESERVE_BYTES)
    except OSError as error:
        log.info("%s: there is no low-space reserve: %s", path, error)


def given_up(disk: Disk, path: str) -> bool:
    """Whether the reserve was there, and makes room now."""
    try:
        disk.unlink(f"{path}/{RESERVE}")
    except OSError:
        return False
    log.warning("%s: the disk is full; the low-space reserve is given up. Free some space", path)
    return True


def with_reserve(
    disk: Disk, path: str, call: Callable[[], T], settled: Callable[[], bool] | None = None
) -> T:
    """What ``call`` answers; where it finds no room, it is called again without the reserve, which
    comes back when memory is saved and there is room; and once more when ``settled`` has waited
    for work whose half-made files take room until it ends. Raises what ``call`` raises."""
    ways = iter([partial(given_up, disk, path)] + ([settled] if settled else []))
    while True:
        try:
            return call()
        except (StorageFull, OSError) as error:
            if not _is_full(error) or not any(way() for way in ways):
                raise


def _is_full(error: StorageFull | OSError) -> bool:
    """Whether it is the disk that has no room, not the process."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause = error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in OUT_OF_MEANS)
