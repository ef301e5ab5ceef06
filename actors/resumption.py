"""Where an opening goes on giving sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.actors.inker import CEILING_STEP
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.recovery import Tail


@dataclass(frozen=True, slots=True)
class Resumption:
    """What the files that were found say of it."""

    manifest: JournalManifest
    """With a ceiling that leaves room, and a horizon above all that is gone."""
    following: int
    """The next sqn: above every one that was ever given."""
    clean: bool
    """The store was closed: the next sqn is known exactly."""
    note: str = ""
    """That a part of the journal is gone of which its manifest knows nothing."""


def resumed(
    manifest: JournalManifest,
    tails: list[Tail],
    persisted_sqn: int,
    *,
    directory: str,
    damaged: bool,
) -> Resumption:
    """Where to go on. ``persisted_sqn``: the ledger has the journal up to there. ``damaged``: a
    ceiling may have been in what was lost of the manifest."""
    newest = max(
        [entry.last_sqn for entry in manifest.entries] + [tail.last_sqn for tail in tails] + [0]
    )
    clean = newest + 1 == manifest.ceiling
    following = newest + 1 if clean else max(manifest.ceiling, newest + 1)
    note = ""
    if persisted_sqn >= following:
        # Only the ledger still knows of them; a number that is given again would be taken for one
        # that it has, and lost.
        note = (
            f"{directory}: ends at sqn {newest}, and the ledger knows of {persisted_sqn}: what was "
            "between is gone, with the manifest"
        )
        manifest = manifest.edit(horizon=persisted_sqn)
        newest, damaged = persisted_sqn, True
    if damaged:
        following = max(following, newest + 1) + 2 * CEILING_STEP
        clean = False
    return Resumption(
        manifest.edit(ceiling=following + 2 * CEILING_STEP), following, clean, note
    )  # fmt: skip
