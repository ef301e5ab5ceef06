"""Compaction cut off at every moment: by power cuts on a simulated disk, by SIGKILL of its worker
and of the store."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from compacted_store import SMALL_FILES, check, overwritten
from pykka import ActorRegistry
from simdisk import MODES, SimCrash, SimDisk
from whole_store import flush, opened, rolled

import octavo

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


class Expected:
    """What must be there, and the key of the operation under way, which may be or not."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.model: dict[bytes, bytes | None] = {}
        self.pending: bytes | None = None
        self.marks: list[int] = []  # the operations where the compactions begin and end

    def put(self, store: octavo.Store, key: bytes, value: bytes | None) -> None:
        self.pending = key
        if value is None:
            store.delete(key)
        else:
            store.put(key, value)
        self.model[key] = value
        self.pending = None

    def compact(self, store: octavo.Store) -> None:
        self.marks.append(self.disk.ops)
        store.compact()
        self.marks.append(self.disk.ops)

    def check(self, store: octavo.Store) -> None:
        there = dict(store.items())
        for key, value in self.model.items():
            if key != self.pending:
                assert store.get(key) == value, (key, store.get(key), value)
                assert there.get(key) == value, (key, there.get(key), value)
        assert set(there) <= {*self.model, self.pending}
        report = store.verify()
        assert report.ok, report.problems[:3]


def workload(disk: SimDisk) -> Expected:
    """Rolled files full of garbage, then two compactions, a few puts between them."""
    rng = random.Random(SEED)
    expected = Expected(disk)
    try:
        store = opened("/store", disk, sync="always", compact_every_seconds=None)
        for i in range(160):
            key = b"k%d" % rng.randrange(20)
            expected.put(store, key, None if i % 9 == 0 else b"%d" % i)
            if i % 40 == 39:
                rolled(store)
        for i in range(5):
            expected.put(store, b"gone%d" % i, b"x")
        rolled(store)
        for i in range(5):
            expected.put(store, b"gone%d" % i, None)
        expected.compact(store)
        for i in range(10):
            expected.put(store, b"k%d" % i, b"later")
        expected.compact(store)
        store.close()
    except SimCrash:
        # Their machine has no power: nobody must ask them anything any more.
        for ref in ActorRegistry.get_all():
            ActorRegistry.unregister(ref)
    return expected


def without_ledger(disk: SimDisk) -> None:
    for directory in ("/store/ledger", "/store/ledger/manifest"):
        for name in disk.listdir(directory):
            if name != "manifest":
                disk.unlink(f"{directory}/{name}")


@pytest.mark.usefixtures("small_reserve")
@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_at_any_operation_of_a_compaction_loses_nothing(mode: str) -> None:
    marks = workload(SimDisk()).marks
    assert len(marks) == 4
    points = [*range(marks[0], marks[1] + 1), *range(marks[2], marks[3] + 1)]
    step = int(os.environ.get("OCTAVO_CRASH_STEP", "1"))
    print(f"OCTAVO_SEED={SEED}: {len(points)} crash points, every {step}th, mode {mode}")
    assert len(points) > 60
    for point in points[::step]:
        disk = SimDisk()
        disk.crash_at(point)
        expected = workload(disk)
        image = disk.after_crash(mode, SEED + point)
        for again in ("as it is", "with a new ledger"):
            try:
                store = opened("/store", image, sync="always", compact_every_seconds=None)
                expected.check(store)
                store.compact()
                expected.check(store)
                store.close()
            except (AssertionError, octavo.OctavoError) as error:
                pytest.fail(f"OCTAVO_SEED={SEED}, point {point}, mode {mode}, {again}: {error}")
            without_ledger(image)


@pytest.mark.usefixtures("small_reserve")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize(
    "operation",
    ["create", "write", "pwrite", "sync", "rename", "sync_dir", "sync_held", "unlink"],
)
def test_an_io_error_at_any_moment_loses_nothing(operation: str, code: int) -> None:
    for nth in range(1, 100):
        disk = SimDisk()
        store = opened("/store", disk, compact_every_seconds=None)
        model: dict[bytes, bytes] = {}
        for i in range(160):
            model[b"k%d" % (i % 20)] = b"%d" % i
            store.put(b"k%d" % (i % 20), b"%d" % i)
            if i % 40 == 39:
                rolled(store)
        flush(store)
        disk.fail(operation, nth, code)
        try:
            store.compact()
            went_well = True
        except (octavo.StorageFull, octavo.StorageFailed):
            went_well = False
        assert {key: store.get(key) for key in model} == model, f"{operation} {nth}"
        disk.heal()
        if code == errno.ENOSPC:
            store.compact()  # nothing is poisoned by a full disk
            store.put(b"more", b"1")
            model[b"more"] = b"1"
        try:
            store.close()
        except octavo.OctavoError:
            assert code == errno.EIO
        store = opened("/store", disk, compact_every_seconds=None)
        check(store, model)
        store.compact()
        check(store, model)
        store.close()
        for name in disk.listdir("/store/journal"):
            assert not name.endswith(".tmp")
        if went_well and nth > 25:
            return
    raise AssertionError("more operations than there can be")


@pytest.mark.parametrize("when", range(4))
def test_a_worker_that_is_killed_is_replaced_and_the_job_done_again(
    tmp_path: Path, when: int
) -> None:
    with opened(tmp_path / "s", worker=True, compact_every_seconds=None, **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        flush(store)
        runner = store._running.inker_clerk.actor.runner
        ask = runner._ask
        left = [when]
        killed = threading.Event()

        def asked(process: subprocess.Popen[bytes], job: str, *rest: object) -> object:
            if left[0] == 0 and not killed.is_set():
                killed.set()
                process.send_signal(signal.SIGKILL)
                process.wait()
            left[0] -= 1
            return ask(process, job, *rest)

        runner._ask = asked
        done = store.compact()
        assert killed.is_set() or when > 2
        assert done.records_dropped > 3000
        check(store, model)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        check(store, model)
        listed = {file.name for file in store._inker.view.files}
        there = {path.name for path in (tmp_path / "s" / "journal").iterdir()}
        assert there - listed == {"manifest"}


def test_what_a_snapshot_reads_stays_where_a_worker_is_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "s", worker=True, compact_every_seconds=None, **SMALL_FILES) as store:
        before = overwritten(store, rng)
        with store.snapshot() as snap:
            store.compact()
            model = overwritten(store, rng)
            flush(store)
            runner = store._running.inker_clerk.actor.runner
            ask = runner._ask

            def asked(process: subprocess.Popen[bytes], job: str, *rest: object) -> object:
                if job == "compact":
                    runner._ask = ask
                    process.kill()
                    process.wait()
                return ask(process, job, *rest)

            runner._ask = asked
            store.compact()
            assert runner._ask == ask
            store._running.open_files._shrink(0)  # no map keeps what has no name any more
            assert dict(snap.items()) == before
        check(store, model)


COMPACTOR = """
import random, sys, octavo
path, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
store = octavo.open(path, push_rows=256, push_bytes=64 << 10, roll_count=256)
i = store.last_sqn
while True:
    for _ in range(200):
        key = b"k%d" % rng.randrange(50)
        i += 1
        if rng.random() < 0.2:
            store.delete(key)
            print(key.decode(), flush=True)
        else:
            value = "%d-%d" % (seed, i)
            store.put(key, value)
            print(key.decode(), value, flush=True)
    store.compact()
"""


def test_a_store_that_is_killed_while_it_compacts_has_what_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "s"
    rng = random.Random(SEED)
    model: dict[str, str | None] = {}
    for number in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", COMPACTOR, str(path), str(SEED + number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(rng.randrange(150, 1500))]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.read().splitlines(keepends=True)
        writer.stdout.close()
        writer.wait()
        for line in lines:
            if line.endswith("\n"):
                key, _, value = line.strip().partition(" ")
                model[key] = value or None
        with octavo.open(path) as store:
            wrong = 0
            for key, value in model.items():
                found = store.get(key)
                if found != (None if value is None else value.encode()):
                    wrong += 1  # the one that was under way when the signal came
                    model[key] = None if found is None else found.decode()
            assert wrong <= 1
            assert store.verify().ok
