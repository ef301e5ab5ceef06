"""Commits of jobs: takes in files that a job made elsewhere, all of them at once or none.

Memory is saved and the active file sealed; the job's files are linked into journal and ledger under
names that no manifest knows; then one change of the journal's manifest, which brings the files and
the job's name, decides. A crash before it leaves links that the next start removes. A crash between
it and the ledger's change leaves a ledger that lacks those sqns; the next start makes it up from
the journal, as after any crash. Writers wait for a small save, not for the job's size.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from octavo.actors.closed_meanwhile import or_closed
from octavo.actors.compacting import compaction, joining
from octavo.actors.compacting.giving_up import for_certain, remove
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.journal_start import started_file
from octavo.actors.memory_table import MemoryTable
from octavo.actors.penciller import Penciller
from octavo.actors.turns.runtime import TurnActor
from octavo.actors.view import JournalView
from octavo.files.argument_checks import shown, to_whole
from octavo.files.errors import (
    AskTimeout,
    Busy,
    Corruption,
    Misuse,
    OctavoError,
    StorageFailed,
    StorageFull,
    storage_error,
)
from octavo.files.handover import staged_files, staging
from octavo.files.journal.journal_names import SEALED, name_of
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.manifest import commits
from octavo.manifest.commits import Commit
from octavo.manifest.journal_manifest import JournalEntry
from octavo.manifest.ledger_entry import LedgerEntry

if TYPE_CHECKING:
    from octavo.actors.opening.startup import Running
    from octavo.files.door.disk import Disk
    from octavo.files.handover.staging import Attempt

log = messages_of("octavo.ingest")

_TRIES = 6
_POLITE_TRIES = 2
"""The first tries, in which writers are not kept waiting while large files are sealed."""
_PATIENCE_SECONDS = 600.0
_LAST_BATCH = (1 << 63) - 1
_LONGEST_STREAM = commits.MAX_NAME_BYTES - len("stream ")


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a commit brought, now or when it was first made.

    ``first_sqn``: The first sequence number that it took.
    ``last_sqn``: The last one, inclusive; below ``first_sqn`` if it brought nothing.
    ``repeated``: Whether it had been made before, so that nothing was done now. Also true if the
        store's owner made it for this very call of ``octavo.commit``, and was killed before it
        could answer.
    """

    first_sqn: int
    last_sqn: int
    repeated: bool


@or_closed
def ingest(
    running: Running,
    job: str,
    attempts: Sequence[str],
    *,
    stream: str = "",
    batch: int = 0,
    wanted: Callable[[], bool] | None = None,
) -> Ingested:
    """Take in the named finished attempts of a job; anything else in its folder is removed.

    Their records get sqns of their own, and are newer than all that is there. If the job, or a
    batch of ``stream`` with this number or a higher one, was committed before, the answer of then
    is given. ``wanted`` is asked at the last moment, in the turns; if it says no, nothing is taken
    in. Not in a turn. Raises Misuse, Corruption (nothing was taken in), Busy, AskTimeout (it was
    not wanted), StorageFull, StorageFailed (reopen; a commit that is repeated then does the right
    thing), Closed.
    """
    attempts, batch = checked(job, attempts, stream, batch)
    name = f"stream {stream}" if stream else f"job {job}"
    disk, path = running.disk, running.path
    again = done = _done(running.inker.actor, name, batch)
    if done is None:
        try:
            done = _taken_in(running, job, attempts, name, batch, wanted)
        except (Misuse, Corruption):
            again = done = _done(running.inker.actor, name, batch)
            if done is None:
                raise
            # another thread took the attempts in meanwhile, and removed their files
    else:
        _tell_gap(path, running.inker.actor.manifest.commits, name, batch)
    answer = Ingested(done.first_sqn, done.last_sqn, again is not None or done.time_ms < 0)
    joining.came(running.inker_clerk.actor)
    only = attempts if stream and answer.repeated else None
    _tidy(disk, path, job, only, running.inker.actor.clock_ms())
    return answer


def _taken_in(
    running: Running,
    job: str,
    attempts: Sequence[str],
    name: str,
    batch: int,
    wanted: Callable[[], bool] | None,
) -> Commit:
    """Check that the attempts are whole, then commit them. Returns what ``_Taking.run`` does."""
    disk, path = running.disk, running.path
    if running.identity.head_only:
        raise Misuse("a head-only store takes in no files: it keeps values in its ledger")
    if len(set(attempts)) != len(attempts):
        raise Misuse(f"attempts={list(attempts)!r}: one is named twice")
    where = staging.folder(path, job)
    try:
        named = [staging.read_attempt(disk, path, job, attempt) for attempt in attempts]
        for attempt in named:
            staged_files.check(disk, where, attempt)
    except OSError as error:
        raise storage_error(error, where) from error
    _tell_gap(path, running.inker.actor.manifest.commits, name, batch)
    return _Taking(running, where, named, name, batch, wanted).run()


def _tell_gap(path: str, made: Sequence[Commit], name: str, batch: int) -> None:
    """Warn if batches of a stream are missing here, or seen again. Batches went elsewhere, or the
    store was restored to an earlier state than the stream's checkpoint knows; or the checkpoint is
    an earlier one."""
    newest = max((commit.number for commit in made if commit.name == name), default=-1)
    if newest < 0 < batch:
        log.warning(
            "%s: %s begins here with batch %d; earlier ones went elsewhere", path, name, batch
        )
    elif newest + 1 < batch:
        log.warning(
            "%s: %s goes on with batch %d after %d; those between had no rows, or went elsewhere",
            path, name, batch, newest,
        )  # fmt: skip
    elif batch < newest:
        log.warning(
            "%s: %s is at batch %d already, so batch %d is dropped: its query seems to have begun "
            "from an earlier checkpoint", path, name, newest, batch,
        )  # fmt: skip


def _done(inker: Inker, name: str, batch: int) -> Commit | None:
    """The commit that did this before, or None. If the journal has failed, raises that error: it
    may know a commit whose records memory lacks, or whose change is not durable; only a reopening
    tells which."""
    if inker.failed is not None:
        raise inker.failed
    return commits.found(inker.manifest.commits, name, batch)


def checked(job: object, attempts: object, stream: object, batch: object) -> tuple[list[str], int]:
    """Check the arguments of a commit; returns attempts and batch as plain values. Raises Misuse,
    also for what is not a valid name."""
    staging.checked_name("job_id", job)
    if isinstance(attempts, str) or not isinstance(attempts, Sequence):
        raise Misuse(f"attempts={shown(attempts)}: allowed is a list of their names")
    names = [staging.checked_name("attempt", attempt) for attempt in attempts]
    try:
        wrong = not isinstance(stream, str) or len(stream.encode()) > _LONGEST_STREAM
    except UnicodeEncodeError:
        wrong = True
    if wrong:
        raise Misuse(f"stream={shown(stream)}: allowed is text of at most {_LONGEST_STREAM} bytes")
    most = f"are numbers from 0 to {_LAST_BATCH}"
    return names, to_whole("batch", batch, most, 0, _LAST_BATCH)


def _tidy(disk: Disk, path: str, job: str, only: Sequence[str] | None, now_ms: int) -> None:
    """Remove what a job left in staging, and what others left that were killed long ago, since a
    store may be open for months. ``only``: remove what these attempts left: when a stream's batch
    is asked for again, attempts of its next batch may be there already."""
    try:
        if only is not None:
            return staging.drop(disk, path, job, only)
        staging.empty(disk, path, job)
        for gone in staging.sweep(disk, path, now_ms):
            log.warning("%s: job %s was never committed; its files are removed", path, gone)
    except OSError as error:
        log.warning("left-overs of job %s stay in staging for now: %s", job, error)


@contextmanager
def _turns(*actors: TurnActor) -> Iterator[None]:
    """Hold the turns of these actors, taken in this order."""
    taken = 0
    try:
        for actor in actors:
            actor.enter(_PATIENCE_SECONDS)
            taken += 1
        yield
    finally:
        _leave(actors, taken)


def _leave(actors: Sequence[TurnActor], taken: int) -> None:
    """Let go of the turns of the first ``taken`` actors: of all of them, even if there is no memory
    for what one of them has to do then."""
    if taken:
        try:
            actors[taken - 1].leave()
        finally:
            _leave(actors, taken - 1)


class _Taking:
    """One commit under way."""

    def __init__(
        self,
        running: Running,
        where: str,
        attempts: Sequence[Attempt],
        name: str,
        batch: int,
        wanted: Callable[[], bool] | None,
    ) -> None:
        self.disk = running.disk
        self.where = where
        self.journals = [journal for attempt in attempts for journal in attempt.journals]
        self.name = name
        self.batch = batch
        self.wanted = wanted
        self.inker_clerk = running.inker_clerk.actor
        self.clerk = running.clerk.actor
        self.bookie = running.bookie.actor
        self.inker = running.inker.actor
        self.penciller = running.penciller.actor
        self._linked: list[str] = []
        # Made ahead, since there may be no memory for it later.
        self._in_doubt = StorageFailed(f"{name} may be committed; reopen the store")

    def run(self) -> Commit:
        """Make the commit and return it. If another thread made it first, returns that one, with a
        negative ``time_ms``."""
        for tried in range(_TRIES):
            compaction.settle(self.inker_clerk)  # the long part, while others write
            with unbroken, _turns(self.clerk, self.bookie):
                if self.bookie.closed or self.inker.active is None:
                    raise self.bookie.stopped_error()
                done = _done(self.inker, self.name, self.batch)
                if done is not None:
                    return replace(done, time_ms=-1)
                if self.inker.unsealed and tried < _POLITE_TRIES:
                    continue  # a writer was quicker: wait for its file outside the turns
                # Now in the Bookie's turn, so that writers add no more files.
                compaction.seal_waiting(self.inker, _PATIENCE_SECONDS)
                if self.inker.unsealed:
                    continue
                if self._save_memory():
                    if self.wanted is not None and not self.wanted():
                        raise AskTimeout(f"{self.name}: nobody waits for it any more")
                    commit = self._take_in()
                    break
        else:
            raise Busy(f"{self.name}: the journal's newest files are not sealed yet; try again")
        self.clerk.wake()
        return commit

    def _save_memory(self) -> bool:
        """In the turns of clerk and Bookie: save memory in the ledger. Returns whether memory is
        empty then: it is, unless no file could hold what it has."""
        bookie, penciller = self.bookie, self.penciller
        bookie.push()
        penciller.answer(None)  # handles the messages sent to it
        while (task := penciller.actor_ref.call(Penciller.oldest)) is not None:
            with self._told_here():
                self.clerk.do(task)
        if bookie.view.frozen:  # the Bookie may not have been told of earlier saves
            self._know_ledger()
        return not bookie.view.frozen and not bookie.view.recent.rows

    def _know_ledger(self) -> int:
        """In the Bookie's turn: give its view the newest ledger, and keep in memory only what that
        lacks. Returns the generation of the view."""
        bookie, ledger = self.bookie, self.penciller.manifest
        generation = bookie.view.generation + 1
        bookie.view = replace(
            bookie.view, frozen=bookie.not_in(ledger), ledger=ledger, generation=generation
        )
        return generation

    @contextmanager
    def _told_here(self) -> Iterator[None]:
        """A context in which the clerk's new ledgers reach the Bookie at once: this thread is in
        the Bookie's turn, so no message would."""
        told = self.clerk.on_change
        self.clerk.on_change = lambda manifest, saved: self._know_ledger()
        try:
            yield
        finally:
            self.clerk.on_change = told

    # ------------------------------------------------------------ the commit

    def _take_in(self) -> Commit:
        inker = self.inker
        with _turns(inker):
            self._seal_active()
            base = inker.last_sqn + 1
            count = sum(journal.count for journal in self.journals)
            commit = Commit(self.name, self.batch, base, base + count - 1, inker.clock_ms())
            try:
                entries, ledger = self._linked_files(base)
                if count:
                    inker.begin_at(base + count)
                edited = inker.manifest.edit(entries, commits=(commit,))
            except BaseException as error:
                remove(self.disk, self._linked)
                if isinstance(error, OSError):
                    raise storage_error(error, self.where) from error
                raise
            try:
                inker.commit(edited)
            except BaseException as error:
                if for_certain(error):  # it is not in the log
                    remove(self.disk, self._linked)
                    raise
                failed = error if isinstance(error, StorageFailed) else self._in_doubt
                inker.poison(failed)  # the next start finds out whether it is in the log
                raise
            if count:
                self._show(entries, ledger, base + count - 1)
        return commit

    def _seal_active(self) -> None:
        """In the Inker's turn: roll the active file if it has records, and seal it at once, so that
        the manifest knows all that is older than the job's files. It is small."""
        inker = self.inker
        active = inker.active
        if active is not None and len(active.offsets) > 1:
            inker._roll(inker.last_sqn + 1)
            active.enter()
            try:
                entry = active.seal_now(inker.runner)
            except OSError as error:  # the file stays as it is; sealing it is tried again later
                raise storage_error(error, active.path) from error
            except StorageFailed as failed:
                inker.poison(failed)  # at once: a later fsync that succeeds would mean nothing
                raise
            finally:
                active.leave()
            inker.sealed(active, entry)
            if inker.unsealed:
                raise StorageFull(f"{active.path} cannot be entered in the manifest")

    def _linked_files(self, base: int) -> tuple[list[JournalEntry], list[LedgerEntry]]:
        """Link the job's files, durably, under names of the store's own. Returns their manifest
        entries; their records begin at ``base``."""
        penciller = self.penciller
        with _turns(penciller):
            stem = penciller.next_stem()
        entries: list[JournalEntry] = []
        tables: list[LedgerEntry] = []
        for journal in self.journals:
            name = name_of(base, journal.seed, SEALED)
            self._link(journal.name, f"{self.inker.directory}/{name}")
            last_sqn = base + journal.count - 1
            entry = JournalEntry(name, base, last_sqn, journal.count, journal.bytes, journal.seed)
            entries.append(entry)
            for ledger in journal.ledgers:
                name = f"{stem}-{len(tables):06x}.sst"
                self._link(ledger.name, f"{penciller.directory}/{name}")
                tables.append(
                    replace(
                        LedgerEntry.of_job(asdict(ledger)),
                        name=name,
                        min_sqn=base + ledger.min_sqn,
                        max_sqn=base + ledger.max_sqn,
                        sqn_base=base,
                    )
                )
            base += journal.count
        self.disk.sync_dir(self.inker.directory)
        self.disk.sync_dir(penciller.directory)
        return entries, tables

    def _link(self, name: str, target: str) -> None:
        path = f"{self.where}/{name}"
        self._linked.append(target)  # before the link is made: after it, memory might be short
        try:
            self.disk.link(path, target)
        except FileNotFoundError:  # whoever staged it removed it
            raise Corruption(path, 0, "the file is missing") from None
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            raise Misuse(f"{path} is on another file system than the store") from None

    def _show(
        self, entries: Sequence[JournalEntry], ledger: Sequence[LedgerEntry], last: int
    ) -> None:
        """In the turns of Bookie and Inker, once the commit is durable: let readers see it."""
        bookie, inker = self.bookie, self.inker
        try:
            files: list[JournalFile] = []
            for entry in entries:
                file = started_file(inker, entry.name, entry.base_sqn, entry.seed)
                file.opened_sealed()
                files.append(file)
            actors = {file.name: file for file in files}
            inker.manifest = replace(
                inker.manifest,
                entries=tuple(
                    replace(entry, file=actors[entry.name]) if entry.name in actors else entry
                    for entry in inker.manifest.entries
                ),
            )
            inker.view = JournalView.of((*inker.view.files, *files))
            manifest = self.penciller.actor_ref.call(Penciller.install_made, ledger, last)
            bookie.view.recent.frozen = True  # it is empty, and a snapshot may still look at it
            view = replace(
                bookie.view,
                recent=MemoryTable(last),
                ledger=manifest,
                journal=inker.view,
                generation=bookie.view.generation + 1,
            )
            bookie.taken_in(view, last)
        except BaseException as error:
            # The journal has the commit, but memory or ledger does not: no write may follow.
            inker.poison(self._in_doubt)
            if isinstance(error, OctavoError | OSError):
                raise self._in_doubt from error  # StorageFull would say that nothing is kept
            raise
