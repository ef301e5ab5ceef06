"""Durable consumers of the change feed: how far each has come, and what is held back for them.

The file ``CONSUMERS`` of a store, made anew with each acknowledgement, is JSON:

    {"format": 1, "consumers": {name: [position, moment of its last progress, ms UTC]},
     "checksum": 16 hexadecimal digits of xxh3-64 of the rest}
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

from octavo.files.argument_checks import shown
from octavo.files.checked_json import decoded, encoded
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk
from octavo.files.errors import (
    Closed,
    Corruption,
    HistoryCompacted,
    Misuse,
    OctavoError,
    storage_error,
)
from octavo.files.locks import new_rlock
from octavo.files.messages import messages_of
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry

log = messages_of("octavo.consumers")

CONSUMERS = "CONSUMERS"
MAX_CONSUMERS = 1000
MAX_NAME = 200
_MAX_BYTES = 4 << 20  # MAX_CONSUMERS with the longest names, 12 bytes of JSON a character
_FORMAT = 1


def checked_name(name: object) -> str:
    """The name of a consumer. Raises Misuse."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise Misuse(f"name={shown(name)}: allowed are 1 to {MAX_NAME} printable characters")
    return name


class Progress(NamedTuple):
    """Where a consumer is."""

    position: int
    """It needs nothing at or below this sqn any more."""
    moved_ms: int


class _Held:
    """How many bytes of the journal a consumer keeps from compaction."""

    def __init__(self, upto: int, files: Sequence[JournalEntry]) -> None:
        """Take those of the files, oldest first, that the ledger (up to the sqn ``upto``) has
        whole."""
        there = [entry for entry in files if entry.last_sqn <= upto]
        self._ends = [entry.last_sqn for entry in there]
        self._filled = [0, *accumulate(entry.bytes for entry in there)]

    def above(self, position: int) -> int:
        """Bytes of the files that hold anything above a sqn. O(log files)."""
        return self._filled[-1] - self._filled[bisect_right(self._ends, position)]


class Consumers:
    """All consumers of a store. Thread-safe."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        clock_ms: Callable[[], int],
        notes: list[str],
        *,
        hold_seconds: float | None = None,
        hold_bytes: int | None = None,
        came_ms: Callable[[int], int | None] = lambda position: 0,
    ) -> None:
        """Read the file. A consumer that holds back compaction is dropped, and ``notes`` says so,
        if it made no progress for ``hold_seconds``, though it could, or holds back more than
        ``hold_bytes`` of the journal. ``came_ms``: when the first change above an sqn was written,
        ms UTC; None: there is none."""
        self.lock = new_rlock()
        """Held while positions change, and while files go that a consumer might need."""
        self._closed = False
        self._disk = disk
        self._file = f"{path}/{CONSUMERS}"
        self._clock_ms = clock_ms
        self._hold_ms = None if hold_seconds is None else int(hold_seconds * 1000)
        self._hold_bytes = hold_bytes
        self._came_ms = came_ms
        self._notes = notes
        self._known: dict[str, Progress] = {}
        with suppress(FileNotFoundError):
            disk.unlink(self._file + TEMPORARY_SUFFIX)  # of a write that was cut short
        if disk.exists(self._file):
            try:
                self._known = _decoded(disk.read(self._file, _MAX_BYTES), self._file)
            except Corruption as wrong:
                self._tell(f"{wrong}: the consumers of the change feed are lost; they begin anew")

    def close(self) -> None:
        """Let no position change from now on: the file is soon another owner's. Waits for a change
        that is under way."""
        with self.lock:
            self._closed = True

    def all(self) -> dict[str, Progress]:
        """Every consumer by its name."""
        with self.lock:
            return dict(self._known)

    def lowest(self) -> int:
        """The sqn up to which no consumer needs records, inclusive. O(consumers)."""
        with self.lock:
            return min((each.position for each in self._known.values()), default=MAX_SQN)

    def drop_holders(self, upto: int, files: Sequence[JournalEntry]) -> None:
        """Drop consumers that hold back a compaction up to the sqn ``upto``: without progress for
        too long, or too much of the sealed ``files``, oldest first. O(consumers * log files).
        """
        with self.lock:
            self._drop_holders(upto, files)

    def _drop_holders(self, upto: int, files: Sequence[JournalEntry]) -> None:
        now, held = self._clock_ms(), _Held(upto, files)
        for name, progress in list(self._known.items()):
            why = self._too_late(progress, upto, now) or self._too_much(progress, held)
            if why:
                self._drop_loudly(name, f"{why} it held back compaction at sqn {progress[0]}")

    def _too_late(self, progress: Progress, upto: int, now: int) -> str:
        """Why it is to be dropped, for want of progress; "" if it is not."""
        idle = now - progress.moved_ms
        if self._hold_ms is None or progress.position >= upto or idle <= self._hold_ms:
            return ""
        came = self._came_ms(progress.position)  # until then it could make no progress
        idle = idle if came is None else min(idle, now - came)
        if came is None or idle <= self._hold_ms:
            return ""
        return f"without progress for {idle / 1000:.0f} s"

    def _too_much(self, progress: Progress, held: _Held) -> str:
        """Why it is to be dropped, for the bytes it holds back; "" if it is not."""
        if self._hold_bytes is None:
            return ""
        size = held.above(progress.position)
        if size <= self._hold_bytes:
            return ""
        return f"over {size} bytes of the journal, more than consumer_hold_bytes,"

    def _drop_loudly(self, name: str, why: str) -> None:
        try:
            self.drop(name)
        except OctavoError as error:
            log.warning("consumer %r is to be dropped: %s", name, error)
            return
        self._tell(f"consumer {name!r} was dropped: {why}")

    def position(self, name: str) -> int | None:
        """Where a consumer is; None: there is none of that name."""
        found = self._known.get(name)
        return None if found is None else found.position

    def begin(self, name: str, position: int, horizon: Callable[[], int]) -> None:
        """Make a consumer, durably. Raises HistoryCompacted if the journal no longer has
        everything above ``position``, Misuse, StorageFull, StorageFailed."""
        with self.lock:
            if position < horizon():
                raise HistoryCompacted(
                    f"consumer {name!r} cannot begin at sqn {position}: the journal is complete "
                    f"only above {horizon()}"
                )
            if len(self._known) >= MAX_CONSUMERS:
                raise Misuse(f"there are {MAX_CONSUMERS} consumers already; drop some")
            self._write(self._known | {name: Progress(position, self._clock_ms())})

    def move(self, name: str, position: int) -> None:
        """Move a consumer on to ``position``, durably. Raises HistoryCompacted if it was dropped,
        Misuse if it was farther already, StorageFull, StorageFailed."""
        with self.lock:
            before = self._known.get(name)
            if before is None:
                raise HistoryCompacted(f"consumer {name!r} is no more: it was dropped")
            if position < before.position:
                raise Misuse(f"consumer {name!r} has acknowledged {before.position} already")
            self._write(self._known | {name: Progress(position, self._clock_ms())})

    def drop(self, name: str) -> None:
        """Forget a consumer, durably. Idempotent. Raises StorageFull, StorageFailed."""
        with self.lock:
            left = dict(self._known)
            if left.pop(name, None) is not None:
                self._write(left)

    def _write(self, known: dict[str, Progress]) -> None:
        if self._closed:
            raise Closed("the store is closed")
        try:
            _write(self._disk, self._file, known)
        except OSError as error:
            raise storage_error(error, self._file) from error
        self._known = known

    def _tell(self, note: str) -> None:
        log.warning("%s: %s", self._file, note)
        self._notes.append(note)


def known_of(disk: Disk, path: str) -> dict[str, Progress]:
    """The consumers of a store that another process may have open. Raises Corruption, OSError."""
    try:
        return _decoded(disk.read(f"{path}/{CONSUMERS}", _MAX_BYTES), f"{path}/{CONSUMERS}")
    except FileNotFoundError:
        return {}


def go_back(disk: Disk, path: str, sqn: int) -> None:
    """Take a backup's consumers back to ``sqn``, durably, before it becomes another state that is
    the same only up to there: what comes behind is new to them. Raises OSError."""
    file = f"{path}/{CONSUMERS}"
    if not disk.exists(file):
        return
    try:
        known = _decoded(disk.read(file, _MAX_BYTES), file)
    except Corruption:
        return  # the next opening reports it
    if any(each.position > sqn for each in known.values()):
        _write(
            disk,
            file,
            {name: each._replace(position=min(each.position, sqn)) for name, each in known.items()},
        )


def _write(disk: Disk, file: str, known: dict[str, Progress]) -> None:
    told = {"format": _FORMAT, "consumers": known}
    disk.write_atomically(file, encoded(told) + b"\n")


def _decoded(text: bytes, file: str) -> dict[str, Progress]:
    found = decoded(text, file, "consumers")
    try:
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']!r:.40}")
        known = {name: Progress(*progress) for name, progress in found["consumers"].items()}
        if not all(0 <= p.position <= MAX_SQN and p.moved_ms >= 0 for p in known.values()):
            raise ValueError("position")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise Corruption(file, 0, f"consumers: {wrong}") from None
    return known
