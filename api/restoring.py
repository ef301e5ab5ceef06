"""Restoring a store from a backup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from octavo.actors.keeping.restoring import Restored, restore_on
from octavo.arguments import to_flag, to_moment, to_path
from octavo.files.argument_checks import to_whole
from octavo.files.door.disk import RealDisk
from octavo.files.errors import storage_errors, usable

__all__ = ["Restored", "restore"]


def restore(
    backup: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    sqn: int | None = None,
    time: int | datetime | None = None,
    copy: bool = False,
) -> Restored:
    """Make a store at ``path`` of a backup, or of a store that is not open, which stays as it is.

    ``sqn``: only what was written up to this sequence number, inclusive. ``time``: only what
    stands, in the order of sequence numbers, before the first write whose time is after this
    moment (ms UTC, or an aware datetime). All write times are looked at, 0.6 us each: where the
    clock was set back, writes behind that one may bear earlier times; they are left out too, which
    ``notes`` tell. Of ``sqn`` and ``time`` the one that is reached first counts.

    Files are linked, the one that is cut and what is not sealed written anew; on another file
    system they are copied, if ``copy`` allows it. The new store has an id of its own, and goes on
    above every sequence number that the backup knew of. O(files), and what a point in time has the
    ledger made anew of at the first opening. The answer's ``notes`` also tell what was not whole at
    the end of the journal, as ``stats()["notes"]`` of a store that is opened does.

    Raises Misuse (also for a sqn inside an atomic batch), HistoryCompacted for a state before a
    compaction that dropped anything, and for any ``time`` of a head-only store that was trimmed,
    StoreLocked, StorageFull, StorageFailed, Corruption.
    """
    if sqn is not None:
        sqn = to_whole("sqn", sqn, "are sequence numbers from 0")
    moment = None if time is None else to_moment("time", time)
    allowed = to_flag("copy", copy)
    source, target = to_path("backup", backup), to_path("path", path)
    with storage_errors(f"the store at {target}"), _usable(source, target):
        return restore_on(RealDisk(), source, target, sqn=sqn, time_ms=moment, copy=allowed)


@contextmanager
def _usable(source: str, target: str) -> Iterator[None]:
    """``usable`` for both directories: the one is named that the error is of."""
    try:
        yield
    except OSError as error:
        of_backup = f"{error.filename}/".startswith(f"{source}/")
        with usable("backup" if of_backup else "path", source if of_backup else target):
            raise
