"""The Inker's clerk: compacts the journal, one run of files at a time, and deletes the replaced
files once nobody reads them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.actors.compacting import joining, journal_install, scheduled, trimming
from octavo.actors.compacting.delete_pending import DeletePending
from octavo.actors.compacting.giving_up import named_or_gone, remove
from octavo.actors.compacting.waste import Waste
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.journal_start import started_file
from octavo.actors.opening.identity import Identity
from octavo.actors.opening.options import Options
from octavo.actors.penciller import Penciller
from octavo.actors.turns.runtime import Ref, TurnActor
from octavo.actors.view import View
from octavo.actors.worker import JobRunner, WorkerDied
from octavo.files.errors import (
    Busy,
    Closed,
    Corruption,
    OctavoError,
    StorageFailed,
    storage_error,
)
from octavo.files.journal.journal_names import scratch_name
from octavo.files.locks import new_lock
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.manifest.adoption import RANK_BITS
from octavo.manifest.consumers import Consumers
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry
from octavo.manifest.run_choice import Worth
from octavo.manifest.small_files import FEW_SMALL, SMALL

if TYPE_CHECKING:
    from octavo.actors.bookie import Bookie

log = messages_of("octavo.compaction")

SAMPLES = 192
EXPIRED_FOR_MS = 3_600_000
"""Compaction drops a put only so long after it expired: if the clock is set back by less, the put
is back in full."""
_ATTEMPTS = 3
_PATIENCE_SECONDS = 3600.0
"""Far more than one piece of scheduled work takes."""

_told: set[str] = set()
"""Damage that this process has logged: a program that opens a store for each commit would log it
each time."""


@dataclass(slots=True)
class Score:
    """What a sample of a file's records says, in percent of its bytes."""

    garbage: float
    hiding: float
    """Deletes that hide something older, and are no garbage while that is there."""
    squeezed: float  # what compression would save; on schedule nothing is rewritten for that alone


@dataclass(slots=True)
class Done:
    """What one step of a compaction did."""

    dropped: int = 0
    rewritten: list[str] = field(default_factory=list)
    damaged: bool = False
    """It did nothing, since one of the files is damaged; later steps leave that one out."""


class InkerClerk(TurnActor):
    """Works on schedule, or on the thread of whoever asked for a compaction. Its jobs have their
    own worker process, of lower priority, so that nothing else waits for them."""

    def __init__(
        self,
        inker: Ref[Inker],
        bookie: Ref[Bookie],
        runner: JobRunner,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        *,
        options: Options,
        identity: Identity,
        waste: Waste,
        consumers: Consumers,
    ) -> None:
        super().__init__()
        self.inker = inker
        self.bookie = bookie
        self.runner = runner
        runner.history = inker.actor.measures.jobs
        self.clock_ms = clock_ms
        self.monotonic = monotonic
        self.options = options
        self.worth = Worth(
            options.compact_single_percent, options.compact_run_percent, options.compact_run_length
        )
        self.strategies = identity.tags.strategy_numbers()
        self.trims = identity.head_only
        self.waste = waste
        self.consumers = consumers
        self.closing = False
        self.damaged: dict[str, str] = {}  # name of a file that is left as it is: why
        self.scores: dict[str, Score] = {}
        self.delete_pending = DeletePending(bookie.actor.register, waste.remove, log)
        self.dropped = 0  # records, since the opening
        self.whole_ledger: set[str] = set()  # files that trimming found wholly in the ledger
        self.trimmed = 0  # bytes of a head-only store's journal, since the opening
        self._ranks = 0
        self._busy = new_lock()
        self._looked = monotonic()
        self.looks = 0  # surveys on schedule
        self.small_came = FEW_SMALL - 1  # since the last look for small files; the first one looks
        self.joins_once_saved = False
        waste.sweep()

    @contextmanager
    def alone(self, patience: float = _PATIENCE_SECONDS) -> Iterator[None]:
        """Around a compaction that was asked for: meanwhile nobody else compacts. Waits for
        scheduled work under way. Not in a turn. Raises Busy, AskTimeout."""
        mine = False
        try:
            with unbroken:  # or an interrupt could leave the lock taken, with ``mine`` still False
                mine = self._busy.acquire(blocking=False)
            if not mine:
                raise Busy("the journal is being compacted already; call again when that is done")
            self.answer(patience)  # from now on scheduled work gives way
            yield
        finally:
            if mine:
                self._busy.release()
                self.rest()

    def rest(self) -> None:
        """End the worker process until there is another job. Not during one."""
        if not self.closing:
            self.runner.rest()

    # ------------------------------------------------------------ on schedule

    def saved(self) -> None:
        """Called when memory was saved: start scheduled work that is due, or in a head-only store
        trim the journal. The right moment, since only writes make garbage. O(1)."""
        if self.trims:
            self.actor_ref.send(trimming.trim_unasked)
            return
        if self.joins_once_saved:
            self.joins_once_saved = False
            self.actor_ref.send(joining.join_unasked)
        every = self.options.compact_every_seconds
        if every is not None and self.monotonic() - self._looked >= every:
            self._looked = self.monotonic()
            self.actor_ref.send(scheduled.work)

    def unasked(self, step: Callable[[InkerClerk], Done | None]) -> bool:
        """Do a scheduled step, unless a compaction was asked for; return whether there may be more
        to do. In this turn, so that whoever asks meanwhile waits for its end."""
        if self._busy.locked():
            return False
        try:
            done = step(self)
        except Closed:
            return False
        except (OctavoError, OSError) as error:
            log.warning("%s: compaction stopped: %s", self.inker.actor.directory, error)
            return False
        finally:
            self.rest()
        return done is not None and (bool(done.rewritten) or done.damaged)

    # ------------------------------------------------------------ steps, in turns

    def sealed(self) -> tuple[JournalEntry, ...]:
        """What the manifest says of every sealed file, oldest first."""
        return self.inker.actor.manifest.entries

    def drop_holders(self) -> None:
        """Drop the consumers that hold back too much, or for too long. Before a compaction."""
        self.consumers.drop_holders(self.bookie.actor.view.ledger.persisted_sqn, self.sealed())

    def eligible(self) -> tuple[JournalEntry, ...]:
        """Undamaged sealed files that are wholly in the ledger and that no consumer needs, oldest
        first."""
        needed = self.consumers.lowest()
        return tuple(entry for entry in self.whole() if entry.last_sqn <= needed)

    def whole(self) -> tuple[JournalEntry, ...]:
        """Undamaged sealed files of which the ledger has every record, oldest first."""
        persisted = self.bookie.actor.view.ledger.persisted_sqn
        return tuple(entry for entry in self.undamaged() if entry.last_sqn <= persisted)

    def undamaged(self) -> tuple[JournalEntry, ...]:
        """Sealed files, oldest first, without those that were found damaged."""
        return tuple(entry for entry in self.sealed() if entry.name not in self.damaged)

    def clean_below(self) -> dict[str, int]:
        """By sealed file: the sqn as of which no older file has a superseded put. O(files)."""
        inker = self.inker.actor
        sealed = {entry.name for entry in self.sealed()}
        bases = (file.base for file in inker.view.files if file.name not in sealed)
        return inker.manifest.clean_below(min(bases, default=MAX_SQN))

    def survey(self, one_in: int = 1) -> dict[str, Score]:
        """Score the eligible files that have no score, and one in ``one_in`` of the others again.
        Returns all scores. In this turn. One job, O(files x samples)."""
        eligible, below = self.eligible(), self.clean_below()
        there = {entry.name for entry in eligible}
        self.scores = {
            name: score
            for number, (name, score) in enumerate(self.scores.items(), self.looks)
            if name in there and number % one_in
        }
        files = [
            {**entry.for_job(), "clean_below": below[entry.name]}
            for entry in eligible
            if entry.name not in self.scores
        ]
        with self.held() as view:
            result = self._job(
                "score",
                view,
                files=files,
                samples=SAMPLES,
                salt=secrets.randbits(64),
                compresses=self.options.compression == "lz4",
            )
        for row in result["scores"]:
            if "wrong" in row:
                self._leave_out(row["name"], row["wrong"])
                continue
            parts = (row["total"] - row["kept"], row["hiding"], row["squeezed"])
            self.scores[row["name"]] = Score(*(100.0 * n / max(row["total"], 1) for n in parts))
        return self.scores

    @contextmanager
    def deltas(self, files: Sequence[JournalEntry]) -> Iterator[tuple[str | None, dict[str, int]]]:
        """Survey the key deltas of these files: (name of a scratch file on them, or None if no type
        retains any; bytes of stale ones by file). See key_deltas.survey."""
        if "retain" not in self.strategies.values():
            yield None, {}
            return
        inker = self.inker.actor
        scratch = scratch_name()
        try:
            with self.held() as view:
                found = self._job(
                    "survey_deltas",
                    view,
                    files=[entry.for_job() for entry in files],
                    scratch=scratch,
                )
            yield scratch, found["stale"]
        finally:
            with suppress(FileNotFoundError):
                inker.disk.unlink(f"{inker.directory}/{scratch}")

    def rewrite(self, run: Sequence[JournalEntry], deltas: str | None = None) -> Done:
        """Replace a run of files by what is live in them. In this turn. ``deltas``: a scratch
        file on their key deltas; None: one is made for these files."""
        if deltas is None:
            with self.deltas(run) as (scratch, _):
                return self.replace(run, scratch)
        return self.replace(run, deltas)

    def replace(
        self, run: Sequence[JournalEntry], deltas: str | None = None, *, drops: bool = True
    ) -> Done:
        """As ``rewrite``. Without ``drops``: by all that is in them, so no consumer matters."""
        inker = self.inker.actor
        squeezed = any(e.name in self.scores and self.scores[e.name].squeezed for e in run)
        small = sum(entry.bytes < inker.roll_size // SMALL for entry in run)
        with self.held() as view:
            persisted = view.ledger.persisted_sqn
            result = self._job(
                "compact",
                view,
                run=[entry.for_job() for entry in run],
                persisted_sqn=persisted,
                clean_below=self.clean_below()[run[0].name],
                horizon=inker.manifest.horizon,
                epoch=inker.epoch,
                each=lambda: {"rank": self._next_rank(), "seed": secrets.randbits(64)},
                roll_size_bytes=inker.roll_size,
                deltas=deltas,
                always=small > 1 or squeezed,
                compresses=self.options.compression == "lz4",
                drops=drops,
            )
        if "damaged" in result:
            self._leave_out(result["damaged"], result["wrong"])
            return Done(damaged=True)
        clean = persisted if result["clean"] else 0
        names = [entry.name for entry in run]
        if not result["files"]:
            if clean:
                self.inker.call(journal_install.mark_clean, names, clean)
            return Done()
        with self.consumers.lock:
            if drops and self.consumers.lowest() < run[-1].last_sqn:
                # a consumer that came meanwhile needs records of these files
                remove(inker.disk, [f"{inker.directory}/{row['name']}" for row in result["files"]])
                return Done()
            self._install(run, result, clean)
        dropped = result["records"] - result["kept"]
        self.dropped += dropped
        return Done(dropped, names)

    def _next_rank(self) -> int:
        """A rank above all before; two attempts never share one."""
        self._ranks += 1
        return (self.inker.actor.manifest.version + 1 << RANK_BITS) + self._ranks

    @unbroken
    def _install(self, run: Sequence[JournalEntry], result: dict[str, Any], clean: int) -> None:
        inker = self.inker.actor
        added = []
        for row in result["files"]:
            file = started_file(inker, row["name"], row["base_sqn"], row["seed"])
            file.opened_sealed()
            added.append(JournalEntry(**row, clean_sqn=clean, file=file))
        names = [entry.name for entry in run]
        files = [entry.file for entry in added]
        with named_or_gone(files, lambda: [entry.name for entry in inker.manifest.entries]):
            journal_install.stays_expired(self.bookie, result["expired_ms"])
            horizon = result["highest_dropped"]
            old = self.inker.call(journal_install.replace_files, names, added, horizon)
        self.retire(old)

    @unbroken
    def retire(self, files: Sequence[JournalFile]) -> None:
        """Have the view do without these files, as the Inker does by now; they go when no snapshot
        needs them. In this turn."""
        self.delete_pending.replaced += files
        self.delete_pending.retire(self.bookie.call(journal_install.journal_replaced))
        self.sweep()

    def _leave_out(self, name: str, why: str) -> None:
        self.damaged[name] = why
        if why not in _told:
            _told.add(why)
            log.error("left as it is by compaction: %s", why)

    @contextmanager
    def held(self) -> Iterator[View]:
        """Around work on the newest view: its files stay meanwhile. Raises Closed, Corruption."""
        bookie = self.bookie.actor
        if self.closing or bookie.closed:
            raise Closed("the store is closing")
        if bookie.penciller.actor.condemned:
            follows = "the next start rebuilds the ledger. Until then nothing is compacted"
            if self.trims:
                follows = "nothing is trimmed, so that no more is lost"
            raise Corruption(
                bookie.penciller.actor.directory, 0, f"a ledger file is damaged: {follows}"
            )
        number = next(bookie.register.numbers)
        try:
            yield self.bookie.call(journal_install.leased, number)
        finally:
            bookie.ended.append(number)  # in case a Ctrl-C comes before the next line is done
            bookie.register.release(number)
            if bookie.penciller.actor.delete_pending.waiting:
                bookie.penciller.send(Penciller.sweep)

    def _job(self, job: str, view: View, each: Any = dict, **arguments: Any) -> dict[str, Any]:
        """Run a job on the journal as the ledger of ``view`` sees it. See ``job``."""
        now_ms = view.ledger.now_ms(self.clock_ms() - EXPIRED_FOR_MS)
        return self.job(
            job, each, journal=self.inker.actor.directory, levels=view.ledger.for_jobs(),
            now_ms=now_ms, strategies=self.strategies, **arguments,
        )  # fmt: skip

    def job(self, job: str, each: Any = dict, **arguments: Any) -> dict[str, Any]:
        """Run a job, again if its worker dies; return its result. ``each()`` makes the arguments
        that differ between attempts. Raises what stopped it."""
        bookie, inker = self.bookie.actor, self.inker.actor
        ledger = bookie.penciller.actor.directory
        for attempt in range(_ATTEMPTS):
            try:
                return self.runner.run(job, ledger=ledger, **each(), **arguments)
            except WorkerDied as error:
                gone = self.delete_pending
                waiting = [*gone.replaced, *(file for _, file in gone.waiting)]
                journal_install.remove_left(inker, waiting, arguments)
                if self.closing:
                    raise Closed("the store is closing; what was compacted stays so") from None
                if attempt == _ATTEMPTS - 1:
                    raise
                log.info("compacting again: %s", error)
            except Corruption as damage:
                bookie.penciller.send(Penciller.reported, damage)
                raise
            except OSError as error:
                told = storage_error(inker.disk.reason(error), inker.directory)
                raise told from error
        raise StorageFailed("no attempt to compact was made")

    @unbroken
    def sweep(self) -> int:
        """Delete the files that no live snapshot needs; return how many still wait."""
        left = self.delete_pending.sweep()
        self.waste.sweep()
        return left

    def close(self) -> None:
        """Cut the current job short and do nothing more. Not in a turn. Waits for a job that runs
        on a thread, however long: the store is unlocked after this; then for the current step."""
        self.closing = True
        self.runner.cut_off()
        self.runner.close()
        self.answer(None)
        self.consumers.close()
