"""Trims the journal of a head-only store: files that the ledger has all of go, unread.

These functions run in the turn of the Inker's clerk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.actors.compacting import journal_install
from octavo.actors.penciller import Penciller
from octavo.actors.turns.messages import interruptible
from octavo.files.errors import Closed, Corruption, OctavoError
from octavo.files.messages import messages_of

if TYPE_CHECKING:
    from octavo.actors.inker_clerk import InkerClerk
    from octavo.actors.turns.runtime import Ref
    from octavo.manifest.journal_manifest import JournalEntry
    from octavo.manifest.ledger_manifest import LedgerManifest

log = messages_of("octavo.compaction")


def trim(clerk: InkerClerk) -> None:
    """Remove the sealed files that the ledger has all of; ``trimmed`` grows by their bytes.

    Raises Closed, StorageFull, StorageFailed, Corruption (of the ledger).
    """
    with clerk.held() as view:
        _refuse_missing(clerk.bookie.actor.penciller, view.ledger)
        persisted = view.ledger.persisted_sqn
        clerk.drop_holders()
        done = _up_to(clerk.sealed(), _needed(clerk, persisted))
        if done:
            _refuse_damaged(clerk, view.ledger, done[0].base_sqn, done[-1].last_sqn)
    with clerk.consumers.lock:
        done = _up_to(done, _needed(clerk, persisted))  # a consumer may have come meanwhile
        if not done:
            return
        names = [entry.name for entry in done]
        old = clerk.inker.call(journal_install.replace_files, names, [], done[-1].last_sqn)
    clerk.retire(old)
    clerk.trimmed += sum(entry.bytes for entry in done)


def _refuse_missing(penciller: Ref[Penciller], ledger: LedgerManifest) -> None:
    """Raise Corruption if a ledger file is missing: only the journal may still have its contents.
    One listing."""
    disk, directory = penciller.actor.disk, penciller.actor.directory
    there = set(disk.listdir(directory))
    for name in (entry.name for entry in ledger.entries):
        if name not in there:
            damage = Corruption(f"{directory}/{name}", 0, "the file is missing: nothing is trimmed")
            penciller.send(Penciller.reported, damage)
            raise damage


def _refuse_damaged(clerk: InkerClerk, ledger: LedgerManifest, low: int, high: int) -> None:
    """Raise Corruption if a ledger file that may have records of the sqns [low, high] is damaged.
    The worker reads each file once, before the first journal file goes whose records are in it."""
    entries = ledger.entries
    clerk.whole_ledger &= {entry.name for entry in entries}
    doubtful = [
        entry
        for entry in entries
        if entry.min_sqn <= high and entry.max_sqn >= low and entry.name not in clerk.whole_ledger
    ]
    if doubtful:
        clerk.job("check_ledger", files=[entry.for_job() for entry in doubtful])
        clerk.whole_ledger.update(entry.name for entry in doubtful)


def _needed(clerk: InkerClerk, persisted: int) -> int:
    """The sqn up to which, inclusive, neither the ledger nor a consumer needs the journal."""
    return min(persisted, clerk.consumers.lowest())


def _up_to(entries: Sequence[JournalEntry], sqn: int) -> list[JournalEntry]:
    return [entry for entry in entries if entry.last_sqn <= sqn]


@interruptible
def trim_unasked(clerk: InkerClerk) -> None:
    """As ``trim``, after memory was saved. On the pool."""
    try:
        trim(clerk)
    except Closed:
        return
    except (OctavoError, OSError) as error:
        log.warning("%s: the journal was not trimmed: %s", clerk.inker.actor.directory, error)
    finally:
        clerk.rest()
