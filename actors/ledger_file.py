"""The ledger-file actor: one sorted, immutable file, ignorant of its level and its manifest."""

from __future__ import annotations

import dataclasses
from mmap import mmap

from octavo.actors.file_actor import FileActor
from octavo.actors.open_files import OpenFiles
from octavo.files.door.disk import Disk
from octavo.files.kernels.cold_pages import COLD, scattered
from octavo.files.ledger.sst import Sst
from octavo.files.lifecycle import after
from octavo.manifest.ledger_entry import LedgerEntry, refuse_another


class LedgerFile(FileActor):
    """Owns one ledger file. Anyone reads through ``reader()``, without a turn."""

    def __init__(self, disk: Disk, directory: str, name: str, open_files: OpenFiles) -> None:
        super().__init__(disk, directory, name, open_files)
        self.state = after(self.state, "open", name)
        self.sst: Sst | None = None  # None: not open now
        self.entry: LedgerEntry | None = None
        """What its manifest knows of it; None: nothing to compare it with."""

    def of(self, entry: LedgerEntry) -> LedgerEntry:
        """The entry with this as its file; ``reader`` checks that it is the file that it means."""
        self.entry = entry
        return dataclasses.replace(entry, file=self)

    def reader(self) -> Sst:
        """The open file; the first call maps it and reads its summary. Raises Corruption."""
        sst = self.sst
        if sst is None:
            mapped, before = self.open_files.opened(self), COLD.reads()
            sst = Sst(mapped, self.path)
            COLD.judge(before)
            if self.entry is not None:
                refuse_another(self.entry, sst)
            self.sst = sst
            self.open_files.settle(self)
        return sst

    def map_now(self) -> mmap | bytes:
        """The file's map. Called by OpenFiles."""
        return scattered(self.disk.map(self.path))

    def forget_map(self) -> None:
        """Give up the map; whoever still reads it keeps it alive."""
        self.sst = None

    def close(self) -> None:
        """Let go of the map. Idempotent."""
        self.state = after(self.state, "close", self.name)
        self.open_files.dropped(self)
        self.sst = None
