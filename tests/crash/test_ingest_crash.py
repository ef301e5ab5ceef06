"""Power cuts at every operation of a commit: a job is there as a whole or not at all, and once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pykka import ActorRegistry
from simdisk import MODES, SimCrash, SimDisk

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.opening import startup
from octavo.actors.opening.identity import read as identity_of
from octavo.actors.opening.options import Options
from octavo.actors.published_reader import PublishedReader
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest.pinning import pin
from octavo.snapshot import SnapshotBucket

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
BEFORE = {b"a": b"old", b"b": b"old"}
JOB = {b"a": b"job", b"c": b"job", b"d": b"job"}


def opened(disk: SimDisk) -> octavo.Store:
    options = Options(sync="always", worker=False, read_cache_bytes=0)
    return octavo.Store(startup.start("/store", options, disk))


def commit(store: octavo.Store, disk: SimDisk, attempt: str) -> bool:
    """Two tasks, then the commit; whether it had been made before."""
    for part in (0, 1):
        writer = StagedWriter(disk, "/store", "j", f"{part}-{attempt}", now_ms=7, file_records=1)
        keys = list(JOB)[2 * part : 2 * part + 2]
        writer.put_many(b"", keys, [JOB[key] for key in keys])
        writer.finish()
    return ingest(store._running, "j", [f"0-{attempt}", f"1-{attempt}"]).repeated


def workload(disk: SimDisk, reached: list[str]) -> None:
    try:
        store = opened(disk)
        for key, value in BEFORE.items():
            store.put(key, value)
        reached.append("put")
        commit(store, disk, "0")
        reached.append("committed")
        store.put(b"c", b"later")
        reached.append("later")
        store.close()
    except (SimCrash, octavo.Busy):  # Busy: the power went on a background thread
        for ref in ActorRegistry.get_all():
            ActorRegistry.unregister(ref)


@pytest.mark.parametrize("mode", MODES)
def test_a_job_is_whole_or_absent_after_a_power_cut_and_comes_once(mode: str) -> None:
    whole = SimDisk()
    workload(whole, [])
    step = int(os.environ.get("OCTAVO_CRASH_STEP", "2"))
    print(f"OCTAVO_SEED={SEED}: {whole.ops} crash points, every {step}th, mode {mode}")
    assert whole.ops > 60
    for point in range(1, whole.ops + 1, step):
        disk, reached = SimDisk(), []
        disk.crash_at(point)
        workload(disk, reached)
        image = disk.after_crash(mode, SEED + point)
        where = f"crash point {point}, mode {mode}, reached {reached}"
        store = opened(image)
        found = dict(store.items())
        before = {} if "put" not in reached else BEFORE
        states = [{**BEFORE, **JOB}] if "committed" in reached else [before, {**BEFORE, **JOB}]
        if "put" not in reached:
            states += [{b"a": b"old"}, BEFORE]
        if "committed" in reached:
            states.append({**BEFORE, **JOB, b"c": b"later"})
            if "later" in reached:
                states = states[-1:]
        assert found in states, where
        done = found.get(b"d") == b"job"
        assert commit(store, image, "1") == done, where
        assert dict(store.items()) == (found if done else {**found, **JOB}), where
        assert store.put(b"after", b"crash") > 5 * ("put" in reached and done), where
        report = store.verify()
        assert report.ok, (where, report.problems)
        store.close()
        again = opened(image)
        assert again.get(b"after") == b"crash"
        assert again.get(b"d") == b"job"
        again.close()


def read_beside(disk: SimDisk) -> dict[bytes, bytes]:
    """What another process reads in a store that somebody else has open, or had."""
    now_ms = wall_clock_ms()
    there = pin(disk, "/store", 60_000, now_ms)
    reader: Any = PublishedReader(disk, there, lambda: now_ms, 64)
    bucket: Any = SnapshotBucket(reader, identity_of(disk, "/store"), b"")
    return dict(bucket.items())


def restored(disk: SimDisk) -> dict[bytes, bytes]:
    restore_on(disk, "/store", "/restored", sqn=None, time_ms=None, copy=False)
    store = octavo.Store(startup.start("/restored", Options(worker=False), disk))
    found = dict(store.items())
    store.close()
    return found


@pytest.mark.parametrize("look", [read_beside, restored])
def test_a_commit_that_is_not_decided_is_not_seen_by_who_reads_beside_it(
    look: Callable[[SimDisk], dict[bytes, bytes]],
) -> None:
    disk, images = SimDisk(), []
    store = opened(disk)
    for key, value in BEFORE.items():
        store.put(key, value)
    disk.before = lambda name: images.append(disk.after_crash("all"))
    commit(store, disk, "0")
    disk.before = None
    seen = [look(image) for image in [*images, disk.after_crash("all")]]
    decided = seen.index({**BEFORE, **JOB})
    assert seen[:decided] == [BEFORE] * decided
    assert seen[decided:] == [{**BEFORE, **JOB}] * (len(seen) - decided)
    assert 0 < decided < len(seen) - 1
    store.close()
