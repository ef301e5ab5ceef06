"""The low-space reserve: a file of zeros that is given up where a disk is full.

Opening writes manifests, a delete a record, a compaction what is left of the files that it
rewrites: all of these are the ways out of a full disk, and none goes without a little room.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from octavo.files.door.disk import Disk
from octavo.files.errors import OUT_OF_MEANS, Corruption, StorageFull

log = logging.getLogger("octavo.reserve")

T = TypeVar("T")

RESERVE = "RESERVE"
"""Its name in the store's directory."""
RESERVE_BYTES = 4 << 20
SHARE = 16
"""It is made where so many times its size is free."""
PARTS = 8
"""A record is given one of so many at a time: what memory's saving finds free it takes, and the
records to come need room, too."""


def put_by(disk: Disk, path: str) -> None:
    """Have the reserve of the store at ``path`` there, in full if there is plenty of room. One
    call where it is. Raises nothing: the store goes on without it."""
    where = f"{path}/{RESERVE}"
    try:
        found = 0
        with suppress(FileNotFoundError):
            found = disk.size(where)
        if found >= RESERVE_BYTES or disk.free_bytes(path) < SHARE * RESERVE_BYTES:
            return
        with suppress(FileNotFoundError):
            disk.unlink(where)  # some of it was given up, or its making was cut short by a kill
        disk.create_zeros(where, RESERVE_BYTES)
    except OSError as error:
        log.info("%s: there is no low-space reserve: %s", path, error)


def given_up(disk: Disk, path: str, at_once: int) -> bool:
    """Whether there was a reserve, of which ``at_once`` bytes make room now."""
    where = f"{path}/{RESERVE}"
    try:
        left = max(0, disk.size(where) - at_once)
        try:
            if left:
                disk.reopen(where, left).close()
        except Corruption:  # another thread has given up more of it meanwhile
            left = 0
        if not left:
            disk.unlink(where)
    except OSError:
        return False
    log.warning(
        "%s: the disk is full; of the low-space reserve %d KiB are left. Free some space",
        path,
        left >> 10,
    )
    return True


def with_reserve(
    disk: Disk,
    path: str,
    call: Callable[[], T],
    settled: Callable[[], bool] = lambda: False,
    *,
    parts: int = 1,
) -> T:
    """What ``call`` answers; where it finds no room, it is called again without the reserve, or
    without one more of its ``parts`` each time, which come back when memory is saved and there is
    room; and once more when ``settled`` has waited for work whose half-made files take room until
    it ends. Raises what ``call`` raises."""
    at_once = RESERVE_BYTES // parts
    has_waited = False
    while True:
        try:
            return call()
        except (StorageFull, OSError) as error:
            if not _is_full(error):
                raise
            if given_up(disk, path, at_once):
                continue
            if has_waited or not settled():
                raise
            has_waited = True


def _is_full(error: StorageFull | OSError) -> bool:
    """Whether it is the disk that has no room, not the process."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause = error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in OUT_OF_MEANS)
