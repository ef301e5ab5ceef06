"""Files that a newer manifest does without, and that wait for the snapshots that need them."""

from __future__ import annotations

from collections.abc import Callable
from logging import Logger, LoggerAdapter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from octavo.actors.journal_file import JournalFile
    from octavo.actors.ledger_file import LedgerFile
    from octavo.manifest.register import SnapshotRegister

File = TypeVar("File", "JournalFile", "LedgerFile")


class DeletePending(Generic[File]):
    """Those of the ledger or the journal; all of it in the turn of the actor that keeps them."""

    def __init__(
        self, register: SnapshotRegister, remove: Callable[[str], None], log: LoggerAdapter[Logger]
    ) -> None:
        """``remove`` the file of a path; it may raise OSError."""
        self._register = register
        self._remove = remove
        self._log = log
        self.replaced: list[File] = []  # of which the Bookie was not told yet
        self.waiting: list[tuple[int, File]] = []  # (gone since generation, file), ascending

    def retire(self, generation: int) -> None:
        """Views from ``generation`` on do without what was replaced. Only after the Bookie took
        that: until then a new snapshot may still be of the old files. What it was not told of in
        time is so the next time."""
        gone, self.replaced = self.replaced, []
        for file in gone:
            file.actor_ref.call(type(file).replace)
            self.waiting.append((generation, file))

    def sweep(self) -> int:
        """Delete the files that no live snapshot needs; how many still wait. After ``retire``, and
        whenever a snapshot ends. O(files that go).

        A file waits no more before it is deleted, however that ends: one that was half let go of
        can not be deleted again, and all later sweeps would fail of it. The next start removes it.
        """
        self._register.expire()
        while self.waiting and not self._register.needed(self.waiting[0][0]):
            _, file = self.waiting.pop(0)
            try:
                file.actor_ref.call(type(file).delete, self._remove)
            except OSError as error:
                self._log.warning("%s is left for the next start to remove: %s", file.path, error)
            file.actor_ref.stop()
        return len(self.waiting)
