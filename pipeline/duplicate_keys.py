"""Whether a job wrote a key twice: told from its ledger files before they are taken in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from octavo.files.door.disk import Disk
from octavo.files.handover import staging
from octavo.files.kernels.arrays import distinct
from octavo.files.ledger import few_maps
from octavo.files.ledger.ledger_key import INDEX, split


def first_duplicate(
    disk: Disk, store: str, job: str, attempts: Sequence[str], *, within: bool
) -> tuple[bytes, bytes] | None:
    """(bucket, key) of a key that two attempts of a job wrote, or with ``within`` that one wrote
    twice, as far as that can be told; None if there is none. O(rows), by their hashes."""
    owned: list[tuple[str, int]] = []  # ledger files, each with the number of its attempt
    for number, name in enumerate(attempts):
        for journal in staging.read_attempt(disk, store, job, name).journals:
            if within and sum(ledger.rows for ledger in journal.ledgers) < journal.count:
                return b"", b""
            owned += [(ledger.name, number) for ledger in journal.ledgers]
    if not owned:
        return None
    (files,) = few_maps.opened(disk, staging.folder(store, job), [owned])
    columns = [sst.hashes().copy() for sst, _ in files]  # a view would keep the file mapped
    hashes = np.concatenate(columns)
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    rows = distinct(np.concatenate([order[same], order[same + 1]]))
    begins = np.cumsum([0, *map(len, columns)])
    seen: dict[bytes, int] = {}
    for at, (low, high) in enumerate(pairwise(np.searchsorted(rows, begins).tolist())):
        if low == high:
            continue
        sst, owner = files[at]
        for row in (rows[low:high] - begins[at]).tolist():
            key = sst.ledger_key(row)
            if key[0] == INDEX:
                continue
            if key in seen and (within or seen[key] != owner):
                return split(key)[1:]
            seen[key] = owner
    return None
