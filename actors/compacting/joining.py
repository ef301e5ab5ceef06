"""Small neighbouring journal files are put together, so that there are never many.

Each commit of a job makes files of its own, however little they hold, and so does what has the
journal go on in a new file: a publishing, a backup, a kill. And each file costs whatever looks at
all of them: an opening, a backup, a commit, a pass of Spark. Above the horizon nothing is dropped
by that: who asks what changed, or for an earlier state, finds it as before. Up to it, where no feed
is whole any more, files are compacted as any, which also ends the earlier states that could be
restored until then.

Functions that run in the turn of the Inker's clerk, but for those that say so.
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
    """Whether there are small files to be put together unasked. In no turn. O(files)."""
    return clerk.options.compact_every_seconds is not None and bool(_run(clerk))


def came(clerk: InkerClerk) -> None:
    """Files came: if now there are many small ones, they are put together soon. In no turn."""
    if is_due(clerk):
        clerk.actor_ref.send(join_unasked)


def one_came(clerk: InkerClerk, entry: JournalEntry) -> None:
    """A file was sealed: see now and then whether there are many small ones. They are put together
    once the ledger has what is in them, so memory is saved first if need be."""
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
    """``join``, then come back for the next."""
    if clerk.unasked(join):
        clerk.actor_ref.send(join_unasked)


def join(clerk: InkerClerk) -> Done | None:
    """Put the oldest small files together that are worth it; None: there are none. One job, and one
    more around each file that is found damaged, for a commit that waits waits for one piece."""
    horizon = clerk.inker.actor.manifest.horizon
    while run := _run(clerk):
        # Up to the horizon as any compaction: no consumer needs it, and the horizon stays.
        above = run[0].base_sqn > horizon
        done = clerk.replace(run, drops=False) if above else clerk.rewrite(run)
        if not done.damaged:
            return done
    return None


def _run(clerk: InkerClerk, *, saved: bool = True) -> list[JournalEntry]:
    """Files up to the horizon, or files above it: what it says of a file, and a file says of when
    it was compacted, is to hold for all that is in it. ``saved``: only such as the ledger has all
    of."""
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
            low += found.start + 1  # it covers as many sqns as a file may, however few it has
    return []


def _fill(inker: Inker, entry: JournalEntry) -> float:
    """How full a file is; 1: full."""
    return max(entry.bytes / inker.roll_size, entry.count / inker.roll_count)
