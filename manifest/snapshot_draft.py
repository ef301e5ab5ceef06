"""A published snapshot in the making: a directory of links, which is an orphan until its manifest
is written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal.journal_names import by_either_name
from octavo.manifest import published
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerEntry, LedgerManifest
from octavo.manifest.published import MAKING, SNAPSHOTS, Counted, Published
from octavo.manifest.store_identity import IDENTITY

SIDE = "side"
"""What the names of side files begin with."""


class Draft:
    """The directory that is being filled. ``discard`` it unless ``finish`` was reached."""

    def __init__(self, disk: Disk, store: str, now_ms: int) -> None:
        """Make the directory, durably. Raises OSError."""
        self._disk = disk
        self._store = store
        self.journal = f"{store}/journal"
        """Where journal files are linked from."""
        self.ledger = f"{store}/ledger"
        """Where ledger files are."""
        self.id = published.new_id(now_ms)
        self.path = f"{store}/{SNAPSHOTS}/{self.id}"
        self._there: dict[str, str] = {}  # name: what it is a link of
        disk.mkdir_within(store, f"{SNAPSHOTS}/{self.id}")
        try:
            self._lock = published.hold(disk, f"{self.path}/{MAKING}")
        except BaseException:
            self._remove()
            raise

    def link_ledger(self, name: str) -> None:
        """Link a ledger file into the draft. Raises FileNotFoundError where it was merged away."""
        self._link(f"{self.ledger}/{name}", name)

    def link_journal(self, name: str) -> str:
        """Link a journal file into the draft. Returns its present name: an unsealed one may have
        been sealed meanwhile. Raises FileNotFoundError where it was compacted away."""

        def linked(name: str) -> str:
            self._link(f"{self.journal}/{name}", name)
            return name

        return by_either_name(name, linked)

    def link_side(self, path: str, name: str) -> None:
        """Link a side file of the snapshot at ``path`` into the draft. Raises FileNotFoundError."""
        self._link(f"{path}/{name}", name)

    def side_files(self, made: dict[str, Any]) -> list[LedgerEntry]:
        """The entries of side files, by what the job that made them here (level_zero) says. Raises
        Corruption where it had to leave out a record."""
        if made["damaged"]:
            raise Corruption(self.journal, 0, f"{made['damaged'][0]}: repair the store")
        return [LedgerEntry.of_job(row) for row in made["files"]]

    def _link(self, source: str, name: str) -> None:
        if name not in self._there:
            self._disk.link(source, f"{self.path}/{name}")
            self._there[name] = source

    def drop_others(self, names: set[str]) -> None:
        """Unlink what is not among ``names``."""
        for name in self._there.keys() - names:
            self._disk.unlink(f"{self.path}/{name}")
            del self._there[name]

    def original(self, damage: Corruption) -> Corruption:
        """Damage met in a link, as damage of the store's own file: the links go."""
        source = self._there.get(damage.file.removeprefix(f"{self.path}/"))
        what = published.in_store(damage.what, self.path, self._store)
        return damage if source is None else Corruption(source, damage.offset, what)

    def finish(
        self,
        *,
        name: str,
        store_id: str,
        sqn: int,
        taken_at: int,
        expires_at: int,
        counts: Mapping[int, Counted],
        ledger: LedgerManifest,
        journal: JournalManifest,
    ) -> Published:
        """Make it a snapshot: all names durable, then the manifest."""
        made = Published(
            self.id, self.path, name, sqn, taken_at, expires_at, counts, store_id, ledger, journal
        )
        self._disk.sync_dir(self.path)
        try:
            published.write(self._disk, made)
        except FileNotFoundError:  # fine if the store is there: whoever saw it has released it
            if self._disk.exists(self.path) or not self._disk.exists(f"{self._store}/{IDENTITY}"):
                raise
        self._lock.release()
        with suppress(FileNotFoundError):  # here, too: it may have been released
            self._disk.unlink(f"{self.path}/{MAKING}")
        return made

    def discard(self) -> None:
        """Leave nothing behind. Raises OSError."""
        with suppress(FileNotFoundError):
            # First of all: a removal that fails puts back what somebody may count on.
            self._disk.unlink(f"{self.path}/{published.MANIFEST}")
        self._remove()

    def _remove(self) -> None:
        published.remove(self._disk, self.path)
        if not self._disk.exists(f"{self._store}/{IDENTITY}"):
            with suppress(OSError):  # the store was destroyed; this may have made it anew
                self._disk.rmdir(f"{self._store}/{SNAPSHOTS}")
