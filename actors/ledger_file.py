"""The ledger-file actor: one sorted, immutable file, ignorant of its level and its manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from mmap import mmap

from octavo.actors.open_files import OpenFiles
from octavo.actors.turns.runtime import TurnActor
from octavo.files.door.disk import Disk
from octavo.files.kernels.cold_pages import COLD, scattered
from octavo.files.ledger.sst import Sst
from octavo.files.lifecycle import State, after
from octavo.manifest.ledger_entry import LedgerEntry, refuse_another


class LedgerFile(TurnActor):
    """Owns one ledger file. Anyone reads through ``reader()``, without a turn."""

    def __init__(self, disk: Disk, directory: str, name: str, open_files: OpenFiles) -> None:
        super().__init__()
        self.disk = disk
        self.directory = directory
        self.name = name
        self.state = after(State.STARTING, "open", name)
        self.sst: Sst | None = None  # None: not open now
        self.entry: LedgerEntry | None = None
        """What its manifest knows of it; None: nothing to compare it with."""
        self.open_files = open_files

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

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

    def replace(self) -> None:
        """Note that a newer manifest does without this file: it goes when no snapshot needs it."""
        self.state = after(self.state, "replace", self.name)

    def delete(self, remove: Callable[[str], None]) -> None:
        """Have ``remove`` delete the file, which no snapshot needs now. Maps still read live on."""
        self.state = after(self.state, "delete", self.name)
        self.open_files.dropped(self)
        self.sst = None
        remove(self.path)

    def close(self) -> None:
        """Let go of the map. Idempotent."""
        self.state = after(self.state, "close", self.name)
        self.open_files.dropped(self)
        self.sst = None
