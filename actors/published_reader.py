"""A reader of a published snapshot in this process: the live reader's own reads, on a view of
files that nobody changes."""

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
"""For what short scans found."""


class _Nobody:
    """Takes the place of a Bookie where there is no store."""

    closed = False

    def __init__(self, view: View) -> None:
        self.view = view
        self.kept_scans = KeptScans(_KEPT_BYTES)
        self.empty_ranges = EmptyRanges()

    def slice(self, *_: object) -> list[bytes]:
        """No memory table has a key."""
        return []

    def stepped_over(self, *_: object) -> None:
        """Nothing is noted, for there is no turn to do it in."""

    no_entries = stepped_over


class PublishedReader(Reader):
    """Reads a published snapshot, renews its lease as it goes, and removes it at the end; not in
    a forked child, which may read its parent's while that has it.

    Its files' actors are not started: nothing is ever sent to them.
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
        """``open_files``: where they are counted, or how many there may be. ``let_go``: what is
        done where it is dropped without being closed; as a live reader's. ``store``: whose files
        are told of instead of its own, which go with it. ``alive``: what others see that it is."""
        self._disk = disk
        self._clock_ms = clock_ms
        self._found = found
        self._lease_ms = max(found.expires_at - clock_ms(), 1)
        self._renewing = True
        self._renews_ms = 0  # no earlier
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
        """There is no cache."""
        return {}

    def is_newest(self) -> bool:
        """Its state is the only one."""
        return True

    def check(self) -> None:
        """Raise Closed or SnapshotExpired. Once half of the lease is gone, it begins anew."""
        if self._closed:  # no call, for each get comes here
            self._refuse_closed()
        if self._inherited:  # its owner renews it, or removes it
            self._found = published.read(self._disk, self._found.path)
        now_ms = self._clock_ms()
        if now_ms >= self._found.expires_at:
            self._found.check(now_ms)
        if self._found.expires_at - now_ms < self._lease_ms // 2 and now_ms >= self._renews_ms:
            try:
                self._begin_lease(now_ms)
            except OSError as error:  # as on a full disk: what is read is there for now
                self._renews_ms = now_ms + self._lease_ms // 64
                log.warning("the lease of %s is not renewed: %s", self._found.path, error)

    def _begin_lease(self, now_ms: int) -> None:
        """Anew. Raises Closed where another thread closed it, SnapshotExpired, OSError."""
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
        """Told to the caller, and to nobody else. Raises Closed where another thread closed it,
        SnapshotExpired where somebody released it, or swept it by a clock that is ahead; and
        Corruption, where the file has a better name."""
        self._refuse_closed()  # and so removed the file
        self._found = published.read(self._disk, self._found.path)
        if (file := self.named(damage.file)) != damage.file:
            raise Corruption(file, damage.offset, damage.what) from damage

    def named(self, text: str) -> str:
        """What is told of its files, with the names that they have in the store."""
        if self._store is None:
            return text
        return published.in_store(text, self._found.path, self._store)

    def gone(self, missing: FileNotFoundError) -> Corruption:
        """What to raise where a file is not there. Raises SnapshotExpired, Closed."""
        found = super().gone(missing)
        self.damaged(found)
        return found

    def renew(self, lease_seconds: float | None = None) -> None:
        """The lease begins anew. Raises SnapshotExpired if it had ended, StorageFull,
        StorageFailed."""
        self.check()
        if lease_seconds is not None:
            self._lease_ms = int(lease_seconds * 1000)
        now_ms, path = self._clock_ms(), self._found.path
        with storage_errors(f"the lease of {path}"):
            self._begin_lease(now_ms)

    def step(self) -> None:
        """A scan goes on."""
        self.check()

    def close(self) -> None:
        """A scan ends: the store stays open."""

    def forked(self) -> None:
        """This process is a forked child: the files are its parent's, to be removed by that, and
        what a thread of that was in the midst of never ends."""
        self._inherited = True
        self._let_go = NOTHING
        self._open_files.forked()
        self._bookie.kept_scans = KeptScans(_KEPT_BYTES)

    def really_close(self) -> None:
        """Let go of the files. Idempotent."""
        if not self._closed:
            self._closed = True
            self._open_files.let_go()  # not only once a collector comes by
            if not self._inherited:
                published.remove(self._disk, self._found.path)
            self._let_go = NOTHING
            self._alive = None
