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
    """Make a store at ``path`` from a backup, or from a store that is not open; the source stays as
    it is.

    ``sqn``: restore only what was written up to this sequence number, inclusive. ``time`` (ms UTC,
    or an aware datetime): only what was written before the first write, in the order of sequence
    numbers, whose time is after this moment. If the clock was set back, later writes may bear
    earlier times; they are left out, too, and ``notes`` say so. With both, whichever is reached
    first counts. For a ``time`` all write times are looked at, 0.6 us each.

    Files are linked; those that are cut or not sealed are written anew. To another file system
    files are copied, if ``copy`` allows it. The new store has an id of its own, and continues above
    every sequence number that the backup knew of. O(files), and at the first opening whatever of
    the ledger has to be rebuilt after a ``sqn`` or ``time``. ``notes`` of the answer also tell what
    was not whole at the end of the journal, as ``stats()["notes"]`` does after an opening.

    Raises Misuse (also for a sqn within an atomic batch), HistoryCompacted for a state before a
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
    """``usable`` for both directories: names the one that an error is about."""
    try:
        yield
    except OSError as error:
        of_backup = f"{error.filename}/".startswith(f"{source}/")
        with usable("backup" if of_backup else "path", source if of_backup else target):
            raise
