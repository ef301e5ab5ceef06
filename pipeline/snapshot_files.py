"""The files of a published snapshot, as a task reads them: no actor, no lock, nothing written."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from mmap import mmap
from typing import TypeVar

import numpy as np

from octavo.files.door.disk import Disk, RealDisk
from octavo.files.errors import Corruption, StorageFull, storage_error
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_names import SEALED
from octavo.files.journal.journal_values import Offsets, Right
from octavo.files.journal.journal_windows import RecordSums
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.changed_batches import Changed, changed_batches
from octavo.files.ledger.chosen_rows import Chosen
from octavo.files.ledger.few_maps import most_mapped_bytes, most_maps
from octavo.files.ledger.live_batches import Batch, FileRows, LedgerRun, Source, live_batches
from octavo.files.ledger.sst import Sst
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import published
from octavo.manifest.journal_manifest import JournalEntry
from octavo.manifest.ledger_entry import LedgerEntry, refuse_another
from octavo.manifest.pinning import unsealed_offsets
from octavo.manifest.published import Published

LOOK_EVERY_SECONDS = 1.0
_KEPT_LEDGERS = 16
"""Ledger files that stay mapped, and verified: ranges of many buckets are in the same ones."""
T = TypeVar("T")


class SnapshotFiles:
    """Reads one published snapshot. Each task has its own."""

    def __init__(
        self,
        path: str,
        disk: Disk | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """``path``: its directory. Raises SnapshotExpired, Corruption."""
        self.disk = RealDisk() if disk is None else disk
        self._clock_ms = clock_ms
        self._looked = time.monotonic()
        self._ledgers: dict[str, Sst] = {}
        self._journal: dict[str, tuple[mmap | bytes, Offsets]] = {}
        self._sums: dict[str, RecordSums] = {}
        self.found: Published = published.read(self.disk, path)
        self.found.check(clock_ms())
        self.bases = np.array(self.found.journal.bases, dtype=np.int64)

    def check(self) -> None:
        """Raise SnapshotExpired if the lease ended; one that was renewed goes on."""
        now_ms = self._clock_ms()
        gone = now_ms >= self.found.expires_at
        if gone or time.monotonic() - self._looked >= LOOK_EVERY_SECONDS:
            self._looked = time.monotonic()
            self.found = published.read(self.disk, self.found.path)
            self.found.check(now_ms)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context for every use of the files. Raises SnapshotExpired for one that is gone because
        the lease ended."""
        self.check()
        try:
            yield
        except FileNotFoundError as missing:
            published.read(self.disk, self.found.path).check(self._clock_ms())
            raise Corruption(str(missing.filename), 0, "the file is missing") from missing
        except OSError as error:
            told = storage_error(error, f"{self.found.path} cannot be read")
            if isinstance(told, StorageFull):
                raise told from error
            raise

    # ------------------------------------------------------------ the ledger

    def open_ledger(self, entry: LedgerEntry) -> Sst:
        """Open a ledger file: map it and read its summary. The last ones are kept, if a process may
        map as much as it likes."""
        known = self._ledgers.get(entry.name)
        if known is not None:
            return known
        path = f"{self.found.path}/{entry.name}"
        sst = Sst(self.disk.map(path), path)
        refuse_another(entry, sst)
        if most_mapped_bytes() is None:
            while self._ledgers and len(self._ledgers) >= min(_KEPT_LEDGERS, most_maps()):
                del self._ledgers[next(iter(self._ledgers))]
            self._ledgers[entry.name] = sst
        return sst

    def levels(self, bound: Bounds) -> Iterator[tuple[LedgerEntry, ...]]:
        """The ledger files of a range, newest first, in parts that do not overlap each other."""
        ledger = self.found.ledger
        for level in range(len(ledger.levels)):
            touched = ledger.overlapping(
                level, bound.low, ledger_key.ABOVE_ALL if bound.high is None else bound.high
            )
            if level:
                yield touched
            else:
                yield from ((entry,) for entry in touched)

    def batches(self, bound: Bounds, chosen: Chosen | None = None) -> Iterator[Batch]:
        """The live rows of a range as columns, some 100,000 at a time. Raises Corruption,
        SnapshotExpired."""
        found = live_batches(
            self.sources(bound, chosen), self.found.taken_at, reverse=bound.reverse
        )
        return self._each(found)

    def _each(self, found: Iterator[T]) -> Iterator[T]:
        while True:
            with self.reading():
                one = next(found, None)
            if one is None:
                return
            yield one

    def changes(
        self, before: SnapshotFiles, bound: Bounds, chosen: Chosen | None = None
    ) -> Iterator[Changed]:
        """What changed in a range since an earlier snapshot of the store. Raises Corruption,
        SnapshotExpired."""
        found = changed_batches(
            before.sources(bound, chosen), self.sources(bound, chosen),
            before.found.sqn, before.found.taken_at, self.found.taken_at,
        )  # fmt: skip
        return self._each(before._each(found))

    def sources(self, bound: Bounds, chosen: Chosen | None = None) -> list[Source]:
        """The ledger's rows of a range. Nothing is opened yet."""
        sources: list[Source] = []
        kept = most_maps()
        for entries in self.levels(bound):
            runs: list[LedgerRun] = [
                (partial(self.open_ledger, entry), entry.sqn_base) for entry in entries
            ]
            if runs:
                sources.append(FileRows(runs, bound, chosen, kept=len(sources) < kept))
        return sources

    # ------------------------------------------------------------ the journal

    def open_journal(self, entry: JournalEntry) -> tuple[mmap | bytes, Offsets]:
        """(map, offsets) of one of its journal files; the last ones are kept. Raises Corruption."""
        known = self._journal.get(entry.name)
        if known is None:
            self._make_room(entry.bytes)
            path = f"{self.found.path}/{entry.name}"
            try:
                mapped = self.disk.map(path)
            except OSError as error:
                if error.errno != errno.ENOMEM or not self._journal:
                    raise
                self._journal.clear()  # others have taken what may be mapped
                self._sums.clear()
                mapped = self.disk.map(path)
            if entry.name.endswith(SEALED):
                known = mapped, cdb.sealed_offsets(mapped, path)[1]
            else:
                known = mapped, self._offsets(path, len(mapped))
            self._journal[entry.name] = known
        return known

    def _make_room(self, size: int) -> None:
        """Let go of the journal files that were opened first, as far as another of this size
        needs."""
        most, left = most_mapped_bytes(), sys.maxsize
        if most is not None:
            left = most - size - sum(len(mapped) for mapped, _ in self._journal.values())
        while self._journal and (left < 0 or len(self._journal) >= most_maps()):
            first = next(iter(self._journal))
            left += len(self._journal.pop(first)[0])
            self._sums.pop(first, None)

    def right(self, entry: JournalEntry) -> Right:
        """The function that says which records of a journal file are as they were written; kept, so
        that nothing is verified twice. Raises Corruption."""
        known = self._sums.get(entry.name)
        if known is None:
            known = self._sums[entry.name] = RecordSums(self.open_journal(entry)[0], entry.seed)
        return known.right

    def _offsets(self, path: str, limit: int) -> Offsets:
        table = np.frombuffer(unsealed_offsets(self.disk, path), dtype=np.uint32)
        if int(table[-1]) > limit:
            raise Corruption(path, 0, "offsets reach beyond the file", expected=limit)
        return table

    def record(self, sqn: int) -> record.Record:
        """A whole record, every checksum verified; says what is wrong with it, if so."""
        entry = self.found.journal.find(sqn)
        if entry is None:
            raise Corruption(self.found.path, 0, f"no journal file holds sqn {sqn}")
        mapped, offsets = self.open_journal(entry)
        path, relative = f"{self.found.path}/{entry.name}", sqn - entry.base_sqn
        if relative >= len(offsets) - 1 or offsets[relative] == offsets[relative + 1]:
            raise Corruption(path, 0, f"the record of sqn {sqn} was lost to damage")
        at, end = int(offsets[relative]), int(offsets[relative + 1])
        return record.decode(mapped[at:end], entry.seed ^ at, entry.base_sqn, path, at)
