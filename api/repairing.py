"""Repair of a store that is not open."""

from __future__ import annotations

import os
from dataclasses import dataclass

from octavo.actors import shutdown, startup
from octavo.actors.options import Options
from octavo.actors.repair import Lost, Progress, Repaired, repair_files
from octavo.files.disk import Disk, RealDisk
from octavo.verify import Report, verify

__all__ = ["Lost", "Repair", "Repaired", "repair"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did, and how the store is now."""

    files: Repaired
    notes: list[str]
    """What the opening after it found."""
    verified: Report

    @property
    def ok(self) -> bool:
        """Nothing is wrong any more, and nothing was lost."""
        return self.verified.ok and not self.files.lost


def repair(path: str | os.PathLike[str], progress: Progress | None = None) -> Repair:
    """Mend the store in the directory ``path``, which must not be open.

    Damaged hash tables and offsets of the journal are made anew from its records, the ledger
    from the journal, manifests from the files. Of a journal file with damaged records the whole
    ones are kept, and the others listed. Damaged files are moved to ``damaged`` in the store's
    directory, never deleted or changed: delete them when nothing in them is wanted. Then the
    store is opened, verified and closed. ``progress(what, done, total)`` is called as files are
    finished. O(bytes).

    Raises Misuse where there is no store, StoreLocked, StorageFull, UnsupportedFormat, OSError.
    """
    return repair_on(RealDisk(), os.path.abspath(os.fsdecode(os.fspath(path))), progress)


def repair_on(disk: Disk, path: str, progress: Progress | None = None) -> Repair:
    """As ``repair``, on a given disk."""
    lock = disk.lock(f"{path}/LOCK")
    try:
        files = repair_files(disk, path, progress)
    finally:
        lock.release()
    running = startup.start(path, Options(create=False), disk)
    try:
        return Repair(files, list(running.notes), verify(running, progress))
    finally:
        shutdown.stop(running)
