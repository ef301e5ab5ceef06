"""Every object's terms change round after round: only the newest are found, and snapshots find
those of their round."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from whole_store import SEED, flush, killed, opened

import octavo

KEYS = 150


def rotate(store: octavo.Store, number: int, rng: random.Random) -> None:
    """Each key leaves the term of the round before, in one of three ways."""
    bucket = store.bucket("b")
    keys = [b"%03d" % i for i in range(KEYS)]
    rng.shuffle(keys)
    for i, key in enumerate(keys):
        if i % 3 == 0:
            bucket.put(key, b"%d" % number, index={"round": number, "same": "x"})
        elif i % 3 == 1:
            edit = octavo.IndexEdit(add={"round": number, "same": "x"}, remove={"round": None})
            bucket.put(key, b"%d" % number, index=edit)
        else:
            with store.batch() as batch:
                batch.delete("b", key)
                batch.put("b", key, b"%d" % number, index={"round": number, "same": "x"})


def check(where: octavo.Store | octavo.Snapshot, number: int) -> None:
    bucket = where.bucket("b")
    keys = [b"%03d" % i for i in range(KEYS)]
    assert list(bucket.index("round").range()) == [(number, key) for key in keys]
    assert list(bucket.index("round").having(number - 1)) == []
    assert list(bucket.index("same").having("x")) == keys


@pytest.mark.parametrize("between", ["nothing", "flush", "reopen", "kill", "rebuild", "compact"])
def test_only_the_newest_round_is_found(tmp_path: Path, between: str) -> None:
    rng = random.Random(SEED)
    path = tmp_path / "s"
    store = opened(path)
    for number in range(8):
        rotate(store, number, rng)
        check(store, number)
        with store.snapshot() as snap:
            rotate(store, number + 100, rng)
            if between == "flush":
                flush(store)
            if between == "compact":
                store.compact()
            check(snap, number)
            check(store, number + 100)
        if between == "kill":
            path = killed(store, tmp_path / f"t{number}")
        if between in ("reopen", "kill", "rebuild"):
            store.close()
            if between == "rebuild":
                shutil.rmtree(path / "ledger")
            store = opened(path)
        check(store, number + 100)
    assert store.verify().ok
    flush(store)
    rows = sum(level["rows"] for level in store.stats()["ledger"]["levels"])
    if between == "flush":
        assert rows < 20 * KEYS, "stale entries pile up"
    store.close()


def test_snapshots_of_many_rounds_at_once(tmp_path: Path) -> None:
    rng = random.Random(SEED + 1)
    with opened(tmp_path / "s", push_rows=1000) as store:
        taken = []
        for number in range(12):
            rotate(store, number, rng)
            taken.append(store.snapshot())
        for number, snap in enumerate(taken):
            check(snap, number)
        flush(store)
        for number, snap in enumerate(taken):
            check(snap, number)
            snap.close()
        check(store, 11)
