"""What the Inker's clerk does on schedule, unasked: it compacts the run of files that is worth
most, or joins small files.

These functions run in its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.actors.compacting import joining
from octavo.actors.turns.messages import interruptible
from octavo.files.errors import StorageFull
from octavo.files.messages import messages_of
from octavo.manifest import published
from octavo.manifest.run_choice import best_run, countable

if TYPE_CHECKING:
    from octavo.actors.inker_clerk import Done, InkerClerk
    from octavo.manifest.journal_manifest import JournalEntry

log = messages_of("octavo.compaction")


@interruptible
def work(clerk: InkerClerk) -> None:
    """Do one piece of work, then come back for the next. On the pool."""
    if clerk.closing:
        return
    inker = clerk.inker.actor
    published.sweep(inker.disk, inker.store, clerk.clock_ms())
    if clerk.unasked(_best):
        clerk.actor_ref.send(work)


def _best(clerk: InkerClerk) -> Done | None:
    run = _worthy_run(clerk)
    if not run:
        return joining.join(clerk)
    try:
        return clerk.rewrite(run)
    except StorageFull:
        if len(run) == 1:
            raise
        return clerk.rewrite([max(run, key=lambda entry: clerk.scores[entry.name].garbage)])


def _worthy_run(clerk: InkerClerk) -> list[JournalEntry]:
    clerk.looks += 1
    clerk.drop_holders()
    scores = clerk.survey(clerk.options.compact_score_one_in)
    entries = clerk.sealed()
    found = best_run(
        [100.0 - scores[entry.name].garbage if entry.name in scores else None for entry in entries],
        clerk.worth,
    )
    if found is None:
        return []
    log.info("compacting %d files, %.0f points below the bound", found.length, found.worth)
    return countable(entries[found.start : found.start + found.length])
