"""A published snapshot of several journal files, each with values from all over the keys."""

from __future__ import annotations

import random
from pathlib import Path

from whole_store import SEED, rolled, settle

import octavo


def scattered(store_path: Path, files: int, records: int, value_bytes: int) -> str:
    """Its directory. ``records``: of a file; values take ``value_bytes`` and their keys'."""
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED)
    keys = [b"%05d" % number for number in range(files * records)]
    rng.shuffle(keys)
    with octavo.open(store_path) as store:
        for number, key in enumerate(keys, 1):
            store.put(key, key + rng.randbytes(value_bytes))
            if number % records == 0:
                rolled(store)
        settle(store)
        path: str = store.snapshot().publish().path
    return path
