"""The Penciller: keeps the ledger, decides what is merged next and when a file may be deleted."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from octavo.actors.compacting.delete_pending import DeletePending
from octavo.actors.compacting.giving_up import named_or_gone
from octavo.actors.ledger_file import LedgerFile
from octavo.actors.memory_table import MemoryTable
from octavo.actors.open_files import OpenFiles
from octavo.actors.turns.runtime import TurnActor
from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, OctavoError, StorageFull, storage_error
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import REBUILD, LedgerManifest
from octavo.manifest.level_sizes import MAX_FILE_BYTES, MAX_FILE_ROWS, target_rows
from octavo.manifest.register import SnapshotRegister
from octavo.manifest.small_files import MANY_SMALL, SMALL, alike, small_run

log = messages_of("octavo.penciller")

LEVEL_ZERO_FILES = 4
"""So many files of level zero start a merge into level one ..."""
_LITTLE = 64
"""... unless it would write more than this many times the rows that come from level zero: ..."""
_MOST_FILES = 4 * LEVEL_ZERO_FILES
"""... then only so many files start it, since every read looks at all of them."""


@dataclass(frozen=True, slots=True)
class LevelZero:
    """Save the oldest memory table of level zero: journal records (since, upto]."""

    table: MemoryTable
    since: int
    upto: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge ``inputs`` into ``level``, which may be theirs; ``move``: only change their level."""

    inputs: tuple[LedgerEntry, ...]
    level: int
    basement: bool
    move: bool


class Penciller(TurnActor):
    """Owns the ledger's manifest, level zero in memory, and the files that wait to be deleted."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        manifest: LedgerManifest,
        change_log: ChangeLog,
        epoch: int,
        open_files: OpenFiles,
        register: SnapshotRegister,
    ) -> None:
        super().__init__()
        self.disk = disk
        self.directory = directory
        self.manifest = manifest
        self.change_log = change_log
        self.epoch = epoch
        self.open_files = open_files
        self.tables: list[LevelZero] = []  # level zero in memory, oldest first
        self.delete_pending = DeletePending(register, disk.unlink, log)
        self.failed: OctavoError | None = None
        self.condemned = False
        self.rebuildable = True
        self.rows_merged = 0
        self.bytes_written = 0
        self._jobs = 0
        self._cursor: dict[int, bytes] = {}  # level: where the last merge out of it ended

    def adopt(self) -> None:
        """Start an actor for each file of the manifest. No file is touched. O(files)."""
        levels = tuple(
            tuple(self._start_file(entry.name).of(entry) for entry in level)
            for level in self.manifest.levels
        )
        self.manifest = replace(self.manifest, levels=levels)

    def _start_file(self, name: str) -> LedgerFile:
        file: LedgerFile = LedgerFile.start(self.disk, self.directory, name, self.open_files).actor
        return file

    def condemn(self, damage: Corruption) -> None:
        """Stop merging, since a ledger file is damaged, and have the next start rebuild the ledger
        from the journal, if that has everything. Raises StorageFull, StorageFailed."""
        self.condemned = True
        if not self.rebuildable:
            return
        why = str(damage).encode(errors="backslashreplace")  # it names a path: maybe no UTF-8
        try:
            self.disk.write_atomically(f"{self.directory}/{REBUILD}", why)
        except OSError as error:
            raise storage_error(self.disk.reason(error), self.directory) from error

    def reported(self, damage: Corruption) -> None:
        """Take note of damage that a reader met; in a ledger file it condemns the ledger."""
        if not self.condemned and damage.file.startswith(f"{self.directory}/"):
            follows = "the next start rebuilds the ledger" if self.rebuildable else "no merge"
            log.error("%s: %s", follows, damage)
            self.condemn(damage)

    # ------------------------------------------------------------ level zero

    @unbroken
    def push(self, table: MemoryTable, since: int, upto: int) -> None:
        """Take over a frozen memory table: the journal's records (since, upto]. Does nothing for
        one that it has or had already. O(1)."""
        if upto > max(self.pushed_upto(), self.manifest.persisted_sqn):
            self.tables.append(LevelZero(table, since, upto))

    def pushed_upto(self) -> int:
        """The last sqn of the tables that wait to be saved; 0 if none does."""
        return self.tables[-1].upto if self.tables else 0

    def oldest(self) -> LevelZero | None:
        """The table to save next, or None. Drops those that the ledger has already: one can be left
        if memory ran out just after the manifest changed, and would be saved twice."""
        while self.tables and self.tables[0].upto <= self.manifest.persisted_sqn:
            del self.tables[0]
        return self.tables[0] if self.tables else None

    # ------------------------------------------------------------ what to merge

    def next_task(self) -> LevelZero | Merge | None:
        """The most pressing work, or None. O(files)."""
        if self.failed is not None:
            return None
        if (task := self.oldest()) is not None:
            return task
        if self.condemned:
            return None
        levels = self.manifest.levels
        if levels and len(levels[0]) >= LEVEL_ZERO_FILES:
            merge = self._out_of_level_zero(levels[0])
            if merge is not None:
                return merge
        for level in range(1, len(levels)):
            rows = sum(entry.rows for entry in levels[level])
            if rows > target_rows(level):
                return self._merge_of((self._next_out_of(level),), level + 1)
            if rows * SMALL < len(levels[level]) * MAX_FILE_ROWS:
                joined = self._joining(levels[level], level)
                if joined is not None:
                    return joined
        return None

    def _joining(self, entries: tuple[LedgerEntry, ...], level: int) -> Merge | None:
        """A merge of small files of a level into one, or None. Files that only moved there from
        level zero may have any size."""
        found = small_run([max(e.rows / MAX_FILE_ROWS, e.bytes / MAX_FILE_BYTES) for e in entries])
        if found is None:
            return None
        return Merge(entries[found], level, self._is_basement(level, entries[found]), move=False)

    def _is_basement(self, level: int, whole: tuple[LedgerEntry, ...]) -> bool:
        """Whether no deeper level can have anything that these files of ``level`` hide."""
        reach, levels = _reach(whole), range(level + 1, len(self.manifest.levels))
        return not any(self.manifest.overlapping(each, *reach) for each in levels)

    def _out_of_level_zero(self, entries: tuple[LedgerEntry, ...]) -> Merge | None:
        """A merge of level zero (if it has very many files, of the oldest) into level one. If that
        is little beside what it meets there, as from many small commits: its newest files into
        one, if they are alike in size; else None, until there are too many files."""
        oldest = entries[-MANY_SMALL:]
        merge = self._merge_of(oldest, 1)
        rows = sum(entry.rows for entry in oldest)
        if sum(each.rows for each in merge.inputs) <= _LITTLE * rows:
            return merge
        newest = alike(entries, LEVEL_ZERO_FILES)
        if newest:
            return Merge(newest, 0, basement=False, move=False)
        return merge if len(entries) >= _MOST_FILES else None

    def _next_out_of(self, level: int) -> LedgerEntry:
        """The next file to leave a level: they leave in turn, going round its key range."""
        entries = self.manifest.levels[level]
        after = self._cursor.get(level, b"")
        return next((entry for entry in entries if entry.first_key > after), entries[0])

    def _merge_of(self, above: tuple[LedgerEntry, ...], level: int) -> Merge:
        below = self.manifest.overlapping(level, *_reach(above))
        # With ``below``: its files may reach further, and their deletes hide what lies deeper.
        basement = self._is_basement(level, (*above, *below))
        apart = sorted(above, key=lambda entry: entry.first_key)
        move = not below and all(left.last_key < right.first_key for left, right in pairwise(apart))
        if basement and any(entry.tombstones for entry in above):
            move = False
        return Merge((*above, *below), level, basement, move)

    def next_stem(self) -> str:
        """The beginning of the names of a job's files: it has the epoch, and never recurs. The
        random part is for backups: one that was opened counts its own epochs, yet has files of
        the original, too."""
        self._jobs += 1
        return f"{self.epoch:08x}-{self._jobs:08x}-{secrets.token_hex(4)}"

    def backlog(self) -> tuple[int, int]:
        """(memory tables that wait to be saved, files in level zero)."""
        return len(self.tables), len(self.manifest.levels[0]) if self.manifest.levels else 0

    # ------------------------------------------------------------ installing what was merged

    @unbroken
    def install_level_zero(self, task: LevelZero, files: Sequence[dict[str, Any]]) -> None:
        """Install ``files``, which have the table: the ledger is persisted up to its last sqn."""
        made = self._entries(files, 0)
        with self._named_or_gone(made):
            self._install(made, (), task.upto)
        self.oldest()

    @unbroken
    def install_made(self, entries: Sequence[LedgerEntry], upto: int) -> LedgerManifest:
        """Install files of level zero that were made elsewhere and are durable in the directory;
        the ledger is then persisted up to ``upto``. Returns the new manifest."""
        made = tuple(self._start_file(entry.name).of(entry) for entry in entries)
        self._install(made, (), upto)
        return self.manifest

    @unbroken
    def install_merge(self, task: Merge, result: dict[str, Any]) -> None:
        """Replace the inputs by the files that a job made. The inputs stay until retire()."""
        self.rows_merged += sum(entry.rows for entry in task.inputs)
        files = self._entries(result["files"], task.level)
        with self._named_or_gone(files):
            self._install(files, task.inputs, None, result["expired_ms"])
        self.delete_pending.replaced += [entry.file for entry in task.inputs]
        self._went_out(task)

    def _named_or_gone(self, made: Sequence[LedgerEntry]) -> AbstractContextManager[None]:
        return named_or_gone(
            [entry.file for entry in made],
            lambda: [entry.name for entry in self.manifest.entries],
        )

    def _went_out(self, task: Merge) -> None:
        first = task.inputs[0]
        if 0 < first.level < task.level:
            self._cursor[first.level] = first.last_key

    @unbroken
    def stays_expired(self, moment: int) -> None:
        """Make absent for good what expired up to ``moment``, ms UTC, inclusive."""
        self._install((), (), None, moment)

    @unbroken
    def retire(self, generation: int) -> None:
        """Note that views from ``generation`` on do without the files that merges replaced: see
        DeletePending."""
        self.delete_pending.retire(generation)

    @unbroken
    def install_move(self, task: Merge) -> None:
        """Move the inputs to another level; no byte is written but the manifest's record."""
        moved = tuple(replace(entry, level=task.level) for entry in task.inputs)
        self._install(moved, task.inputs, None)
        self._went_out(task)

    def _entries(self, files: Sequence[dict[str, Any]], level: int) -> tuple[LedgerEntry, ...]:
        self.bytes_written += sum(row["bytes"] for row in files)
        return tuple(LedgerEntry.of_job(row, level, self._start_file(row["name"])) for row in files)

    def _install(
        self,
        added: tuple[LedgerEntry, ...],
        removed: tuple[LedgerEntry, ...],
        upto: int | None,
        expired_ms: int = 0,
    ) -> None:
        change = self.manifest.encode_change(added, removed, upto, expired_ms)
        manifest = self.manifest.edit(added, removed, upto, expired_ms)
        try:
            self.change_log.append(change)
            self.manifest = manifest
            self.change_log.snapshot_if_due(manifest.encode)
        except StorageFull:
            raise  # nothing changed: the clerk tries again when there is room
        except OctavoError as error:
            self.failed = error
            raise

    @unbroken
    def sweep(self) -> int:
        """Delete the files that no live snapshot needs; return how many still wait."""
        return self.delete_pending.sweep()


def _reach(entries: Sequence[LedgerEntry]) -> tuple[bytes, bytes]:
    """The first and the last key of these files, both inclusive."""
    return min(entry.first_key for entry in entries), max(entry.last_key for entry in entries)
