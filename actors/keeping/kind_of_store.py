"""Finds out what kind of store this is if its identity file is gone, so that repair can write
one."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, journal_names
from octavo.files.ledger import ledger_key
from octavo.files.ledger.sst import Sst

_HEADS = bytes((ledger_key.HEAD_ONLY,))


def is_head_only(disk: Disk, path: str, files: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the first record found is that of a head-only store: in the journal's sealed files
    (``files``: by name; the seed is second) or, if those were trimmed, in the unsealed one or in a
    ledger file. Raises Corruption, OSError."""
    others = [name for name in disk.listdir(f"{path}/journal") if name.endswith(journal_names.LOG)]
    for name in [*files, *others]:
        who = journal_names.identity(name)
        buffer = disk.map(f"{path}/journal/{name}")
        if who is not None:
            first = next(cdb.scan(buffer, cdb.RECORDS_AT, len(buffer), who[1], []), None)
            if first is not None:
                return first.tag == ledger_key.HEAD_ONLY
    return any(_has_heads(disk, f"{path}/ledger/{name}") for name in disk.listdir(f"{path}/ledger"))


def _has_heads(disk: Disk, path: str) -> bool:
    try:
        return path.endswith(".sst") and Sst(disk.map(path), path).first_key[:1] == _HEADS
    except Corruption:
        return False
