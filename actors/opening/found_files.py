"""Finds what an opening goes on with: both manifests, made to agree with files and each other."""

from __future__ import annotations

from typing import NamedTuple

from octavo.files.door.copying import set_apart
from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, StorageFull, storage_error
from octavo.files.journal import journal_names
from octavo.manifest import adoption, change_log, recovery, same_store, unsynced, update_mark
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import REBUILD, LedgerManifest
from octavo.manifest.same_store import Folders


class FoundFiles(NamedTuple):
    """Both halves of the store, as an opening goes on with them."""

    journal: JournalManifest
    ledger: LedgerManifest
    tails: recovery.Found
    """The journal's files that its manifest does not list."""
    epoch: int
    """The epoch that this opening is to take; not yet taken."""
    doubtful: bool
    """Whether sqns may have been given that neither the journal's manifest nor a file knows of."""


def found_files(disk: Disk, path: str, head_only: bool, notes: list[str]) -> FoundFiles:
    """Find what is in the store at ``path``: read the manifests and the records of unsealed files,
    and rewrite files that a failed sync put in doubt. Adds to ``notes`` what was not as it should
    be. Raises Corruption, OSError."""
    journal, ledger = f"{path}/journal", f"{path}/ledger"
    for directory in ("journal", "ledger"):
        disk.mkdir_within(path, f"{directory}/manifest")
    disk.hold(journal)  # a failed sync of this directory fails the journal
    found_journal = change_log.recover(disk, f"{journal}/manifest")
    found_ledger = change_log.recover(disk, f"{ledger}/manifest")
    notes += found_journal.notes + found_ledger.notes
    if update_mark.write_ledger_to_come(disk, path, found_journal, found_ledger):
        found_ledger = change_log.recover(disk, f"{ledger}/manifest")
    ledger_manifest = _ledger_manifest(disk, ledger, found_ledger, notes)
    manifest = JournalManifest.replayed(found_journal.snapshot, found_journal.changes)
    entries = {entry.name for entry in manifest.entries}
    notes += unsynced.written_anew(disk, journal, entries)
    files = adoption.adopted(
        disk,
        journal,
        manifest,
        state_epoch=found_journal.state_epoch,
        damaged=found_journal.damaged,
        trims=head_only,
        persisted_sqn=ledger_manifest.persisted_sqn,
        loaded=ledger_manifest.loaded,
    )
    notes += files.notes
    ledger_manifest = _of_the_journal(ledger_manifest, ledger, files, head_only, notes)
    tails = recovery.find_tails(disk, journal, files.manifest, above=ledger_manifest.persisted_sqn)
    folders = Folders(disk, ledger, journal)
    told = same_store.difference(folders, ledger_manifest, files.manifest, tails.tails)
    if told:
        if head_only:
            raise Corruption(ledger, 0, f"{told}; put the store's own there, or restore a backup")
        notes.append(f"{ledger}: {told}; rebuilt")
        ledger_manifest = LedgerManifest.empty()
        tails = recovery.find_tails(disk, journal, files.manifest, above=0)
    notes += tails.notes
    epoch = max(found_journal.epoch, found_ledger.epoch, files.epoch) + 1
    return FoundFiles(files.manifest, ledger_manifest, tails, epoch, files.doubtful)


def _ledger_manifest(
    disk: Disk, directory: str, found: change_log.Recovered, notes: list[str]
) -> LedgerManifest:
    """The ledger's manifest; an empty one, to be rebuilt from the journal, if the manifest or the
    ledger is damaged or a file is missing."""
    try:
        manifest = LedgerManifest.replayed(found.snapshot, found.changes)
    except Corruption as wrong:
        notes.append(f"{wrong}: the ledger is rebuilt from the journal")
        return LedgerManifest.empty()
    names = set(disk.listdir(directory))
    if REBUILD in names:
        notes.append(
            f"{directory}: was found damaged, or not whole; it is rebuilt from the journal"
        )
        return manifest.emptied()
    missing = [entry.name for entry in manifest.entries if entry.name not in names]
    if missing or found.damaged:
        notes.append(
            f"{directory}: {len(missing)} ledger files are missing ({', '.join(missing[:3])}), "
            "or the manifest is damaged: the ledger is rebuilt from the journal"
        )
        return manifest.emptied()
    return manifest


def _of_the_journal(
    ledger: LedgerManifest,
    directory: str,
    files: adoption.Adopted,
    head_only: bool,
    notes: list[str],
) -> LedgerManifest:
    """The ledger's manifest; an empty one if the ledger is another journal's or outdated. Raises
    Corruption if it cannot be rebuilt."""
    journal = files.manifest
    if head_only:
        adoption.refuse_lost_ledger(directory, ledger.persisted_sqn, journal)
    if not files.doubtful and (told := same_store.beyond(ledger, journal)):
        # Both manifests are whole, and one of them is of another store, or forged.
        notes.append(f"{directory}: {told}; rebuilt")
        if head_only:
            raise Corruption(directory, 0, f"{told}: restore a backup")
        ledger = LedgerManifest.empty()
    if adoption.outdated(ledger.persisted_sqn, journal):
        notes.append(f"{directory}: is older than the journal's last compaction; rebuilt")
        ledger = ledger.emptied()
    return ledger


def made_ours(disk: Disk, path: str, *, closed: bool) -> bool:
    """Make an unsealed or damaged journal file this store's alone, by a copy: backups, snapshots,
    and copies of the store made by links may share it. False: there is no room for a copy of an
    unsealed file, which stays as it is. Raises StorageFull, StorageFailed.

    Unless its owner ``closed`` it, which syncs it, the file is copied even if it is not shared. An
    owner that is killed within a failing fsync, as when a disk hangs first, tells nobody of the
    failure, and the next fsync would succeed. Writing in place again does not help: ext4 may then
    write to where it reads zeros later.
    """
    if closed and path.endswith(journal_names.LOG) and disk.links(path) == 1:
        return True
    try:
        set_apart(disk, path)
    except OSError as error:
        told = storage_error(error, path)
        if not isinstance(told, StorageFull) or not path.endswith(journal_names.LOG):
            raise told from error
        return False
    return True
