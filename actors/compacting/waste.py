"""Keeps journal files that compaction replaced for a while, in case somebody wants them back.

A file's name in the directory begins with the moment it came there, ms UTC in 16 hexadecimal
digits; the rest is the name it had.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.files.door.disk import Disk
from octavo.files.journal.journal_names import SEALED
from octavo.files.messages import messages_of

log = messages_of("octavo.compaction")


class Waste:
    """The directory ``waste`` of a store. With a retention of 0 it is only emptied."""

    def __init__(
        self, disk: Disk, directory: str, retention_seconds: float, clock_ms: Callable[[], int]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._retention_ms = int(retention_seconds * 1000)
        self._clock_ms = clock_ms
        if self._retention_ms:
            store, _, name = directory.rpartition("/")
            disk.mkdir_within(store, name)

    def remove(self, path: str) -> None:
        """Move a file here or, with a retention of 0, delete it. Raises OSError."""
        if self._retention_ms:
            name = path.rpartition("/")[2]
            self._disk.rename(path, f"{self._directory}/{self._clock_ms():016x}-{name}")
        else:
            self._disk.unlink(path)

    def sweep(self) -> None:
        """Delete the files whose time is over; those that cannot be are tried again later. One
        listing."""
        now = self._clock_ms()
        try:
            names = self._disk.listdir(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("%s cannot be listed: %s", self._directory, error)
            return
        for name in names:
            came = _moment(name)
            if came is not None and came + self._retention_ms <= now:
                try:
                    self._disk.unlink(f"{self._directory}/{name}")
                except OSError as error:
                    log.warning("%s/%s cannot be removed: %s", self._directory, name, error)


def _moment(name: str) -> int | None:
    """When a file came here, ms UTC; None if its name is not one of these."""
    stamp, dash, rest = name.partition("-")
    if not dash or len(stamp) != 16 or not rest.endswith(SEALED):
        return None
    try:
        return int(stamp, 16)
    except ValueError:
        return None
