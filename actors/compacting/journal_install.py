"""Replaces a run of journal files by others: in the manifest, then in the view, then on disk.

These functions run in the turn of the actor they are given, unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.actors.file_actor import FileActor
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.penciller import Penciller
from octavo.actors.turns.runtime import Ref
from octavo.actors.view import JournalView, View
from octavo.files.door.disk import TEMPORARY_SUFFIX
from octavo.files.errors import AskTimeout, OctavoError, StorageFull
from octavo.files.journal import journal_names
from octavo.manifest.journal_manifest import JournalEntry

if TYPE_CHECKING:
    from octavo.actors.bookie import Bookie

_LEASE_SECONDS = 7 * 86400.0
"""Far longer than any job takes; the lease is released with the job."""


def replace_files(
    inker: Inker, removed: Sequence[str], added: Sequence[JournalEntry], horizon: int
) -> list[JournalFile]:
    """In the Inker's turn: make one durable change of the manifest, after which new lookups find
    the new files. The files in ``added`` have their actors. Returns the files that went."""
    manifest = inker.manifest.edit(added, removed, horizon=horizon)
    names, files = set(removed), inker.view.files
    gone = [file for file in files if file.name in names]
    left = [file for file in files if file.name not in names]
    # The view is made first, so that nothing after the manifest's change needs memory.
    view = JournalView.of([*left, *(entry.file for entry in added)])
    try:
        inker.commit(manifest)
    except StorageFull:
        raise  # nothing changed
    except OctavoError as error:
        inker.poison(error)
        raise
    inker.view = view
    return gone


def remove_left(inker: Inker, waiting: Sequence[FileActor], arguments: Mapping[str, Any]) -> None:
    """Remove what a killed worker left of a job: its scratch file, and files within the sqns of its
    run that are neither named by the manifest nor ``waiting``. In no turn."""
    disk, directory = inker.disk, inker.directory
    run = arguments.get("run")
    kept = {entry.name for entry in inker.manifest.entries}
    kept.update(file.name for file in waiting)
    try:
        for name in disk.listdir(directory):
            who = journal_names.identity(name.removesuffix(TEMPORARY_SUFFIX))
            ours = who and run and run[0]["base_sqn"] <= who[0] <= run[-1]["last_sqn"]
            if name == arguments.get("scratch") or (ours and name not in kept):
                disk.unlink(f"{directory}/{name}")
    except OSError:
        pass  # the next start removes the rest


def stays_expired(bookie: Ref[Bookie], moment: int) -> None:
    """Have the ledger's manifest, and every view from now on, say that what expired up to
    ``moment``, ms UTC, stays expired. Called before such values are dropped, so that their keys do
    not reappear if the clock is set back. In no turn of the actors involved."""
    running = bookie.actor
    if moment > running.view.ledger.expired_ms:
        try:
            running.penciller.call(Penciller.stays_expired, moment)
        except (StorageFull, AskTimeout):
            raise  # nothing changed
        except OctavoError as error:  # nothing is merged from now on: memory would only grow
            running.inker.actor_ref.call(Inker.poison, error)
            raise
        bookie.call(expired)


def expired(bookie: Bookie) -> None:
    """In the Bookie's turn: take over from the Penciller's manifest what has expired for good."""
    ledger, told = bookie.view.ledger, bookie.penciller.actor.manifest.expired_ms
    bookie.view = replace(bookie.view, ledger=replace(ledger, expired_ms=told))


def mark_clean(inker: Inker, names: Sequence[str], clean_sqn: int) -> None:
    """In the Inker's turn: note that these files hold no superseded put as of ``clean_sqn``."""
    wanted = set(names)
    marked = [
        replace(entry, clean_sqn=max(entry.clean_sqn, clean_sqn))
        for entry in inker.manifest.entries
        if entry.name in wanted
    ]
    inker.commit(inker.manifest.edit(marked))


def journal_replaced(bookie: Bookie) -> int:
    """In the Bookie's turn: take over the Inker's view; returns the new view's generation."""
    generation = bookie.view.generation + 1
    bookie.view = replace(bookie.view, journal=bookie.inker.view, generation=generation)
    return generation


def leased(bookie: Bookie, number: int) -> View:
    """In the Bookie's turn: hold the present view by a lease with this number, and return it."""
    bookie.register.register(bookie.view.generation, _LEASE_SECONDS, number)
    return bookie.view


def rolled(bookie: Bookie) -> None:
    """In the Bookie's turn: begin a new journal file, and push memory."""
    bookie.inker.roll()
    bookie.push()
