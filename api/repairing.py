"""Repair of a store that is not open."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

from octavo.actors.keeping import lost_records
from octavo.actors.keeping.lost_records import Lost
from octavo.actors.keeping.repair import Repaired, repair_files
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.actors.opening.startup import Running
from octavo.actors.progress import Progress, untold
from octavo.actors.reader import Reader
from octavo.actors.turns.interpreter import refuse_unfit
from octavo.arguments import to_flag, to_path
from octavo.files.door.disk import Disk
from octavo.files.door.file_lock import LOCK, locked
from octavo.files.door.unreadable import SalvageDisk
from octavo.files.errors import OctavoError, usable
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import OBJECTS
from octavo.files.ledger.live_batches import buckets_of, heads_of, keys_of
from octavo.manifest.store_identity import without_journal
from octavo.verify import Report, verify

__all__ = ["Lost", "Repair", "Repaired", "repair"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did, and how the store is now.

    ``files``: What it did to files, see ``octavo.repairing.Repaired``.
    ``notes``: What the opening after it found.
    ``verified``: What ``Store.verify`` says after it.
    """

    files: Repaired
    notes: list[str]
    verified: Report

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong any more, and nothing was lost."""
        return self.verified.ok and not self.files.lost


def repair(
    path: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    accept_missing: bool = False,
) -> Repair:
    """Mend the store in the directory ``path``, which must not be open.

    Rebuilds what is damaged: hash tables and offsets of the journal from its records, the ledger
    from the journal, manifests from the files. What a device does not give back counts as damaged.
    Of a journal file with damaged records the whole ones are kept and the others listed, and so are
    those that the ledger names and the journal no longer has: their keys then read as before them.
    Only keys of a journal file that is missing altogether raise Corruption until it comes back, as
    out of a backup; with ``accept_missing`` it is given up like the rest, and deletes it held are
    undone. Damaged sealed files, ledger files and manifests, and files that cannot be read, are
    moved to ``damaged`` in the store's directory: delete them when you need nothing in them. Then
    the store is opened, verified and closed. ``progress(what, done, total)`` is called as files are
    finished. O(bytes).

    Raises Misuse if there is no store, StoreLocked, StorageFull, UnsupportedFormat, OSError.
    """
    where, accepted = to_path("path", path), to_flag("accept_missing", accept_missing)
    disk = SalvageDisk()
    with usable("path", where):
        done = repair_on(disk, where, progress or untold, accepted)
    done.files.notes += disk.found.values()
    return done


def repair_on(
    disk: Disk, path: str, progress: Progress = untold, accept_missing: bool = False
) -> Repair:
    """As ``repair``, on a given disk."""
    if not disk.exists(f"{path}/journal"):  # first, so that no lock file is made where no store is
        raise without_journal(disk, path)
    files = _mended(disk, path, progress, accept_missing)
    noted: list[str] = []
    if files.earlier_manifest:
        refuse_unfit()
        running = startup.start(path, Options(create=False), disk)
        noted = list(running.notes)
        shutdown.stop(running)
        files.and_then(_mended(disk, path, progress, accept_missing))
    done, unrecorded = _opened(disk, path, files, progress)
    if unrecorded:
        with locked(disk, f"{path}/{LOCK}"):
            lost_records.mark(disk, path, ["names records that are lost"], files.lost)
        done, _ = _opened(disk, path, files, progress)
    files.notes += [note for note in noted if note not in done.notes]
    files.lose(files.unsealed)
    lost_records.told(disk, path)
    return done


def _mended(disk: Disk, path: str, progress: Progress, accept_missing: bool) -> Repaired:
    with locked(disk, f"{path}/{LOCK}"):
        return repair_files(disk, path, progress, accept_missing)


def _opened(disk: Disk, path: str, files: Repaired, progress: Progress) -> tuple[Repair, bool]:
    """Open the store, verify and close it. Also returns whether a ledger made anew would agree
    better with the journal."""
    refuse_unfit()
    running = startup.start(path, Options(create=False), disk)
    try:
        done = Repair(files, list(running.notes), verify(running, progress))
        if done.verified.ok or running.identity.head_only:
            return done, False
        return done, _renounced(running, files)
    finally:
        shutdown.stop(running)


def _renounced(running: Running, files: Repaired) -> bool:
    """Whether the ledger names records that are lost for good; if so, adds them to ``files``."""
    known = {lost.sqn for lost in files.lost}
    lost = [each for each in _unrecorded(running) if each.sqn not in known]
    files.lost.extend(lost)
    # A missing journal file may come back from a backup: until then, its keys raise Corruption.
    path, entries = running.path, running.inker.actor.manifest.entries
    if not lost or any(not running.disk.exists(f"{path}/journal/{each.name}") for each in entries):
        return False
    files.ledger.append(
        f"{path}/ledger: names {len(lost)} records that are lost; their keys read as before them"
    )
    return True


def _unrecorded(running: Running) -> list[Lost]:
    """The records that the ledger names and the journal no longer has. O(keys)."""
    lost = []
    with closing(Reader(running.bookie.actor)) as reader:
        for batch in reader.batches(OBJECTS, heads=True):
            keys, heads = keys_of(batch), heads_of(batch)
            for prefix, low, high in buckets_of(batch):
                bucket = ledger_key.split(prefix)[1]
                for key, head in zip(keys[low:high], heads[low:high], strict=True):
                    where = "journal"
                    try:
                        file = reader.view.journal.file_of(head.sqn)
                        where = file.path
                        file.header(head.sqn)
                    except (OctavoError, OSError) as wrong:
                        lost.append(Lost(head.sqn, where, str(wrong), bucket, key))
            reader.renew()
    return lost
