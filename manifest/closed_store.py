"""Reads a store that nobody has open, and replaces its files.

Whoever works on it holds its lock, so that nobody opens it meanwhile. Files are made beside the old
ones, under names of the next epoch; then one snapshot record of that epoch, which names them and no
others, is the new manifest. A crash before that leaves the store as it was, and files that no
manifest names, which the next opening sweeps; a crash after it leaves the new ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk
from octavo.files.door.file_lock import LOCK
from octavo.files.errors import Corruption, Misuse
from octavo.files.journal import journal_names
from octavo.manifest import adoption, change_log, recovery, same_store, store_identity, unsynced
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry, JournalManifest
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import REBUILD, LedgerManifest
from octavo.manifest.same_store import Folders
from octavo.manifest.update_mark import UPDATING

SST = ".sst"


@dataclass(slots=True)
class ClosedStore:
    """A store under its lock. Made by ``closed_store``."""

    disk: Disk
    path: str
    identity: dict[str, Any]
    journal: JournalManifest
    tails: list[recovery.Tail]
    """Journal files that the manifest does not list, oldest first; their offsets are whole."""
    ledger: LedgerManifest | None
    """None: it is damaged, older than the journal's last compaction, or another store's."""
    epoch: int
    """The next one, not taken yet; files of it belong to whoever holds the lock."""
    expired_ms: int = 0
    """What expired up to this moment, ms UTC, stays so, as the ledger says, even a damaged one."""
    notes: list[str] = field(default_factory=list)

    @property
    def last_sqn(self) -> int:
        """The highest sqn that a record has; 0: there is none."""
        ends = [entry.last_sqn for entry in self.journal.entries]
        return max([*ends, *(tail.last_sqn for tail in self.tails), 0])

    def sync_tails(self) -> None:
        """Make the tails durable: the ledger may know no more than the journal on disk."""
        with unsynced.marking(self.disk, f"{self.path}/journal"):
            for tail in self.tails:
                self.disk.sync_file(f"{self.path}/journal/{tail.name}")
            if self.tails:
                self.disk.sync_dir(f"{self.path}/journal")

    def install_ledger(
        self, entries: Sequence[LedgerEntry], persisted_sqn: int, expired_ms: int
    ) -> LedgerManifest:
        """Make these files, durable in the ledger's directory, the whole ledger. They have the
        journal up to ``persisted_sqn``, perhaps without what expired up to ``expired_ms``. One
        snapshot record decides; then the old files are removed.

        Raises Misuse, StorageFull, StorageFailed; the ledger is then the old one or the new one.
        """
        directory = f"{self.path}/ledger"
        expired_ms = max(expired_ms, self.expired_ms)
        begun = LedgerManifest.empty() if self.ledger is None else self.ledger.emptied()
        manifest = begun.edit(entries, (), persisted_sqn, expired_ms)
        manifest.check()
        self._begin_ledger(manifest)
        if self.disk.exists(f"{directory}/{REBUILD}"):
            self.disk.unlink(f"{directory}/{REBUILD}")
        self.remove_ledger_files({entry.name for entry in entries})
        return manifest

    def stays_expired(self, moment: int) -> None:
        """Record, before values that expired up to ``moment`` (ms UTC) are dropped, that their keys
        stay absent, even if the clock is set back. Raises StorageFull, StorageFailed."""
        if self.ledger is not None and moment > self.ledger.expired_ms:
            self._begin_ledger(self.ledger.edit(expired_ms=moment))

    def _begin_ledger(self, manifest: LedgerManifest) -> None:
        directory = f"{self.path}/ledger/manifest"
        ChangeLog.begin(self.disk, directory, self.epoch, manifest.encode()).close()
        self.epoch += 1
        self.ledger = manifest

    def begin_journal(self) -> ChangeLog:
        """Take the journal's manifest over, as it is, with an epoch of its own: after a crash only
        files of an epoch that it knows count as left-overs. Raises StorageFull, StorageFailed."""
        log = ChangeLog.begin(
            self.disk, f"{self.path}/journal/manifest", self.epoch, self.journal.encode()
        )
        self.epoch += 1
        return log

    def replace_journal_files(
        self,
        log: ChangeLog,
        removed: Sequence[str],
        added: Sequence[JournalEntry],
        horizon: int,
    ) -> None:
        """Replace files by one durable change of the journal's manifest; then remove the old ones.
        ``horizon``: the highest sqn whose record was dropped or changed. Raises Misuse,
        StorageFull, StorageFailed."""
        manifest = self.journal.edit(added, removed, horizon=horizon)
        log.append(self.journal.change_to(manifest))
        self.journal = manifest
        there = {entry.name for entry in manifest.entries}
        for name in removed:
            if name not in there:
                with suppress(OSError):
                    self.disk.unlink(f"{self.path}/journal/{name}")

    def remove_journal_files(self, but: set[str]) -> None:
        """Remove journal files that neither the manifest nor ``but`` names: they were made, and do
        not count. What cannot be removed is left for the next start."""
        directory = f"{self.path}/journal"
        but = but | {entry.name for entry in self.journal.entries}
        for name in self.disk.listdir(directory):
            if name not in but and journal_names.identity(name.removesuffix(TEMPORARY_SUFFIX)):
                with suppress(OSError):
                    self.disk.unlink(f"{directory}/{name}")

    def remove_ledger_files(self, but: set[str]) -> None:
        """Remove ledger files other than ``but``. What cannot be removed is left for the next
        start."""
        directory = f"{self.path}/ledger"
        for name in self.disk.listdir(directory):
            if name.endswith(SST) and name not in but:
                with suppress(OSError):
                    self.disk.unlink(f"{directory}/{name}")


@contextmanager
def closed_store(disk: Disk, path: str) -> Iterator[ClosedStore]:
    """The store at ``path``, locked while the block runs.

    Raises StoreLocked where somebody has it open, Misuse where there is no store, Corruption where
    its journal wants repair or recovery first, UnsupportedFormat.
    """
    try:
        identity = store_identity.fields_of(disk, path)
    except FileNotFoundError:
        raise Misuse(f"path={path!r} holds no store") from None
    with disk.lock(f"{path}/{LOCK}"):
        yield _read(disk, path, identity)


def _read(disk: Disk, path: str, identity: dict[str, Any]) -> ClosedStore:
    journal, ledger = f"{path}/journal", f"{path}/ledger"
    if not disk.exists(journal):
        raise store_identity.without_journal(disk, path)
    if disk.exists(f"{journal}/{UPDATING}"):  # which only an opening reads, and removes
        raise Corruption(
            f"{journal}/{UPDATING}", 0,
            "a backup whose update was cut short: open it once, which removes what came of that",
        )  # fmt: skip
    for directory in ("journal", "ledger"):
        disk.mkdir_within(path, f"{directory}/manifest")
    found_journal = change_log.recover(disk, f"{journal}/manifest")
    found_ledger = change_log.recover(disk, f"{ledger}/manifest")
    manifest = JournalManifest.replayed(found_journal.snapshot, found_journal.changes)
    try:
        held = LedgerManifest.replayed(found_ledger.snapshot, found_ledger.changes)
    except Corruption:
        held = None
    adopted = adoption.adopted(
        disk,
        journal,
        manifest,
        state_epoch=found_journal.state_epoch,
        damaged=found_journal.damaged,
        loaded=frozenset() if held is None else held.loaded,
    )
    missing = {entry.name for entry in adopted.manifest.entries} - set(disk.listdir(journal))
    if adopted.doubtful or missing:
        raise Corruption(
            f"{journal}/manifest", 0,
            "the journal's manifest or files were lost; open the store once, or repair it, so that "
            "what is left is known",
        )  # fmt: skip
    tails = recovery.find_tails(disk, journal, adopted.manifest, above=MAX_SQN)
    notes = [*adopted.notes, *tails.notes]
    known, expired_ms = None, 0
    if held is not None:
        known, expired_ms = _ledger(
            disk, ledger, held, found_ledger.damaged, journal, adopted.manifest, tails.tails, notes
        )
    return ClosedStore(
        disk,
        path,
        identity,
        adopted.manifest,
        [tail for tail in tails.tails if len(tail.offsets) > 1],
        known,
        max(found_journal.epoch, found_ledger.epoch) + 1,
        expired_ms,
        notes,
    )


def _ledger(
    disk: Disk,
    directory: str,
    manifest: LedgerManifest,
    damaged: bool,
    journal_directory: str,
    journal: JournalManifest,
    tails: Sequence[recovery.Tail],
    notes: list[str],
) -> tuple[LedgerManifest | None, int]:
    """(the ledger, None if it cannot be relied on; up to which moment what expired stays so). Adds
    to ``notes`` if it is not of this journal."""
    names = set(disk.listdir(directory))
    there = all(entry.name in names for entry in manifest.entries)
    outdated = adoption.outdated(manifest.persisted_sqn, journal)
    if damaged or REBUILD in names or not there or outdated:
        return None, manifest.expired_ms
    where = Folders(disk, directory, journal_directory)
    told = same_store.beyond(manifest, journal)
    told = told or same_store.difference(where, manifest, journal, tails)
    if told:
        notes.append(f"{directory}: {told}")
        return None, 0
    return manifest, manifest.expired_ms
