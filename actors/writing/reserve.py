"""The low-space reserve: a file of zeros that is given up when the disk is full.

Opening a store writes manifests, a delete writes a record, a compaction what is left of the files
that it rewrites. These are the ways out of a full disk, and none works without a little room.
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
"""The reserve is made only if so many times its size is free."""


_EIGHTHS = 8


class Share(NamedTuple):
    """How much of the reserve one way out of a full disk may use, in eighths of it."""

    at_once: int
    """What it is given each time."""
    leaves: int
    """What stays in any case, for the ways out that come later."""


RECORD = Share(1, 4)
"""A little at once: saving memory takes whatever is free, and later records need room, too."""
COMPACTION = Share(8, 1)
OPENING = Share(8, 0)


def put_by(disk: Disk, path: str) -> None:
    """Make the reserve of the store at ``path``, or make it whole again, if there is plenty of
    room. One system call if it is whole. Raises no OSError: the store goes on without it."""
    where = f"{path}/{RESERVE}"
    try:
        found = 0
        with suppress(FileNotFoundError):
            found = disk.room_taken(where)  # a copy of the store may have a hole there
        if found >= RESERVE_BYTES or disk.free_bytes(path) < SHARE * RESERVE_BYTES:
            return
        with suppress(FileNotFoundError):
            disk.unlink(where)  # some of it was given up, or a kill cut its making short
        try:
            disk.create_zeros(where, RESERVE_BYTES)
        except OSError:  # a quota may allow less than is free: make it as large as it was
            with suppress(FileNotFoundError):
                disk.unlink(where)
            if found:
                disk.create_zeros(where, found)
            raise
    except OSError as error:
        log.info("%s: there is no low-space reserve: %s", path, error)


def given_up(disk: Disk, path: str, share: Share) -> bool:
    """Give up this share of the reserve; return whether that made room."""
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
                pass  # another thread gave up more of it meanwhile
            except OSError:  # no descriptor is left: give up all of it
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
    """Return what ``call`` returns. If the disk is full, give up ``share`` of the reserve and call
    it again, as long as there is a share; then once more after ``settled`` has waited for work
    whose half-made files take room until it ends. The reserve comes back when memory is saved and
    there is room, but one call is given no more than one reserve. Raises what ``call`` raises."""
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
    """Whether the disk is full, rather than the process out of memory or descriptors."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause = error.__cause__
    return not (isinstance(cause, OSError) and cause.errno in OUT_OF_MEANS)
