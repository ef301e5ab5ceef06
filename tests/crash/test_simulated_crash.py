"""Power cuts on a simulated disk: at every operation of a workload, with every kind of image."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from pykka import ActorRegistry
from simdisk import MODES, SimCrash, SimDisk

import octavo
from octavo.actors import startup
from octavo.actors.options import Options
from octavo.store import Store

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
IMAGES = 3


def opened(disk: SimDisk, sync: str) -> Store:
    options = Options(
        sync=sync,
        worker=False,
        push_rows=64,
        push_bytes=64 << 10,
        roll_count=256,  # type: ignore[arg-type]
        read_cache_bytes=0,
    )
    return Store(startup.start("/store", options, disk))


class Expected:
    """What a reader may find: acknowledged states, and the one operation under way."""

    def __init__(self) -> None:
        self.durable: dict[bytes, bytes] = {}
        self.pending: dict[bytes, bytes | None] = {}
        self.batches: list[list[bytes]] = []
        self.highest = 0

    def check(self, store: Store) -> None:
        for key, value in self.durable.items():
            allowed = {value} | ({self.pending[key]} if key in self.pending else set())
            found = store.get(key)
            assert found in allowed, f"{key!r}: {found!r} is not of {allowed!r}"
            head = store.head(key)
            assert (head is None) == (found is None), f"{key!r}: HEAD and GET disagree"
        for batch in self.batches:
            there = {store.get(key) is not None for key in batch}
            assert len(there) == 1, f"batch {batch} is neither whole nor absent"
        following = store.put(b"after", b"crash")
        assert following > self.highest, "a sequence number was given twice"
        assert store.get(b"after") == b"crash"
        report = store.verify()
        assert report.ok, report.problems


def workload(store: Store, expected: Expected, rng: random.Random) -> None:
    """Puts, deletes and batches that roll the journal, push memory and merge."""
    for i in range(90):
        key = b"k%d" % rng.randrange(40)
        value = b"%d-" % i + rng.randbytes(rng.randrange(30))
        kind = rng.randrange(10)
        if kind == 0:
            names = [b"b%d-%d" % (i, j) for j in range(3)]
            expected.batches.append(names)
            expected.pending = dict.fromkeys(names)
            with store.batch() as batch:
                for name in names:
                    batch.put("", name, value * 20)  # torn in several places
            expected.durable.update(dict.fromkeys(names, value * 20))
            expected.highest = batch.last_sqn
        else:
            expected.pending = {key: value}
            expected.highest = store.put(key, value)
            expected.durable[key] = value
        expected.pending = {}
        if i % 30 == 29:
            store._inker.roll()
        if i % 45 == 44:
            store._bookie.push()


def run(disk: SimDisk, seed: int, body: Callable[[Store, Expected], None]) -> Expected:
    expected = Expected()
    try:
        store = opened(disk, "always")
        body(store, expected)
        store.close()
    except SimCrash:
        # Their machine has no power: nobody must ask them anything any more.
        for ref in ActorRegistry.get_all():
            ActorRegistry.unregister(ref)
    return expected


def points() -> int:
    """How many operations the workload has when nothing goes wrong."""
    disk = SimDisk()
    run(disk, SEED, lambda store, expected: workload(store, expected, random.Random(SEED)))
    return disk.ops


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_at_any_operation_loses_nothing_that_was_synced(mode: str) -> None:
    total = points()
    # A batch is torn only by a cut inside its one write, so no such point is passed over.
    step = 1 if mode == "torn" else int(os.environ.get("OCTAVO_CRASH_STEP", "3"))
    print(f"OCTAVO_SEED={SEED}: {total} crash points, every {step}th, mode {mode}")
    assert total > 200
    for point in range(1, total + 1, step):
        disk = SimDisk()
        disk.crash_at(point)
        expected = run(
            disk, SEED, lambda store, expected: workload(store, expected, random.Random(SEED))
        )
        image = disk.after_crash(mode, SEED + point)
        try:
            store = opened(image, "always")
        except octavo.OctavoError as error:
            pytest.fail(f"OCTAVO_SEED={SEED}, crash point {point}, mode {mode}: {error}")
        try:
            expected.check(store)
        except AssertionError as error:
            pytest.fail(f"OCTAVO_SEED={SEED}, crash point {point}, mode {mode}: {error}")
        finally:
            store.close()
