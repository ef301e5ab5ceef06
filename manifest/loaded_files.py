"""Journal files that a commit links in: only the journal's manifest says whether they count."""

from __future__ import annotations

from contextlib import suppress

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, journal_names
from octavo.files.messages import messages_of
from octavo.manifest.journal_manifest import JournalManifest

log = messages_of("octavo.recovery")


def made_elsewhere(disk: Disk, directory: str, name: str) -> bool:
    """Whether this is a sealed file that was made elsewhere, as base 0 in its header shows. Such a
    file is part of the journal only if the manifest says so."""
    who = journal_names.identity(name)
    if who is None or not name.endswith(journal_names.SEALED):
        return False
    try:
        header = cdb.read_header(disk.pread(f"{directory}/{name}", cdb.RECORDS_AT, 0), name)
    except Corruption:
        return False
    return (header.base_sqn, header.seed) == (0, who[1])


def lacked(
    disk: Disk,
    directory: str,
    unlisted: set[str],
    manifest: JournalManifest,
    loaded: frozenset[int],
) -> list[str]:
    """Return unlisted files of commits that were decided: the ledger has what came with them, which
    it takes in only after that. If there are any, the manifest's last changes were lost without a
    trace. ``loaded``: see LedgerManifest.loaded. Mostly no file is looked at. Raises
    FileNotFoundError if files go meanwhile."""
    return [
        name
        for name in sorted(unlisted)
        if (who := journal_names.identity(name)) is not None
        and who[0] in loaded
        and manifest.find(who[0]) is None
        and made_elsewhere(disk, directory, name)
    ]


def remove_uncommitted(disk: Disk, directory: str, names: set[str]) -> None:
    """Remove those of these files that a commit that was cut short left."""
    for name in sorted(names):
        path = f"{directory}/{name}"
        with suppress(OSError):
            if not made_elsewhere(disk, directory, name):
                continue
            log.info("%s is left over from a commit that was cut short: removed", path)
            disk.unlink(path)
