"""The Penciller's clerk: saves level zero and merges the ledger's levels, one job at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from octavo.actors.compacting.giving_up import remove
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.opening.tags import NamedTag
from octavo.actors.penciller import LevelZero, Merge, Penciller
from octavo.actors.turns.messages import interruptible
from octavo.actors.turns.runtime import Ref, TurnActor
from octavo.actors.view import JournalView
from octavo.actors.worker import JobRunner, WorkerDied
from octavo.actors.writing import reserve
from octavo.files.errors import (
    AskTimeout,
    Closed,
    Corruption,
    StorageFailed,
    StorageFull,
    storage_error,
)
from octavo.files.journal.sparse_offsets import cut, stretch
from octavo.files.later import loading
from octavo.files.ledger import ledger_key
from octavo.files.ledger.few_maps import Told
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.level_sizes import MAX_FILE_BYTES, MAX_FILE_ROWS, MOST_SEARCHED
from octavo.manifest.small_files import MANY_SMALL

log = messages_of("octavo.clerk")

_ATTEMPTS = 3
_AGAIN_MS = 5000
"""Work that could not be done is tried again after so long, or by a push before that."""
_MOST_DOUBLED = 5
"""A merge whose workers are killed waits twice as long after each attempt, up to 160 s."""


class PencillerClerk(TurnActor):
    """Works on the pool while there is work; the job itself runs in the worker process."""

    def __init__(
        self,
        penciller: Ref[Penciller],
        inker: Ref[Inker],
        runner: JobRunner,
        clock_ms: Callable[[], int],
        on_change: Callable[[LedgerManifest, LevelZero | None], int],
        *,
        briefly: bool = False,
    ) -> None:
        super().__init__()
        self.penciller = penciller
        self.inker = inker
        self.runner = runner
        self.clock_ms = clock_ms
        self.on_change = on_change
        self.closing = False
        self.briefly = briefly
        """The store is closed again soon: begin nothing but what is asked for."""
        self._woken = False
        self._waits_ms = 0  # since when some work waits to be tried again; 0: none does
        self._killed = 0  # attempts to merge, in a row, whose workers were killed,
        self._killed_ms = 0  # and when the last one was
        self.damaged: list[str] = []  # journal records that could not go into the ledger
        self.recalculated: Mapping[int, NamedTag] = {}  # types that a rebuild works out anew

    def wake(self) -> None:
        """Have the clerk look for work soon. From any thread, O(1). Many calls send one message:
        whoever asks for the turn waits for one piece of work at most, not for one for each push."""
        if self._woken and self.waiting_messages:  # else memory was too short to begin the work,
            self.schedule()  # or to take the turn for it: again
        elif not self.briefly:
            self._woken = True
            try:
                self.actor_ref.send(PencillerClerk.work)
            except BaseException:  # an interrupt, or no memory: it may not have been sent
                self._woken = False
                raise

    def look_again(self) -> None:
        """Have work tried again, after a while, that found no room, whose workers were killed, or
        whose disk hung. In the Bookie's turn, every few hundred puts. O(1)."""
        if self._waits_ms and abs((now := self.clock_ms()) - self._waits_ms) >= _AGAIN_MS:
            self._waits_ms = now
            self.wake()

    @interruptible
    def work(self) -> None:
        """Do the most pressing piece of work, then come back for the next. On the pool."""
        self._woken = False  # first: a wake from here on needs another look
        if self.closing:
            return
        task = None
        try:
            task = self.penciller.call(Penciller.next_task)
            if task is None:
                self._waits_ms = self._killed = 0
                return
            if isinstance(task, Merge) and self._is_too_soon():
                self._waits_ms = self._waits_ms or self.clock_ms()
                return
            self.do(task)
        except (Closed, StorageFailed):
            return
        except Corruption:
            pass  # level zero is still saved
        except (StorageFull, WorkerDied, AskTimeout) as why:
            if not self._waits_ms:  # once, however often it is tried
                log.warning("%s: merging waits: %s", self.penciller.actor.directory, why)
            self._waits_ms = self.clock_ms()
            if isinstance(task, Merge):
                self._killed = self._killed + 1 if isinstance(why, WorkerDied) else 0
                self._killed_ms = self._waits_ms
            return
        self._waits_ms = 0
        if isinstance(task, Merge):
            self._killed = 0
        self.wake()

    def _is_too_soon(self) -> bool:
        """Whether a merge has to wait because workers were killed in it. Each attempt may use up
        memory and processor; what pushes need is done meanwhile."""
        pause_ms = _AGAIN_MS << min(self._killed - 1, _MOST_DOUBLED) if self._killed else 0
        return abs(self.clock_ms() - self._killed_ms) < pause_ms

    def do(self, task: LevelZero | Merge) -> None:
        """Do one job, from its inputs to the manifest. Raises what stopped it."""
        try:
            if isinstance(task, LevelZero):
                self._save(task)
            else:
                self._merge(task)
        except Corruption as damage:
            log.error("merging stopped; the next start rebuilds the ledger: %s", damage)
            self.penciller.call(Penciller.condemn, damage)
            raise
        except StorageFailed as failed:
            self._poison(failed)
            raise
        except OSError as error:
            penciller = self.penciller.actor
            told = storage_error(penciller.disk.reason(error), penciller.directory)
            if isinstance(told, StorageFailed):
                self._poison(told)
            raise told from error

    def _poison(self, failed: StorageFailed) -> None:
        """Refuse writes from now on: without merging, memory would grow with each of them."""
        log.error("%s: merging stopped: %s", self.penciller.actor.directory, failed)
        self.penciller.actor.failed = failed
        self.inker.call(Inker.poison, failed)

    def save_all(self) -> None:
        """Save every memory table that was pushed before this; merge nothing."""
        upto = self.penciller.call(Penciller.pushed_upto)
        while True:
            task = self.penciller.call(Penciller.next_task)
            if not isinstance(task, LevelZero) or task.upto > upto:
                return
            self.do(task)

    def _save(self, task: LevelZero) -> None:
        inker = self.inker.actor
        inker.make_durable(task.upto, self.DEADLINE_SECONDS)
        stem = self.penciller.call(Penciller.next_stem)
        for attempt in range(_ATTEMPTS):
            try:
                result = self._level_zero(task, f"{stem}-{attempt}")
                break
            except (FileNotFoundError, WorkerDied) as error:
                # A journal file was sealed, and so renamed, meanwhile; or the worker was killed.
                self._remove_left(f"{stem}-{attempt}-")
                if attempt == _ATTEMPTS - 1:
                    raise
                log.info("saving level zero again: %s", error)
        for damage in result["damaged"]:
            log.error("%s and skipped: its key reads as it was before, or as absent", damage)
            self.damaged.append(f"{damage} and skipped")
        self.damaged += result.get("noted", ())
        with unbroken:
            files = result["files"]
            self._install(files, Penciller.install_level_zero, task, files)
            self._installed(task)
        self.penciller.call(Penciller.sweep)
        reserve.put_by(inker.disk, inker.store)

    def _level_zero(self, task: LevelZero, stem: str) -> dict[str, Any]:
        """Run the job; its result. While a rebuild works out some types from their values, it runs
        right here, in the thread that opens the store, since their functions are the user's."""
        journal, penciller = self.inker.actor, self.penciller.actor
        # From where the ledger ends, even if the Penciller missed a table in between.
        since = min(task.since, penciller.manifest.persisted_sqn)
        parts, offsets = stretches(journal.view, since, task.upto)
        where: dict[str, Any] = {
            "ledger": penciller.directory,
            "stem": stem,
            "max_rows": MAX_FILE_ROWS,
            "max_bytes": MAX_FILE_BYTES,
        }
        if not self.recalculated:
            return self.runner.run(
                "level_zero", offsets, journal=journal.directory, parts=parts, **where
            )
        # Loaded only here: an opening should not wait for modules that mostly the worker needs.
        with unbroken, loading:
            from octavo.actors.opening.recalculation import recalculated
            from octavo.files.jobs import ledger_files
            from octavo.files.journal.journal_rows import concatenated

        damaged: list[str] = []
        rows = ledger_files.level_zero_rows(
            journal.disk,
            offsets,
            damaged,
            journal=journal.directory,
            parts=parts,
            without_tags=list(self.recalculated),
        )
        noted: list[str] = []
        anew = recalculated(journal.view, since, task.upto, self.recalculated, noted)
        # One run: the sqns of what was worked out lie among those of the rest, and files whose
        # sqns overlap must not overlap in keys.
        whole = [*rows, *(() if anew is None else (anew,))]
        run = [concatenated(whole)] if whole else []
        del whole, anew
        return {
            **ledger_files.write_sorted(penciller.disk, run, **where),
            "damaged": damaged,
            "noted": noted,
        }

    def _merge(self, task: Merge) -> None:
        if task.move:
            with unbroken:
                self.penciller.call(Penciller.install_move, task)
                self._installed(None)
        else:
            stem = self.penciller.call(Penciller.next_stem)
            result = self._merged(task, stem)
            with unbroken:
                self._install(result["files"], Penciller.install_merge, task, result)
                self._installed(None)
        self.penciller.call(Penciller.sweep)

    def _install(self, made: Sequence[dict[str, Any]], install: Any, *what: object) -> None:
        """Have the Penciller ``install`` the files of a job. If its turn does not come in time, the
        files are removed: the job is done again."""
        penciller = self.penciller.actor
        try:
            self.penciller.call(install, *what)
        except AskTimeout:
            remove(penciller.disk, [f"{penciller.directory}/{row['name']}" for row in made])
            raise

    def _installed(self, saved: LevelZero | None) -> None:
        generation = self.on_change(self.penciller.actor.manifest, saved)
        self.penciller.call(Penciller.retire, generation)

    def _levels(self, task: Merge) -> Sequence[Sequence[Told]]:
        """All files of the ledger, for a merge that meets index entries; none for any other, or if
        there are too many files."""
        index = bytes((ledger_key.INDEX,))
        meets = any(entry.first_key[:1] <= index <= entry.last_key[:1] for entry in task.inputs)
        manifest = self.penciller.actor.manifest
        if not meets or sum(map(len, manifest.levels)) > MOST_SEARCHED:
            return []
        return manifest.for_jobs()

    def _merged(self, task: Merge, stem: str) -> dict[str, Any]:
        for attempt in range(_ATTEMPTS):
            try:
                return self.runner.run(
                    "merge",
                    ledger=self.penciller.actor.directory,
                    stem=f"{stem}-{attempt}",
                    inputs=[entry.for_job() for entry in task.inputs],
                    basement=task.basement,
                    now_ms=self.penciller.actor.manifest.now_ms(self.clock_ms()),
                    max_rows=MAX_FILE_ROWS,
                    max_bytes=MAX_FILE_BYTES,
                    levels=self._levels(task),
                )
            except WorkerDied as error:
                self._remove_left(f"{stem}-{attempt}-")
                if self.closing:
                    raise Closed("the store is closing; it merges when it is opened") from None
                if attempt == _ATTEMPTS - 1:
                    raise
                log.info("merging again: %s", error)
        raise StorageFailed("no attempt to merge was made")

    def _remove_left(self, beginning: str) -> None:
        """Remove the files that a killed worker left, which no manifest will name."""
        penciller = self.penciller.actor
        try:
            for name in penciller.disk.listdir(penciller.directory):
                if name.startswith(beginning):
                    penciller.disk.unlink(f"{penciller.directory}/{name}")
        except OSError:
            pass  # the next start removes what stays


def stretch_end(view: JournalView, since: int, upto: int, records: int) -> int | None:
    """The sqn that ends a stretch of about ``records`` records in (since, upto], in no more files
    than a job may map; None if there is no record. O(log files)."""
    room, end = records, None
    for file, offsets, low, high in islice(_held(view, since, upto), MANY_SMALL):
        number, held = stretch(offsets, low, high - 1, room)
        end = file.base + number
        room -= held
        if room <= 0:
            break
    return end


def stretches(view: JournalView, since: int, upto: int) -> tuple[list[dict[str, Any]], bytes]:
    """What ledger_files.level_zero needs to read the records (since, upto]: (parts, offsets)."""
    parts, blobs = [], []
    for file, offsets, low, high in _held(view, since, upto):
        taken = cut(offsets, low, high)
        parts.append(taken.part(file.name, file.seed, file.base, low))
        blobs.append(taken.table)
    return parts, b"".join(blobs)


def _held(
    view: JournalView, since: int, upto: int
) -> Iterator[tuple[JournalFile, Sequence[int], int, int]]:
    """(file, its offsets, relative numbers [low, high)) of the records (since, upto]."""
    first = max(bisect_right(view.bases, since + 1) - 1, 0)
    for file in view.files[first:]:
        if file.base > upto:
            return
        offsets = file.offsets or file.ensure_open()[1]  # a sealed file is without its own
        low = max(since + 1 - file.base, 0)
        high = min(upto + 1 - file.base, len(offsets) - 1)
        if low < high:
            yield file, offsets, low, high
