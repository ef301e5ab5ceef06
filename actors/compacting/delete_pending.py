"""Files that the newest manifest no longer has, kept until no snapshot needs them."""

from __future__ import annotations

from collections.abc import Callable
from logging import Logger, LoggerAdapter
from typing import TYPE_CHECKING

from octavo.actors.file_actor import FileActor

if TYPE_CHECKING:
    from octavo.manifest.register import SnapshotRegister


class DeletePending:
    """The pending files of the ledger or of the journal; used in the turn of the actor that has
    them."""

    def __init__(
        self, register: SnapshotRegister, remove: Callable[[str], None], log: LoggerAdapter[Logger]
    ) -> None:
        """``remove``: removes the file at a path; it may raise OSError."""
        self._register = register
        self._remove = remove
        self._log = log
        self.replaced: list[FileActor] = []  # the Bookie's view may still have these
        self.waiting: list[tuple[int, FileActor]] = []  # (gone since generation, file), ascending

    def retire(self, generation: int) -> None:
        """Have the replaced files wait for the views before ``generation``; later views do without
        them. Only once the Bookie has the new files: until then a new snapshot may still use the
        old ones. If the Bookie was not told in time, the next call has them wait."""
        gone, self.replaced = self.replaced, []
        for file in gone:
            file.actor_ref.call(FileActor.replace)
            self.waiting.append((generation, file))

    def sweep(self) -> int:
        """Delete the files that no live snapshot needs; returns how many still wait. Called after
        ``retire``, and whenever a snapshot ends. O(files that go).

        A file leaves the queue before it is deleted, whether or not that works: one that was half
        let go of cannot be deleted again, and every later sweep would fail on it. The next start
        removes it.
        """
        self._register.expire()
        while self.waiting and not self._register.needed(self.waiting[0][0]):
            _, file = self.waiting.pop(0)
            try:
                file.actor_ref.call(FileActor.delete, self._remove)
            except OSError as error:
                self._log.warning("%s is left for the next start to remove: %s", file.path, error)
            file.actor_ref.stop()
        return len(self.waiting)
