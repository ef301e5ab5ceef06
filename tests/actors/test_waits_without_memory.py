"""Threads that find no memory, for a moment, to wait with: what they are for goes on."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from octavo.actors.inker import Inker
from octavo.actors.keeping.inbox_watch import InboxWatch, Watched
from octavo.actors.opening.startup import Running
from octavo.actors.turns.pool import Pool
from octavo.actors.writing.group_commit import GroupCommit
from octavo.actors.writing.interval_sync import IntervalSync
from octavo.files.door import open_file
from octavo.files.errors import StorageFailed, StorageFull
from octavo.files.jobs.worker import failure, raised

WAIT = 300.0


def no_memory(*_: object) -> None:
    raise MemoryError


def test_a_pool_thread_that_cannot_wait_is_no_longer_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    pool, done = Pool(1, name="memory"), threading.Event()
    worked, began = [], threading.Event()

    def work() -> None:
        worked.append(threading.current_thread())
        began.set()

    with monkeypatch.context() as patch:
        patch.setattr(pool._wake, "wait", no_memory)
        pool.submit(work)
        assert began.wait(WAIT)
        worked[0].join(WAIT)
    assert pool.threads == 0
    pool.submit(done.set)
    assert done.wait(WAIT)


def test_a_sync_of_an_interval_without_memory_is_not_the_last() -> None:
    class Syncs:
        is_stopped = False
        last_sqn = 1
        calls = 0
        done = threading.Event()

        def make_durable(self, sqn: int) -> None:
            self.calls += 1
            if self.calls == 1:
                raise MemoryError
            self.done.set()

    syncs = Syncs()
    interval = IntervalSync(cast(Inker, syncs), 0.001)
    assert syncs.done.wait(WAIT)
    interval.stop()


def test_a_look_into_the_inboxes_without_memory_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Store:
        looks = 0
        done = threading.Event()

        def look(self) -> None:
            self.looks += 1
            if self.looks == 1:
                raise MemoryError
            self.done.set()

    watch, store = InboxWatch(), Store()
    watch._stores.add(cast(Watched, store))
    thread = threading.Thread(target=watch._run)
    thread.start()
    assert store.done.wait(WAIT)
    watch._stores.clear()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_sync_that_memory_was_short_for_may_be_tried_again() -> None:
    outcomes = [MemoryError, None]

    def sync() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    commit = GroupCommit(sync)
    commit.appended = 10
    with pytest.raises(MemoryError):
        commit.wait_durable(10, WAIT)
    commit.wait_durable(10, WAIT)
    assert commit.durable == 10


def test_a_failed_sync_whose_error_memory_was_short_for_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_file.os, "fdatasync", no_memory)
    commit = GroupCommit(lambda: open_file.sync_data(-1))
    commit.appended = 10
    with pytest.raises(StorageFailed):
        commit.wait_durable(10, WAIT)
    with pytest.raises(StorageFailed):
        commit.wait_durable(10, WAIT)


def test_a_job_without_memory_waits_for_some() -> None:
    assert isinstance(raised(failure(MemoryError())), StorageFull)


def test_inboxes_are_looked_into_though_the_thread_for_that_could_not_be_begun_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch, looked = InboxWatch(), threading.Event()

    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def look(_: Watched) -> None:
        looked.set()

    monkeypatch.setattr(Watched, "look", look)
    running = cast(Running, object())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(StorageFull):
            watch.add(running)
    watched = watch.add(running)
    assert looked.wait(50)
    assert watched is not None
    watch._stores.clear()
