"""A value kept in a change log: a list of numbers, each change one more. For tests."""

from __future__ import annotations

import json

from octavo.files.door.disk import Disk
from octavo.manifest import change_log
from octavo.manifest.change_log import ChangeLog, Limits, Recovered

SMALL = Limits(file_bytes=1 << 20, snapshot_changes=1 << 30)


def change(number: int, padding: int = 0) -> bytes:
    """The change that adds ``number``, some bytes longer."""
    return b"%d:" % number + b"x" * padding


def value_of(found: Recovered) -> list[int]:
    """What was recovered."""
    value: list[int] = json.loads(found.snapshot) if found.snapshot else []
    return value + [int(payload.split(b":")[0]) for payload in found.changes]


class LoggedValue:
    """The list, its log, and how much of it was promised to be durable."""

    def __init__(self, disk: Disk, directory: str, limits: Limits = SMALL) -> None:
        self.found = change_log.recover(disk, directory)
        self.value = value_of(self.found)
        self.log = ChangeLog.begin(
            disk, directory, self.found.epoch + 1, self.packed(), limits=limits
        )
        self.durable = len(self.value)

    def packed(self) -> bytes:
        """The whole list."""
        return json.dumps(self.value).encode()

    def add(self, number: int, *, padding: int = 0) -> None:
        """One change; the value has it only if the log does."""
        self.log.append(change(number, padding))
        self.value.append(number)
        self.durable = len(self.value)

    def snapshot(self) -> None:
        """The whole value into the log."""
        self.log.snapshot(self.packed())
        self.durable = len(self.value)
