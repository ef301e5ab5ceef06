"""Decides at which sequence number an opening goes on."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.actors.inker import CEILING_STEP
from octavo.files.errors import Corruption
from octavo.files.journal.journal_names import MAX_BASE
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.recovery import Tail

MOST_GONE = 1 << 48
"""More sqns than a store gives in its whole life."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where an opening goes on, by the files that it found."""

    manifest: JournalManifest
    """The journal's, with a ceiling that leaves room; its horizon covers what was lost."""
    following: int
    """The next sqn: above every one that was ever given."""
    clean: bool
    """Whether the store was closed, so that the next sqn is known exactly."""
    notes: list[str]
    """What is not as it should be."""


def resumed(
    manifest: JournalManifest,
    tails: list[Tail],
    persisted_sqn: int,
    *,
    directory: str,
    damaged: bool,
) -> Resumption:
    """Decide where to go on. ``persisted_sqn``: the ledger has the journal up to this sqn.
    ``damaged``: the lost part of the manifest may have had a higher ceiling. Raises Corruption."""
    notes: list[str] = []
    newest, file = _newest(manifest, tails, persisted_sqn, directory, notes)
    clean = newest + 1 == manifest.ceiling
    following = max(manifest.ceiling, newest + 1)
    if persisted_sqn >= following:
        # Only the ledger still knows of these sqns; if one were given again, its record would be
        # taken for one that the ledger has, and be lost.
        notes.append(
            f"{directory}: ends at sqn {newest}, but the ledger goes up to {persisted_sqn}: what "
            "was between is lost, with the manifest"
        )
        manifest = manifest.edit(horizon=persisted_sqn)
        newest, damaged = persisted_sqn, True
    elif not damaged and (told := manifest.gone_told(directory, max(newest, persisted_sqn))):
        notes.append(told)
    if damaged:
        following = max(following, newest + 1) + 2 * CEILING_STEP
        clean = False
    ceiling = following + 2 * CEILING_STEP
    if ceiling > MAX_BASE:
        raise Corruption(
            file, 0,
            f"the next sqn would be {following}, which no store ever reaches: restore a backup",
        )  # fmt: skip
    return Resumption(manifest.edit(ceiling=ceiling), following, clean, notes)


def _newest(
    manifest: JournalManifest,
    tails: list[Tail],
    persisted_sqn: int,
    directory: str,
    notes: list[str],
) -> tuple[int, str]:
    """(the newest sqn of the files, the file that says so). A file without a record shows by its
    name that earlier ones are gone, but is ignored if a store cannot have had so many sqns."""
    ends = [(entry.last_sqn, entry.name) for entry in manifest.entries]
    ends += [(tail.last_sqn, tail.name) for tail in tails if len(tail.offsets) > 1]
    newest, name = max(ends, default=(0, "manifest"))
    most = max(newest, manifest.ceiling, persisted_sqn) + MOST_GONE
    for tail in tails:
        if tail.last_sqn > most:
            notes.append(
                f"{directory}/{tail.name}: holds no record, and nothing else is near its sqn: "
                "ignored"
            )
        elif tail.last_sqn > newest:
            newest, name = tail.last_sqn, tail.name
    return newest, f"{directory}/{name}"
