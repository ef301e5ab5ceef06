"""The reader of a published snapshot: reads as the live reader does, in a process that need not be
the store's owner, on a view of files that nobody changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from octavo.actors.journal_file import JournalFile
from octavo.actors.ledger_file import LedgerFile
from octavo.actors.memory_table import MemoryTable
from octavo.actors.open_files import OpenFiles
from octavo.actors.reader import NOTHING, Reader
from octavo.actors.reading.read_cache import ReadCache
from octavo.actors.scanning.empty_ranges import EmptyRanges
from octavo.actors.scanning.kept_scans import KeptScans
from octavo.actors.view import JournalView, View
from octavo.files.door.disk import Disk
from octavo.files.door.file_lock import FileLock
from octavo.files.errors import Closed, Corruption, SnapshotExpired, storage_errors
from octavo.files.journal.journal_names import LOG
from octavo.files.lifecycle import after
from octavo.files.messages import messages_of
from octavo.manifest import published
from octavo.manifest.journal_manifest import JournalEntry
from octavo.manifest.pinning import unsealed_offsets
from octavo.manifest.published import Published

log = messages_of("octavo.published")

_KEPT_BYTES = 4 << 20
"""How much is kept of what short scans found."""


class _Nobody:
    """Stands in for the Bookie, since this process has no store open."""

    closed = False

    def __init__(self, view: View) -> None:
        self.view = view
        self.kept_scans = KeptScans(_KEPT_BYTES)
        self.empty_ranges = EmptyRanges()

    def slice(self, *_: object) -> list[bytes]:
        """Find no key: a published snapshot has nothing in memory tables."""
        return []

    def stepped_over(self, *_: object) -> None:
        """Note nothing, for there is no turn to do it in."""

    no_entries = stepped_over


class PublishedReader(Reader):
    """Reads a published snapshot, renews its lease on the way, and removes it at the end. In a
    forked child it neither renews nor removes, but reads as long as the parent keeps the snapshot.

    The actors of its files are not started: nothing is ever sent to them.
    """

    def __init__(
        self,
        disk: Disk,
        found: Published,
        clock_ms: Callable[[], int],
        open_files: OpenFiles | int,
        let_go: Callable[[], object] = NOTHING,
        store: str | None = None,
        alive: FileLock | None = None,
    ) -> None:
        """``open_files``: an OpenFiles, or a limit for one. ``let_go``: called if this is dropped
        without being closed; as a live reader's. ``store``: errors name this directory's files
        instead of the snapshot's, which go with it. ``alive``: a lock that shows others that this
        reader is alive."""
        self._disk = disk
        self._clock_ms = clock_ms
        self._found = found
        self._lease_ms = max(found.expires_at - clock_ms(), 1)
        self._renewing = True
        self._renews_ms = 0  # the lease is not renewed before this moment
        self._closed = False
        self._let_go = let_go
        self._store = store
        self._alive = alive
        self._inherited = False
        self.cache = ReadCache(0)
        self._open_files = OpenFiles(open_files) if isinstance(open_files, int) else open_files
        self.number = 0
        self.sqn = found.sqn
        self.now_ms = found.taken_at
        levels = tuple(
            tuple(LedgerFile(disk, found.path, e.name, self._open_files).of(e) for e in level)
            for level in found.ledger.levels
        )
        journal = JournalView.of(map(self._journal_file, found.journal.entries))
        table = MemoryTable(found.sqn)
        table.frozen = True
        self.view = View(table, (), replace(found.ledger, levels=levels), journal)
        self._bookie: Any = _Nobody(self.view)

    def _journal_file(self, entry: JournalEntry) -> JournalFile:
        path = self._found.path
        file = JournalFile(
            self._disk, path, entry.name, entry.base_sqn, entry.seed, self._open_files
        )
        if not entry.name.endswith(LOG):
            file.opened_sealed()
            return file
        file.offsets = unsealed_offsets(self._disk, f"{path}/{entry.name}")
        file.state = after(file.state, "recover", entry.name)
        file.reading = (None, file.offsets)
        return file

    def cached(self) -> dict[bytes, bytes | None]:
        """Nothing: there is no read cache."""
        return {}

    def is_newest(self) -> bool:
        """True: there is no later state."""
        return True

    def check(self) -> None:
        """Raise Closed or SnapshotExpired if this may not be read. Once half of the lease is gone,
        begin it anew."""
        if self._closed:  # looked at here to save a call: each get comes by
            self._refuse_closed()
        if self._inherited:  # its owner renews it, or removes it
            self._found = published.read(self._disk, self._found.path)
        now_ms = self._clock_ms()
        if now_ms >= self._found.expires_at:
            self._found.check(now_ms)
        if self._found.expires_at - now_ms < self._lease_ms // 2 and now_ms >= self._renews_ms:
            try:
                self._begin_lease(now_ms)
            except OSError as error:  # such as a full disk: for now the lease still holds
                self._renews_ms = now_ms + self._lease_ms // 64
                log.warning("the lease of %s is not renewed: %s", self._found.path, error)

    def _begin_lease(self, now_ms: int) -> None:
        """Begin the lease anew. Raises Closed if another thread closed this, SnapshotExpired,
        OSError."""
        try:
            self._found = published.renewed(
                self._disk, self._found.path, now_ms + self._lease_ms, now_ms
            )
        except SnapshotExpired:
            self._refuse_closed()
            raise

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Closed("the store was closed")

    def damaged(self, damage: Corruption) -> None:
        """Report damage to nobody but the caller. Raises Closed if another thread closed this;
        SnapshotExpired if somebody released the snapshot, or swept it by a clock that is ahead; and
        Corruption if the file has another name in the store."""
        self._refuse_closed()  # and so removed the file
        self._found = published.read(self._disk, self._found.path)
        if (file := self.named(damage.file)) != damage.file:
            raise Corruption(file, damage.offset, damage.what) from damage

    def named(self, text: str) -> str:
        """``text`` with the files named as they are in the store, if there is one."""
        if self._store is None:
            return text
        return published.in_store(text, self._found.path, self._store)

    def gone(self, missing: FileNotFoundError) -> Corruption:
        """The error to raise if a file is missing. Raises SnapshotExpired, Closed, or Corruption
        as ``damaged`` does."""
        found = super().gone(missing)
        self.damaged(found)
        return found

    def renew(self, lease_seconds: float | None = None) -> None:
        """Begin the lease anew. Raises Closed, SnapshotExpired if it had ended, StorageFull,
        StorageFailed."""
        self.check()
        if lease_seconds is not None:
            self._lease_ms = int(lease_seconds * 1000)
        now_ms, path = self._clock_ms(), self._found.path
        with storage_errors(f"the lease of {path}"):
            self._begin_lease(now_ms)

    def step(self) -> None:
        """For each step of a scan: as ``check``."""
        self.check()

    def close(self) -> None:
        """Do nothing: a scan's end does not end the snapshot. See really_close."""

    def forked(self) -> None:
        """In a forked child: leave the files for the parent to remove, and replace locks that a
        thread of the parent may have held."""
        self._inherited = True
        self._let_go = NOTHING
        self._open_files.forked()
        self._bookie.kept_scans = KeptScans(_KEPT_BYTES)

    def really_close(self) -> None:
        """Give up the files and remove the snapshot, unless it is a parent's. Idempotent."""
        if not self._closed:
            self._closed = True
            self._open_files.let_go()  # now, not only when a collector comes by
            if not self._inherited:
                published.remove(self._disk, self._found.path)
            self._let_go = NOTHING
            self._alive = None
