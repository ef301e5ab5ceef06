"""The low-space reserve: a file of zeros that is given up where a disk is full.

Opening writes manifests, a delete a record, a compaction what is left of the files that it
rewrites: all of these are the ways out of a full disk, and none goes without a little room.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from octavo.files.door.disk import Disk
from octavo.files.errors import OUT_OF_MEANS, Corruption, StorageFull
from octavo.files.messages import messages_of

log = messages_of("octavo.reserve")

T = TypeVar("T")

RESERVE = "RESERVE"
"""Its name in the store's directory."""
RESERVE_BYTES = 4 << 20
SHARE = 16
"""It is made where so many times its size is free."""


_EIGHTHS = 8


class Share(NamedTuple):
    """What of the reserve a way out of a full disk is given, in eighths of it."""

    at_once: int
    leaves: int
    """What stays there whatever happens, for the ways behind this one."""


RECORD = Share(1, 4)
"""What memory's saving finds free it takes, and the records to come need room, too."""
COMPACTION = Share(8, 1)
OPENING = Share(8, 0)


def put_by(disk: Disk, path: str) -> None:
    """Have the reserve of the store at ``path`` there, in full if there is plenty of room. One
    call where it is. Raises nothing: the store goes on without it."""
    where = f"{path}/{RESERVE}"
    try:
        found = 0
        with suppress(FileNotFoundError):
            found = disk.room_taken(where)  # a copy of the store may have a hole there
        if found >= RESERVE_BYTES or disk.free_bytes(path) < SHARE * RESERVE_BYTES:
            return
        with suppress(FileNotFoundError):
            disk.unlink(where)  # some of it was given up, or its making was cut short by a kill
        try:
            disk.create_zeros(where, RESERVE_BYTES)
        except OSError:  # a quota may leave less than is free: what there was is kept, and no more
            with suppress(FileNotFoundError):
                disk.unlink(where)
            if found:
                disk.create_zeros(where, found)
            raise
    except OSError as error:
        log.info("%s: there is no low-space reserve: %s", path, error)


def given_up(disk: Disk, path: str, share: Share) -> bool:
    """Whether there was a reserve, of which this share makes room now."""
    where = f"{path}/{RESERVE}"
    at_once, leaves = (RESERVE_BYTES * eighths // _EIGHTHS for eighths in share)
    try:
        found = disk.size(where)
        left = max(leaves, found - at_once)
        if left >= found:
            return False
        if left:
            try:
                disk.reopen(where, left).close()
            except Corruption:
                pass  # another thread has given up more of it meanwhile
            except OSError:  # no descriptor
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
    share: Share,
    settled: Callable[[], bool] = lambda: False,
) -> T:
    """What ``call`` answers; where it finds no room, it is called again with its ``share`` of the
    reserve, and with another as long as there is one; and once more when ``settled`` has waited for
    work whose half-made files take room until it ends. What was given up comes back when memory is
    saved and there is room, and is not given a second time. Raises what ``call`` raises."""
    has_waited = False
    shares = _EIGHTHS // share.at_once
    while True:
        try:
            return call()
        except (StorageFull, OSError) as error:
            if not _is_full(error):
                raise
            if shares and given_up(disk, path, share):
                shares -= 1
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
