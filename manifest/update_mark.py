"""The mark of a backup that is being brought up to date: the file ``UPDATING`` in its journal.

    {"format": 1, "names": [journal files of the state that is to come], "checksum": 16 digits}

and, once its manifests are to be written: "epoch", theirs, and "ledger", the ledger's to come, in
base64.

Until the manifest of that state is durable, its files lie beside those of the state before, and
nothing else tells the two apart: a compacted file bears old sqns, and a backup that was opened by
itself has files that its manifest does not name, too. The mark is there before the first of them
and goes after the last removal. An opening that finds it removes what is not of the state that it
found, and then the mark.

The journal's manifest comes first, and decides. Until the ledger's is there, too, the mark holds
it: the one before may name what the journal no longer has.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable
from typing import Any

from octavo.files.checked_json import decoded, encoded
from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.journal import journal_names
from octavo.manifest.change_log import ChangeLog, Recovered
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest

UPDATING = "UPDATING"
_FORMAT = 1
_MOST_BYTES = 256 << 20


def write(
    disk: Disk, directory: str, names: Iterable[str], epoch: int = 0, ledger: bytes = b""
) -> None:
    """Mark the journal in ``directory``, durably, before any of these files is brought there. What
    an earlier mark says is kept: its update may have brought some files, and the journal's
    manifest. ``epoch``, ``ledger``: of the manifests that are written next.
    """
    told = {"format": _FORMAT, **_told(disk, directory)}
    told["names"] = sorted({*names, *(_names(disk, directory) or ())})
    if ledger:
        told |= {"epoch": epoch, "ledger": b64encode(ledger).decode()}
    disk.write_atomically(f"{directory}/{UPDATING}", encoded(told) + b"\n")


def strangers(disk: Disk, directory: str, unlisted: Collection[str], ceiling: int) -> set[str]:
    """Once the mark was seen: those of the unlisted journal files that an update brought, or
    replaced, so that they are not of the manifest's state. ``ceiling``: the manifest's. A mark
    without names may mean any sealed one."""
    brought = _names(disk, directory)
    found = newer(unlisted, ceiling)
    for name in unlisted:
        sealed = journal_names.identity(name) is not None and name.endswith(journal_names.SEALED)
        if sealed if brought is None else name in brought:
            found.add(name)
    return found


def unlisted(
    disk: Disk, directory: str, names: Collection[str], manifest: JournalManifest
) -> set[str]:
    """Those of ``names``, a listing of the journal, that its manifest does not name and that may be
    of its state all the same. For readers."""
    found = set(names) - {entry.name for entry in manifest.entries}
    if UPDATING in found:
        found -= strangers(disk, directory, found, manifest.ceiling)
    return found


def newer(unlisted: Collection[str], ceiling: int) -> set[str]:
    """Journal files that begin at or above the ceiling: no sqn there was ever given."""
    bases = ((name, journal_names.identity(name)) for name in unlisted)
    return {name for name, who in bases if who is not None and who[0] >= ceiling}


def ledger_to_come(disk: Disk, store: str, journal: Recovered, ledger: Recovered) -> bytes | None:
    """The ledger's manifest to come, if an update was cut short after it wrote the journal's and
    before it wrote this; None: the one there is the right one."""
    if ledger.state_epoch >= journal.state_epoch:
        return None
    told = _told(disk, f"{store}/journal")
    try:
        if ledger.state_epoch < int(told["epoch"]) <= journal.state_epoch:
            return b64decode(told["ledger"])
    except (ValueError, KeyError, TypeError):
        pass
    return None


def write_ledger_to_come(disk: Disk, store: str, journal: Recovered, ledger: Recovered) -> bool:
    """Write the ledger's manifest to come, if there is one; returns whether. To be done before the
    mark that holds it goes, or is written for the next update. Raises OSError."""
    to_come = ledger_to_come(disk, store, journal, ledger)
    if to_come is None:
        return False
    above = max(journal.epoch, ledger.epoch) + 1
    ChangeLog.begin(disk, f"{store}/ledger/manifest", above, to_come).close()
    return True


def ledger_of(disk: Disk, store: str, journal: Recovered, ledger: Recovered) -> LedgerManifest:
    """The ledger's manifest as a reader, which changes nothing, is to take it. Raises
    Corruption."""
    to_come = ledger_to_come(disk, store, journal, ledger)
    if to_come is not None:
        return LedgerManifest.decode(to_come)
    return LedgerManifest.replayed(ledger.snapshot, ledger.changes)


def _names(disk: Disk, directory: str) -> frozenset[str] | None:
    """The names in the mark; None: there is no mark, or one without names, as earlier ones."""
    try:
        return frozenset(map(str, _told(disk, directory)["names"]))
    except (KeyError, TypeError):
        return None


def _told(disk: Disk, directory: str) -> dict[str, Any]:
    """What the mark says; nothing where there is none, or it is damaged."""
    mark = f"{directory}/{UPDATING}"
    try:
        return decoded(disk.read(mark, _MOST_BYTES), mark, "an update", _FORMAT)
    except (FileNotFoundError, Corruption, UnsupportedFormat):
        return {}
