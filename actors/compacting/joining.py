"""Joins small neighbouring journal files, so that there are never many.

Each commit of a job makes files of its own, however little they hold, and so does whatever has the
journal go on in a new file: a publishing, a backup, a kill. And each file costs everything that
looks at all of them: an opening, a backup, a commit, a pass of Spark.

Above the horizon, joining drops nothing: the change feed and earlier states stay as they were. Up
to it, where no feed is complete any more, the files are compacted like any others, which also ends
the earlier states that could be restored until then.

These functions run in the turn of the Inker's clerk, except those that say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.actors.turns.messages import interruptible
from octavo.manifest.run_choice import countable
from octavo.manifest.small_files import FEW_SMALL, SMALL, small_run

if TYPE_CHECKING:
    from octavo.actors.bookie import Bookie
    from octavo.actors.inker import Inker
    from octavo.actors.inker_clerk import Done, InkerClerk
    from octavo.manifest.journal_manifest import JournalEntry


def is_due(clerk: InkerClerk) -> bool:
    """Whether there are small files to be joined unasked. In no turn. O(files)."""
    return clerk.options.compact_every_seconds is not None and bool(_run(clerk))


def came(clerk: InkerClerk) -> None:
    """Files came: if there are many small ones now, have them joined soon. In no turn."""
    if is_due(clerk):
        clerk.actor_ref.send(join_unasked)


def one_came(clerk: InkerClerk, entry: JournalEntry) -> None:
    """A file was sealed: look, after every few small ones, whether there are many, and have them
    joined. That needs their records in the ledger, so memory is saved first if need be."""
    if clerk.options.compact_every_seconds is None or clerk.trims or clerk.closing:
        return
    clerk.small_came += _fill(clerk.inker.actor, entry) * SMALL < 1
    if clerk.small_came < FEW_SMALL:
        return
    clerk.small_came = 0
    run = _run(clerk, saved=False)
    if run and run[-1].last_sqn > clerk.bookie.actor.view.ledger.persisted_sqn:
        clerk.joins_once_saved = True
        clerk.bookie.send(_push)
    elif run:
        clerk.actor_ref.send(join_unasked)


def _push(bookie: Bookie) -> None:
    bookie.push()


@interruptible
def join_unasked(clerk: InkerClerk) -> None:
    """``join``, then come back for the next files."""
    if clerk.unasked(join):
        clerk.actor_ref.send(join_unasked)


def join(clerk: InkerClerk) -> Done | None:
    """Join the oldest small files for which it is worth it; None if there are none. It is one job
    (and one more for each file found damaged), so that a waiting commit waits for one piece
    only."""
    horizon = clerk.inker.actor.manifest.horizon
    while run := _run(clerk):
        # Up to the horizon it is an ordinary compaction: no consumer needs what it drops, and the
        # horizon stays where it is.
        above = run[0].base_sqn > horizon
        done = clerk.replace(run, drops=False) if above else clerk.rewrite(run)
        if not done.damaged:
            return done
    return None


def _run(clerk: InkerClerk, *, saved: bool = True) -> list[JournalEntry]:
    """The next files to join, all up to the horizon or all above it: what that says of a file, and
    what the file says of when it was compacted, must hold for all of its records. ``saved``: only
    files whose records are all in the ledger."""
    inker = clerk.inker.actor
    horizon, sealed = inker.manifest.horizon, clerk.sealed()
    may = {entry.name for entry in (clerk.whole() if saved else clerk.undamaged())}
    compacted = sum(entry.last_sqn <= horizon for entry in sealed)
    begun = sum(entry.base_sqn <= horizon for entry in sealed)
    fills = [_fill(inker, entry) if entry.name in may else None for entry in sealed]
    for low, high in ((0, compacted), (begun, len(sealed))):
        while (found := small_run(fills[low:high])) is not None:
            run = countable(sealed[low + found.start : low + found.stop])
            if len(run) > 1:
                return run
            low += found.start + 1  # that file alone covers as many sqns as one may
    return []


def _fill(inker: Inker, entry: JournalEntry) -> float:
    """How full a file is, by bytes or records; 1: full."""
    return max(entry.bytes / inker.roll_size, entry.count / inker.roll_count)
