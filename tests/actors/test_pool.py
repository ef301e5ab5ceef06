"""The pool that serves inboxes: few threads, and none for long without work."""

from __future__ import annotations

import threading
import weakref

import pytest

from octavo.actors.turns.pool import Pool

WAIT = 300.0


def threads_of(name: str) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(f"octavo-{name}-")]


def test_there_are_never_more_threads_than_allowed() -> None:
    pool, go, done = Pool(3, 0.01, "few"), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        go.wait(WAIT)
        done.release()

    for _ in range(50):
        pool.submit(work)
    assert pool.threads == len(threads_of("few")) == 3
    go.set()
    assert all(done.acquire(timeout=WAIT) for _ in range(50))
    for thread in threads_of("few"):  # or a second run in this process would count them
        thread.join(WAIT)


def test_a_thread_without_work_leaves() -> None:
    pool, done = Pool(3, 0.01, "idle"), threading.Event()
    pool.submit(done.set)
    for thread in threads_of("idle"):
        thread.join(WAIT)
    assert done.is_set()
    assert threads_of("idle") == []
    assert pool.threads == 0


def test_a_failing_piece_of_work_is_logged_and_costs_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, done = Pool(1, name="failing"), threading.Event()

    def work() -> None:
        raise SystemExit("by mistake")

    pool.submit(work)
    pool.submit(done.set)
    assert done.wait(WAIT)
    assert "by mistake" in caplog.text


def test_work_waits_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool, done = Pool(1, name="scarce"), threading.Semaphore(0)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", start)
        pool.submit(done.release)
    assert pool.threads == 0
    assert "can't start new thread" in caplog.text
    pool.submit(done.release)
    assert done.acquire(timeout=WAIT)
    assert done.acquire(timeout=WAIT)


def test_a_thread_whose_start_is_interrupted_behind_its_beginning_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, done, go = Pool(1, name="begun"), threading.Semaphore(0), threading.Event()
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        raise KeyboardInterrupt

    def work() -> None:
        go.wait(WAIT)
        done.release()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(work)
    pool.submit(work)
    assert pool.threads == len(threads_of("begun")) == 1
    go.set()
    assert all(done.acquire(timeout=WAIT) for _ in range(2))


def test_work_that_comes_just_as_a_thread_gives_up_waiting_for_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, done = Pool(1, 0.01, "late"), threading.Event()

    def waited(_: float) -> bool:
        """Nobody woke it; but before it has the lock again there is work for it."""
        monkeypatch.undo()
        pool._lock.release()
        pool.submit(done.set)
        pool._lock.acquire()
        return False

    monkeypatch.setattr(pool._wake, "wait", waited)
    pool.submit(lambda: None)
    for thread in threads_of("late"):
        thread.join(WAIT)
    assert done.is_set()


def test_an_idle_thread_keeps_nothing_of_its_last_work(monkeypatch: pytest.MonkeyPatch) -> None:
    go, looked, left = threading.Event(), threading.Event(), list[object]()

    class Work:
        def __call__(self) -> None:
            go.wait(WAIT)

    pool, work = Pool(1, name="kept"), Work()
    kept = weakref.ref(work)

    def waited(_: float) -> bool:
        left.append(kept())
        looked.set()
        return False

    monkeypatch.setattr(pool._wake, "wait", waited)
    pool.submit(work)
    del work
    go.set()
    assert looked.wait(WAIT)
    assert left == [None]
