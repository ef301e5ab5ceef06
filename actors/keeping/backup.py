"""Hot backup: makes a store directory of hard links to this store's files, as of one sqn.

The order of the steps is such that a crash at any moment leaves either the earlier backup or the
new one:

    roll, seal     everything up to the backup's sqn is in sealed files, which never change again
    link           the files that are not there yet. No manifest names them; the mark UPDATING does,
                   so that an opening does not take them in
    journal        its manifest, as one snapshot record of a new epoch: the moment that decides
    ledger         likewise; if it stays the older one, an opening replays more of the journal
    remove         what no manifest names any more, and the mark
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo.actors.bookie import Bookie
from octavo.actors.closed_meanwhile import or_closed
from octavo.actors.compacting import journal_install
from octavo.actors.compacting.compaction import seal_waiting
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.keeping.backup_target import (
    destination,
    give_name,
    lines,
    none_left,
    refuse_other_history,
)
from octavo.actors.keeping.linking import Linked, bring, remove_all_in, remove_others
from octavo.actors.opening import identity as identities
from octavo.actors.progress import Progress, untold
from octavo.files.door.disk import Disk
from octavo.files.door.file_lock import LOCK, locked
from octavo.files.errors import Corruption, room_for, storage_errors, usable
from octavo.files.journal.journal_names import LOG, SEALED
from octavo.manifest import change_log, consumers, update_mark
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.journal_manifest import GIVEN_BACK, JournalEntry, JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.log_file import id_of
from octavo.manifest.update_mark import UPDATING

if TYPE_CHECKING:
    from octavo.actors.opening.startup import Running


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A backup that was made, or brought up to date.

    ``path``: Its directory.
    ``sqn``: The last sequence number in it.
    ``files``: Its files of the journal and the ledger.
    ``linked``: Files that it did not have before.
    ``bytes_linked``: Bytes of the new files that were linked.
    ``bytes_copied``: Bytes of those that were copied; 0 unless it is on another file system.
    ``removed``: Files that it had before and no longer has.
    ``seconds``: How long it took.
    """

    path: str
    sqn: int
    files: int
    linked: int
    bytes_linked: int
    bytes_copied: int
    removed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _State:
    """What is to be in a backup; a lease holds it until it is there."""

    sqn: int
    ledger: LedgerManifest
    manifest: JournalManifest
    files: tuple[JournalFile, ...]


@or_closed
def backup(
    running: Running,
    path: str,
    *,
    ledger: bool,
    copy: bool,
    progress: Progress = untold,
) -> BackedUp:
    """See Store.backup; a head-only store's ledger is always there. Not in a turn."""
    ledger = ledger or running.identity.head_only
    with (
        storage_errors(f"the backup at {path}"),
        usable("path", path),
        room_for(f"backup at {path}"),
    ):
        return _backed_up(running, path, ledger, copy, progress)


def _backed_up(
    running: Running, path: str, ledger: bool, copy: bool, progress: Progress
) -> BackedUp:
    began = time.monotonic()
    disk = running.disk
    target = destination(disk, running.identity, running.path, path)
    with locked(disk, f"{target}/{LOCK}"):
        if target == path:
            done = _filled(running, target, ledger, copy, progress)
        else:
            with none_left(disk, path):
                # An earlier try was cut short: what it left may not be durable, nor become so.
                remove_all_in(disk, target, but=LOCK)
                done = _filled(running, target, ledger, copy, progress)
                give_name(disk, path)
    progress("done", 1, 1)
    return replace(done, path=path, seconds=time.monotonic() - began)


def _filled(
    running: Running, target: str, ledger: bool, copy: bool, progress: Progress
) -> BackedUp:
    """Make a backup in a directory with nothing in it, or bring the one there up to date."""
    disk, source = running.disk, running.path
    before, after = lines(disk, running.identity, target, running.inker.actor.last_sqn)
    bookie = running.bookie.actor
    number = next(bookie.register.numbers)
    try:
        state: _State = running.bookie.call(_taken, number, running.identity.head_only)
        progress("sealing", 0, 1)
        seal_waiting(running.inker.actor)
        entries, last = _entries(state, running.inker.actor)
        if before is not None:
            refuse_other_history(disk, target, entries)
        done = Linked()
        for folder in ("journal", "ledger"):
            disk.mkdir(f"{target}/{folder}/manifest")
        names = [entry.name for entry in entries]
        update_mark.write(disk, f"{target}/journal", names)
        progress("journal", 0, len(names))
        bring(disk, f"{source}/journal", f"{target}/journal", names, done, copy=copy)
        kept = _up_to(last, state.ledger) if ledger else state.ledger.emptied()
        tables = [entry.name for entry in kept.entries]
        progress("ledger", len(names), len(names) + len(tables))
        bring(disk, f"{source}/ledger", f"{target}/ledger", tables, done, copy=copy)
    finally:
        bookie.ended.append(number)  # in case a Ctrl-C comes before the next line is done
        bookie.release(number)
    ceiling = state.sqn + 1
    if (kept.persisted_sqn if last is None else last) < state.sqn:
        ceiling += GIVEN_BACK  # or an opening would take sqns that no record got for lost ones
    journal = state.manifest.up_to(state.sqn, entries, ceiling)
    after = after._replace(sqn=state.sqn)
    shared = state.manifest.horizon if before is None else before.sqn
    identities.write(disk, target, replace(running.identity, backup=before or after))
    consumers.go_back(disk, target, shared)
    _begin(disk, target, running.inker.actor.epoch, journal, kept)
    if before is not None:
        identities.write(disk, target, replace(running.identity, backup=after))
    removed = remove_others(disk, f"{target}/journal", set(names), (SEALED, LOG))
    removed += remove_others(disk, f"{target}/ledger", set(tables), (".sst", "REBUILD"))
    disk.unlink(f"{target}/journal/{UPDATING}")
    disk.sync_dir(f"{target}/journal")
    return BackedUp(
        target,
        state.sqn,
        len(names) + len(tables),
        done.linked + done.copied,
        done.bytes_linked,
        done.bytes_copied,
        removed,
        0.0,
    )


def _taken(bookie: Bookie, number: int, head_only: bool) -> _State:
    """In the Bookie's turn: begin a new journal file, and hold everything before it."""
    if bookie.closed:
        raise bookie.stopped_error()
    inker = bookie.inker
    condemned = bookie.penciller.actor.condemned
    if head_only and condemned:
        raise Corruption(
            bookie.penciller.actor.directory, 0,
            "a ledger file is damaged: no backup is brought up to date, for one that is whole may "
            "be the only one: restore it",
        )  # fmt: skip
    if inker.failed is not None:
        raise inker.failed
    inker.roll()
    sqn = inker.last_sqn
    view = journal_install.leased(bookie, number)
    manifest, files = inker.actor_ref.call(_journal_now)
    ledger = view.ledger.emptied() if condemned else view.ledger  # an opening makes it anew
    return _State(sqn, ledger, manifest, files)


def _journal_now(inker: Inker) -> tuple[JournalManifest, tuple[JournalFile, ...]]:
    """In the Inker's turn, in which they agree: its manifest and its files."""
    return inker.manifest, inker.view.files


def _entries(state: _State, inker: Inker) -> tuple[list[JournalEntry], int | None]:
    """The manifest entries of the journal's files up to the backup's sqn, and the last sqn in them,
    None if there are no files."""
    known = {entry.base_sqn: entry for entry in state.manifest.entries}
    entries = []
    for file in state.files:
        if file.base <= state.sqn:
            entry = known.get(file.base) or file.entry
            if entry is None:
                raise inker.why_not_sealed(file.path)
            entries.append(entry)
    if not entries:
        return [], None
    last = max(entry.last_sqn for entry in entries)
    return [
        replace(entry, file=None, clean_sqn=min(entry.clean_sqn, last)) for entry in entries
    ], last


def _up_to(last: int | None, ledger: LedgerManifest) -> LedgerManifest:
    """The ledger for the backup, its persisted sqn lowered to the last record that there is. Sqns
    that an unclean stop skipped are in no file, and would be taken for a lost end of the
    journal."""
    if last is None:
        return ledger
    return replace(ledger, persisted_sqn=min(ledger.persisted_sqn, last))


def _begin(
    disk: Disk, path: str, owners: int, journal: JournalManifest, ledger: LedgerManifest
) -> None:
    """Write both manifests, the journal's first: from then on, this is the backup's state, and the
    mark has its ledger's manifest. Their epoch is above ``owners``, in which the youngest of the
    files was made."""
    directories = [f"{path}/{folder}/manifest" for folder in ("journal", "ledger")]
    with suppress(Corruption):  # the present state cannot be read, so nobody needs a mark for it
        found, there = (change_log.recover(disk, directory) for directory in directories)
        update_mark.write_ledger_to_come(disk, path, found, there)
    epoch = max(owners, *(_epoch(disk, directory) for directory in directories)) + 1
    update_mark.write(disk, f"{path}/journal", (), epoch, ledger.encode())
    for directory, snapshot in zip(directories, (journal.encode(), ledger.encode()), strict=True):
        ChangeLog.begin(disk, directory, epoch, snapshot).close()


def _epoch(disk: Disk, directory: str) -> int:
    try:
        return change_log.recover(disk, directory).epoch
    except Corruption:  # an old log that cannot be read, and is replaced: epochs by file names
        return max([found.epoch for found in map(id_of, disk.listdir(directory)) if found])
