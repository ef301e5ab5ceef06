"""Small files are put together while the power goes, a call fails, or another process reads: every
change is still there for who asks, and every earlier state."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from look import NOW_MS, clock_ms
from one_thread import forget, one_thread, opened
from simdisk import MODES, SimCrash, SimDisk

import octavo
from octavo.actors.compacting import joining
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.keeping.ingest import ingest
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.opening import startup
from octavo.actors.opening.identity import read as identity_of
from octavo.actors.opening.options import Options
from octavo.actors.published_reader import PublishedReader
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest.pinning import pin
from octavo.manifest.small_files import FEW_SMALL
from octavo.snapshot import SnapshotBucket

SEED = int(os.environ.get("OCTAVO_SEED", "20261125"))
SIZES = {"roll_count": 1 << 16, "push_rows": 1 << 16}
History = list[tuple[int, bytes, bytes | None]]


@pytest.fixture(scope="module")
def small() -> tuple[SimDisk, History]:
    """A closed store of many small files, which overwrite each other's keys; its changes."""
    disk = SimDisk()
    with one_thread("setup") as pool:
        store = opened(disk, clock_ms=clock_ms, **SIZES)
        for number in range(FEW_SMALL + 2):
            writer = StagedWriter(disk, "/store", f"j{number}", "0", now_ms=NOW_MS)
            writer.put_many(b"", [b"k%d" % (number % 5), b"z"], [b"%d" % number] * 2)
            writer.finish()
            ingest(store._running, f"j{number}", ["0"])
            pool.go_on()
        changes = history(store)
        store.close()
    return disk.after_crash("all"), changes


def history(store: octavo.Store) -> History:
    return [(each.sqn, each.key, each.value) for each in store.changes(0)]


def join(store: octavo.Store) -> None:
    store._running.inker_clerk.call(InkerClerk.unasked, joining.join)


def is_whole(disk: SimDisk, changes: History, where: str) -> None:
    with one_thread("look"):
        store = opened(disk, clock_ms=clock_ms, **SIZES)
        assert history(store) == changes, where
        assert dict(store.items()) == {key: value for _, key, value in changes}, where
        assert store.verify().ok, where
        join(store)
        assert history(store) == changes, where
        assert len(store._inker.manifest.entries) < 5, where
        store.close()
        restore_on(disk, "/store", "/restored", sqn=21, time_ms=None, copy=False)
        again = octavo.Store(startup.start("/restored", Options(worker=False), disk))
        assert history(again) == changes[:21], where
        again.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_at_any_operation_leaves_all_history(
    small: tuple[SimDisk, History], mode: str
) -> None:
    step = int(os.environ.get("OCTAVO_CRASH_STEP", "3"))
    print(f"OCTAVO_SEED={SEED}, every {step}th operation")
    whole, changes = small
    for point in range(1, 1000, step):
        disk = whole.after_crash("all")
        with one_thread("cut"):
            store = opened(disk, clock_ms=clock_ms, **SIZES)
            disk.crash_at(disk.ops + point)
            with suppress(SimCrash):
                join(store)
            forget(store)
        is_whole(disk.after_crash(mode, SEED + point), changes, f"{mode}, operation {point}")
        if not disk.crashed:
            assert point > 5
            return
    raise AssertionError("more operations than there can be")


def faults(code: int, store: octavo.Store, disk: SimDisk, number: int) -> bool:
    """Join, the call of this number failing; whether there was one."""
    calls = iter(range(1, 1 << 30))
    met = False

    def at_call(operation: str) -> tuple[int, None] | None:
        nonlocal met
        if operation in ("exists", "size", "links") or next(calls) != number:
            return None
        met = True
        return code, None

    disk.at_call = at_call
    join(store)
    disk.at_call = None
    return met


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_whichever_call_fails_all_history_is_there(
    small: tuple[SimDisk, History], code: int
) -> None:
    whole, changes = small
    for number in range(1, 1000):
        disk = whole.after_crash("all")
        with one_thread("fault"):
            store = opened(disk, clock_ms=clock_ms, **SIZES)
            met = faults(code, store, disk, number)
            where = f"call {number}"
            assert history(store) == changes, where
            if store._inker.failed is None:
                store.put(b"z", changes[-1][2] or b"")
            forget(store)
        for image in (disk.after_crash("nothing"), disk.after_kill()):
            with one_thread("again"):
                store = opened(image, clock_ms=clock_ms, **SIZES)
                assert history(store)[: len(changes)] == changes, where
                assert store.verify().ok, where
                forget(store)
        if not met:
            assert number > 5
            return
    raise AssertionError("more calls than there can be")


def beside(disk: SimDisk) -> Iterator[dict[bytes, bytes]]:
    there = pin(disk, "/store", 60_000, NOW_MS)
    reader: Any = PublishedReader(disk, there, clock_ms, 64)
    bucket: Any = SnapshotBucket(reader, identity_of(disk, "/store"), b"")
    yield dict(bucket.items())


def test_who_reads_beside_it_at_any_operation_reads_everything(
    small: tuple[SimDisk, History],
) -> None:
    whole, changes = small
    disk, images = whole.after_crash("all"), []
    with one_thread("beside"):
        store = opened(disk, clock_ms=clock_ms, **SIZES)
        disk.before = lambda name: images.append(disk.after_crash("all"))
        join(store)
        disk.before = None
        forget(store)
    assert len(images) > 5
    for image in images:
        assert next(beside(image)) == {key: value for _, key, value in changes}
