"""Compaction on demand: rewrites every file with much to gain, oldest first, on the caller's
thread.

Oldest first, because a delete can go only when no older file holds what it hides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.actors.closed_meanwhile import or_closed
from octavo.actors.compacting import journal_install, trimming
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk, Score
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.actors.progress import Progress, untold
from octavo.files.errors import StorageFailed, StorageFull
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry
from octavo.manifest.run_choice import MAX_RUN_SQNS, REWRITE_PERCENT
from octavo.manifest.small_files import MANY_SMALL, SMALL

HIDING_PERCENT = 5.0
"""If deletes make up more of the journal than this, it is worth finding out exactly which older
files still hold what they hide."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did.

    ``files_before``: Sealed journal files before it.
    ``files_after``: Sealed journal files after it.
    ``bytes_before``: Bytes of the sealed journal files before it.
    ``bytes_after``: Their bytes after it.
    ``records_dropped``: Records that no file has any more.
    ``skipped``: Files left as they are because they are damaged, with the damage.
    ``seconds``: How long it took.
    """

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    records_dropped: int
    skipped: tuple[str, ...]
    seconds: float


@or_closed
def compact(clerk: InkerClerk, progress: Progress = untold) -> Compacted:
    """See Store.compact. Not in a turn. Raises Busy, Closed, StorageFull, StorageFailed,
    Corruption (of the ledger)."""
    with clerk.alone():
        began = clerk.monotonic()
        upto = clerk.inker.actor.last_sqn
        full = _settled(clerk)
        before = clerk.sealed()
        dropped = 0
        while True:
            more, older, left = _pass(clerk, progress, upto)
            dropped += more
            full = full or left
            if full is None:
                break
            if not older:  # newer garbage does not count: writers make more of it all the time
                raise full
            full = _settled(clerk)  # the space given back may be room enough now
        clerk.actor_ref.call(InkerClerk.sweep)
        after = clerk.sealed()
        there = {entry.name for entry in after}
        return Compacted(
            len(before),
            len(after),
            sum(entry.bytes for entry in before),
            sum(entry.bytes for entry in after),
            dropped,
            tuple(why for name, why in clerk.damaged.items() if name in there),
            clerk.monotonic() - began,
        )


@or_closed
def trim(clerk: InkerClerk) -> int:
    """See Store.trim. Not in a turn. Raises as ``compact``."""
    with clerk.alone():
        before = clerk.trimmed
        full = _settled(clerk)
        clerk.actor_ref.call(trimming.trim)
        if full is not None:
            if clerk.trimmed == before:
                raise full
            settle(clerk)  # the space given back may be room enough
            clerk.actor_ref.call(trimming.trim)
        return clerk.trimmed - before  # also counts what was trimmed unasked as memory was saved


def settle(clerk: InkerClerk) -> None:
    """Have memory saved and the active file sealed."""
    try:
        clerk.bookie.call(journal_install.rolled)
    except OSError as error:  # nothing was changed yet, so the store goes on
        raise StorageFailed(str(clerk.inker.actor.disk.reason(error))) from error
    saver = clerk.bookie.actor.clerk
    if saver is not None:
        saver.call(PencillerClerk.save_all)
    seal_waiting(clerk.inker.actor)


def seal_waiting(inker: Inker, patience: float | None = None, upto: int = MAX_SQN) -> None:
    """Have the rolled files that begin at or below the sqn ``upto`` sealed, as far as that works.
    Not in the turns of the Inker and its files; ``patience``: how long to wait for each of those
    turns, in seconds."""
    for _ in range(2 * len(inker.unsealed) + 2):
        waiting = [file for file in inker.unsealed if file.base <= upto]
        if not waiting or inker.failed is not None:
            return
        inker.actor_ref.call(Inker.seal_next)
        for actor in (waiting[0], inker):  # their turns handle the messages sent to them
            actor.answer(patience)


def _settled(clerk: InkerClerk) -> StorageFull | None:
    """As ``settle``, but returns the error if there was no room for it."""
    try:
        settle(clerk)
    except StorageFull as full:
        return full
    return None


def _pass(clerk: InkerClerk, progress: Progress, upto: int) -> tuple[int, int, StorageFull | None]:
    """Go through all files once, oldest first. Returns (records dropped; those of them in files up
    to the sqn ``upto``; the error if files were left as they are, since there was no room for their
    live records)."""
    clerk.drop_holders()
    scores = clerk.actor_ref.call(InkerClerk.survey)
    entries = clerk.eligible()
    with clerk.deltas(entries) as (deltas, stale):
        _count_stale(scores, entries, stale)
        return _rewritten(clerk, progress, upto, scores, entries, deltas)


def _count_stale(
    scores: dict[str, Score], entries: Sequence[JournalEntry], stale: dict[str, int]
) -> None:
    """Add stale key deltas to the scores as garbage. ``stale``: their bytes, by file."""
    for entry in entries:
        if entry.name in scores and entry.name in stale:
            scores[entry.name].garbage += 100.0 * stale[entry.name] / max(entry.bytes, 1)


def _rewritten(
    clerk: InkerClerk,
    progress: Progress,
    upto: int,
    scores: dict[str, Score],
    entries: Sequence[JournalEntry],
    deltas: str | None,
) -> tuple[int, int, StorageFull | None]:
    total = sum(entry.bytes for entry in entries) or 1
    hiding = sum(scores[e.name].hiding * e.bytes for e in entries if e.name in scores) / total
    bound = 0.0 if hiding > HIDING_PERCENT else REWRITE_PERCENT
    dropped = older = done = position = 0
    most: int | None = None  # files to rewrite at a time
    full = None
    while left := _from(clerk, position):
        progress(left[0].name, min(done, total), total)
        run = next_run(clerk, left, scores, bound)[:most]
        if run:
            try:
                found = clerk.actor_ref.call(InkerClerk.rewrite, run, deltas)
            except StorageFull as none:
                if len(run) > 1:  # one by one: each then goes before the next is rewritten
                    most = 1
                    continue
                full = none
            else:
                if found.damaged:
                    continue  # again, without the damaged file
                dropped += found.dropped
                older += found.dropped if run[-1].last_sqn <= upto else 0
        run = run or left[:1]
        done += sum(entry.bytes for entry in run)
        position = run[-1].last_sqn + 1
    progress("done", total, total)
    return dropped, older, full


def _from(clerk: InkerClerk, sqn: int) -> list[JournalEntry]:
    """The sealed files from this sqn on, at most as many as one run may have. O(log files)."""
    manifest = clerk.inker.actor.manifest
    first = bisect_left(manifest.bases, sqn)
    return list(manifest.entries[first : first + MANY_SMALL])


def next_run(
    clerk: InkerClerk, entries: Sequence[JournalEntry], scores: dict[str, Score], bound: float
) -> list[JournalEntry]:
    """The run of files, beginning with the first of these, to be rewritten together; [] if that one
    is to stay. O(these), and O(files) for each that has deletes.
    A run may exceed the usual length if together its files make no more than one. Deletes count as
    garbage if everything older is clean. A run ends before a file without a score, since the new
    files cover all sqns of the run."""
    roll_size = clerk.inker.actor.roll_size
    small = roll_size // SMALL
    together = 0
    run: list[JournalEntry] = []
    dirty = False
    for number, entry in enumerate(entries):
        together += entry.bytes
        if number >= clerk.worth.run_length and together > roll_size:
            break
        score = None if entry.name in clerk.damaged else scores.get(entry.name)
        if score is None or (run and entry.last_sqn - run[0].base_sqn >= MAX_RUN_SQNS):
            break
        garbage = score.garbage + score.squeezed
        if score.hiding and entry.base_sqn <= clerk.clean_below()[entries[0].name]:
            garbage += score.hiding
        following = entries[number + 1 : number + 2]
        merged = entry.bytes < small and (
            bool(run) or any(other.bytes < small for other in following)
        )
        if garbage <= bound and not merged:
            break
        dirty = dirty or garbage > bound
        run.append(entry)
    return run if dirty or len(run) > 1 else []
