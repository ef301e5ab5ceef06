"""Work of the Penciller's clerk that cannot be done, for want of room, because its workers are
killed, as the system does where memory runs out, or because a disk hangs: it is told of once, and
tried again."""

from __future__ import annotations

import errno
import logging
from itertools import pairwise

import pytest
from look import clock_ms
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import SimDisk
from whole_store import WallClock

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.penciller import Penciller
from octavo.actors.worker import JobRunner, WorkerDied

REASONS = [
    octavo.StorageFull("journal: no room; free some space"),
    WorkerDied("it was killed"),
    octavo.AskTimeout("no fsync ended within 60 s"),
]


def put(store: octavo.Store, pool: HeldPool, count: int) -> None:
    """Fewer than memory is pushed after."""
    for number in range(count):
        store.put(b"%d" % (number % 7), b"x")
    pool.go_on()


@pytest.mark.parametrize("why", REASONS, ids=lambda why: type(why).__name__)
def test_merging_that_could_not_be_done_is_tried_again_before_the_next_push(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: octavo.OctavoError
) -> None:
    clock, tries, real = WallClock(1_800_000_000_000), [], JobRunner.run

    def refused(runner: JobRunner, job: str, *blobs: bytes, **given: object) -> object:
        if job == "level_zero":
            tries.append(job)
            raise why
        return real(runner, job, *blobs, **given)

    with caplog.at_level(logging.WARNING, "octavo"), one_thread("waits") as pool:
        store = opened(SimDisk(), clock_ms=clock, push_bytes=64 << 20)
        monkeypatch.setattr(JobRunner, "run", refused)
        store.put("k", "v")
        store._running.bookie.call(Bookie.push)
        put(store, pool, 0)
        first = len(tries)
        assert first
        for _ in range(10):
            put(store, pool, 300)  # looks, but little time goes by
            clock.now += 100
        assert len(tries) == first
        for _ in range(3):
            clock.now += 6000
            put(store, pool, 300)
        assert len(tries) == 4 * first
        told = [(record.name, record.levelname) for record in caplog.records]
        assert told == [("octavo.clerk", "WARNING")]
        assert str(why) in caplog.text
        assert store._running.penciller.actor.directory in caplog.text
        monkeypatch.undo()
        assert store._bookie.view.frozen
        clock.now += 6000
        put(store, pool, 300)
        assert not store._bookie.view.frozen
        clock.now += 6000
        put(store, pool, 300)
        assert store.get("k") == b"v"
        assert store.verify().ok
        forget(store)


@pytest.mark.parametrize("why", REASONS, ids=lambda why: type(why).__name__)
def test_a_merge_whose_workers_are_killed_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, why: octavo.OctavoError
) -> None:
    """And no other one is, nor is the saving of level zero."""
    clock, real = WallClock(1_800_000_000_000), JobRunner.run
    tries: list[int] = []
    refusal = [why]

    def refused(runner: JobRunner, job: str, *blobs: bytes, **given: object) -> object:
        if job == "merge" and refusal:
            if tries[-1:] != [clock()]:  # a worker that is killed has two successors at once
                tries.append(clock())
            raise refusal[0]
        return real(runner, job, *blobs, **given)

    with one_thread("waits") as pool:
        store = opened(SimDisk(), clock_ms=clock, push_bytes=64 << 20)
        monkeypatch.setattr(JobRunner, "run", refused)

        def pushed(number: int) -> None:
            clock.now += 1
            store.put(b"%03d" % number, b"v")
            store._running.bookie.call(Bookie.push)
            pool.go_on()

        def waited() -> list[int]:
            """Seconds between the tries within twenty minutes in which there are puts."""
            tries.clear()
            for _ in range(1200):
                clock.now += 1000
                store._running.bookie.call(Bookie.attend)  # as every few hundred puts
                pool.go_on()
            return [(after - before) // 1000 for before, after in pairwise(tries)]

        number = 0
        while not tries:
            pushed(number := number + 1)
        killed = isinstance(why, WorkerDied)
        assert waited() == ([10, 20, 40, 80, *[160] * 6] if killed else [5] * 239)
        before = len(tries)
        for _ in range(3):
            pushed(number := number + 1)
        assert (len(tries) == before) == killed
        assert not store._bookie.view.frozen

        refusal[:] = [octavo.StorageFull("no room")]  # of another kind than the one before
        clock.now -= 3_600_000  # set back, it keeps nobody waiting
        assert waited() == [5] * 239
        refusal.clear()
        clock.now += 5000
        store._running.bookie.call(Bookie.attend)
        pool.go_on()
        assert len(store) == number
        assert store.verify().ok
        forget(store)


def test_behind_an_error_of_the_disk_nothing_is_tried_again_not_even_as_the_store_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, tries = SimDisk(), []

    def failing(runner: JobRunner, job: str, *blobs: bytes, **given: object) -> object:
        tries.append(job)
        raise OSError(errno.EIO, "the device cannot write")

    with one_thread("failed") as pool:
        store = opened(disk, clock_ms=clock_ms)
        with monkeypatch.context() as patch:
            patch.setattr(JobRunner, "run", failing)
            store.put("k", "v")
            store._running.bookie.call(Bookie.push)
            pool.go_on()
            store._running.clerk.actor.wake()
            pool.go_on()
            store.close()
        assert tries == ["level_zero"]
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert store.get("k") == b"v"
        forget(store)


def test_a_look_for_work_whose_turn_does_not_come_is_taken_again_before_the_next_push(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = WallClock(1_800_000_000_000)

    def too_late(_: Penciller) -> None:
        raise octavo.AskTimeout("Penciller did not get round to next_task within 60 s")

    with caplog.at_level(logging.WARNING, "octavo"), one_thread("no turn") as pool:
        store = opened(SimDisk(), clock_ms=clock, push_bytes=64 << 20)
        with monkeypatch.context() as patch:
            patch.setattr(Penciller, "next_task", too_late)
            store.put("k", "v")
            store._running.bookie.call(Bookie.push)
            put(store, pool, 0)
        assert store._bookie.view.frozen
        clock.now += 6000
        put(store, pool, 300)
        assert not store._bookie.view.frozen
        assert [(record.name, record.levelname) for record in caplog.records] == [
            ("octavo.clerk", "WARNING")
        ]
        forget(store)
