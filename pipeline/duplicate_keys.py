"""Whether a job wrote a key twice: told from its ledger files before they are taken in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from octavo.files.door.disk import Disk
from octavo.files.handover import staging
from octavo.files.ledger.ledger_key import INDEX, split
from octavo.files.ledger.sst import Sst


def first_duplicate(
    disk: Disk, store: str, job: str, attempts: Sequence[str], *, within: bool
) -> tuple[bytes, bytes] | None:
    """(bucket, key) of a key that two attempts of a job wrote, or with ``within`` that one wrote
    twice, as far as that can be told; None if there is none. O(rows), by their hashes."""
    columns, files = [], []
    for owner, sst, repeats in _files(disk, store, job, attempts):
        if within and repeats:
            return b"", b""
        files.append((owner, sst))
        columns.append(sst.hashes())
    if not columns:
        return None
    hashes = np.concatenate(columns)
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    rows = np.unique(np.concatenate([order[same], order[same + 1]]))
    ends = np.cumsum([len(column) for column in columns])
    seen: dict[bytes, int] = {}
    for row in rows.tolist():
        at = int(np.searchsorted(ends, row, side="right"))
        owner, sst = files[at]
        key = sst.ledger_key(row - int(ends[at]) + len(columns[at]))
        if key[0] == INDEX:
            continue
        if key in seen and (within or seen[key] != owner):
            _, bucket, name = split(key)
            return bucket, name
        seen[key] = owner
    return None


def _files(
    disk: Disk, store: str, job: str, attempts: Sequence[str]
) -> Iterator[tuple[int, Sst, bool]]:
    """(number of the attempt, ledger file, whether its journal file has a key twice)."""
    where = staging.folder(store, job)
    for number, name in enumerate(attempts):
        for journal in staging.read_attempt(disk, store, job, name).journals:
            repeats = sum(ledger.rows for ledger in journal.ledgers) < journal.count
            for ledger in journal.ledgers:
                yield number, Sst(disk.map(f"{where}/{ledger.name}"), ledger.name), repeats
