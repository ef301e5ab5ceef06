"""Stores with much garbage in their journal, and what must be read from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from file_stats import stats_of

import octavo

SMALL_FILES = {"roll_size_bytes": 1 << 20, "roll_count": 512}


def value(rng: random.Random, size: int = 200) -> bytes:
    return rng.randbytes(size // 2) + bytes(size - size // 2)


def overwritten(
    store: octavo.Store, rng: random.Random, keys: int = 400, rounds: int = 10, size: int = 200
) -> dict[bytes, bytes]:
    """Replace everything ten times, delete half; what is left."""
    model = {}
    names = [b"key-%05d" % i for i in range(keys)]
    for _ in range(rounds):
        rng.shuffle(names)
        for name in names:
            model[name] = value(rng, size)
            store.put(name, model[name])
    for name in names[: keys // 2]:
        store.delete(name)
        del model[name]
    return model


def check(
    store: octavo.Store, model: dict[bytes, bytes], absent: Iterator[bytes] | None = None
) -> None:
    assert dict(store.items()) == model
    for key, expected in model.items():
        assert store.get(key) == expected
    for key in absent or ():
        assert store.get(key) is None
    report = store.verify()
    assert report.ok, report.problems[:5]


def journal_bytes(store: octavo.Store) -> int:
    return sum(each.st_size for each in stats_of(Path(store.path) / "journal", "*-*.*"))
