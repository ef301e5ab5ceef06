"""What the actors of journal files and of ledger files have in common: where the file is, and the
last stages of its life."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from mmap import mmap
from typing import TYPE_CHECKING

from octavo.actors.turns.runtime import TurnActor
from octavo.files.lifecycle import State, after

if TYPE_CHECKING:
    from octavo.actors.open_files import OpenFiles
    from octavo.files.door.disk import Disk


class FileActor(TurnActor, ABC):
    """Owns one file of the store. Anyone reads it, without a turn."""

    def __init__(self, disk: Disk, directory: str, name: str, open_files: OpenFiles) -> None:
        super().__init__()
        self.disk = disk
        self.directory = directory
        self.name = name
        self.state = State.STARTING
        self.open_files = open_files

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @abstractmethod
    def map_now(self) -> mmap | bytes:
        """The file's map. Called by OpenFiles."""

    @abstractmethod
    def forget_map(self) -> None:
        """Give up the map; whoever still reads it keeps it alive."""

    def replace(self) -> None:
        """Note that a newer manifest does without this file: it goes when no snapshot needs it."""
        self.state = after(self.state, "replace", self.name)

    def delete(self, remove: Callable[[str], None]) -> None:
        """Have ``remove`` delete the file, which no snapshot needs now. Maps still read live on."""
        self.state = after(self.state, "delete", self.name)
        self.open_files.dropped(self)
        self.forget_map()  # after the state, which openers look at
        remove(self.path)

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open. Idempotent."""
