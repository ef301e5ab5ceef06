"""What a compaction goes by: estimates of how many bytes of a journal file are garbage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whole_store import SEED, flush, opened

import octavo
from octavo.actors.compacting import compaction
from octavo.files.door.disk import RealDisk
from octavo.files.jobs import scores

EVERY_RECORD = 1 << 30


def settled(store: octavo.Store) -> Callable[..., dict[str, Any]]:
    """``score(samples, salt)`` of the store's one sealed journal file."""
    clerk = store._running.inker_clerk.actor
    flush(store)
    compaction.settle(clerk)
    [entry] = clerk.eligible()
    levels = store._running.bookie.actor.view.ledger.for_jobs()

    def score(samples: int, salt: int) -> dict[str, Any]:
        [row] = scores.score(
            RealDisk(), journal=f"{store.path}/journal", ledger=f"{store.path}/ledger",
            levels=levels, files=[{**entry.for_job(), "clean_below": 0}], samples=samples,
            now_ms=0, salt=salt, strategies={}, compresses=True,
        )["scores"]  # fmt: skip
        return row  # type: ignore[no-any-return]

    return score


def test_one_large_value_that_was_replaced_is_compacted_away_from_among_many_small(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, roll_count=1 << 16) as store:
        store.put(b"large", random.Random(SEED).randbytes(4 << 20))
        store.put_many((b"%06d" % n, b"small") for n in range(3000))
        store.delete(b"large")
        done = store.compact()
        assert done.records_dropped == 2
        assert done.bytes_after < 1 << 20


def test_estimates_from_samples_are_right_on_the_average(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print("seed", SEED)
    with opened(tmp_path / "s", push_rows=1 << 16, roll_count=1 << 16) as store:
        for n in range(1000):
            size = int(rng.lognormvariate(5.0, 1.5))
            store.put(b"%06d" % n, rng.randbytes(size // 2) + bytes(size // 2))
        for n in rng.sample(range(1000), 200):
            store.delete(b"%06d" % n)
        score = settled(store)
        exact = score(EVERY_RECORD, 0)
        found = [score(20, salt) for salt in range(200)]
    assert 0 < exact["hiding"] < exact["squeezed"] < exact["kept"] < exact["total"]
    for part in ("kept", "hiding", "squeezed"):
        mean = sum(each[part] / each["total"] for each in found) / len(found)
        assert abs(mean - exact[part] / exact["total"]) < 0.02, part
