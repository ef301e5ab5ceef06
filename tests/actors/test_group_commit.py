"""Group commit: one fsync for all who wait, and what a failed one means."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from behind_calls import behind_each_call, heard_by
from counting_actor import WAIT, run_threads

import octavo
from octavo.actors.writing import group_commit
from octavo.actors.writing.group_commit import GroupCommit
from octavo.files.door import open_file
from octavo.files.errors import AskTimeout, StorageFailed


class SlowDisk:
    """Each sync waits until it is let through."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.calls = 0

    def sync(self) -> None:
        self.calls += 1
        self.began.release()
        assert self.let.acquire(timeout=WAIT)


class Telling(GroupCommit):
    """Counts who begins to wait for another's sync."""

    def __init__(self, sync: Callable[[], None]) -> None:
        super().__init__(sync)
        self.follow = threading.Semaphore(0)

    def _enter(self, me: int, position: int) -> threading.Lock | None:
        ended = super()._enter(me, position)
        if ended is not None:
            self.follow.release()
        return ended


class Patient(Telling):
    """Counts whose leading begins with a wait for others, too, which takes as long as it takes."""

    def __init__(self, sync: Callable[[], None]) -> None:
        super().__init__(sync)
        self.gather = threading.Semaphore(0)

    def _lead(self, position: int) -> None:
        self._gather_seconds = WAIT
        if self._gathering is not None:
            self.gather.release()
        super()._lead(position)


def waiting(commit: GroupCommit, position: int, results: list[object]) -> threading.Thread:
    def body() -> None:
        try:
            commit.wait_durable(position, WAIT)
            results.append("durable")
        except (StorageFailed, AskTimeout) as error:
            results.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread


def test_nothing_is_synced_twice() -> None:
    calls: list[int] = []
    commit = GroupCommit(lambda: calls.append(1))
    commit.appended = 10
    commit.wait_durable(5, WAIT)
    commit.wait_durable(10, WAIT)
    assert len(calls) == 1
    assert commit.durable == 10


def test_all_who_come_during_a_sync_share_the_next_one() -> None:
    disk = SlowDisk()
    commit = Telling(disk.sync)
    results: list[object] = []
    commit.appended = 1
    threads = [waiting(commit, 1, results)]
    assert disk.began.acquire(timeout=WAIT)
    commit.appended = 9
    threads += [waiting(commit, position, results) for position in range(2, 10)]
    assert all(commit.follow.acquire(timeout=WAIT) for _ in range(8))
    disk.let.release()
    assert disk.began.acquire(timeout=WAIT)
    disk.let.release()
    for thread in threads:
        thread.join(WAIT)
    assert results == ["durable"] * 9
    assert disk.calls == 2


def test_what_is_appended_during_a_sync_is_not_covered_by_it() -> None:
    disk = SlowDisk()
    commit = GroupCommit(disk.sync)
    commit.appended = 1
    results: list[object] = []
    thread = waiting(commit, 1, results)
    assert disk.began.acquire(timeout=WAIT)
    commit.appended = 2
    disk.let.release()
    thread.join(WAIT)
    assert commit.durable == 1


def test_a_failed_sync_fails_all_and_is_never_tried_again() -> None:
    calls: list[int] = []

    def sync() -> None:
        calls.append(1)
        raise OSError(5, "Input/output error")

    commit = GroupCommit(sync)
    commit.appended = 3
    for _ in range(3):
        with pytest.raises(StorageFailed, match="Input/output error"):
            commit.wait_durable(3, WAIT)
    assert len(calls) == 1


def test_a_failed_sync_fails_who_waits_for_it_and_who_comes_later() -> None:
    disk = SlowDisk()

    def sync() -> None:
        disk.sync()
        raise OSError(5, "Input/output error")

    commit = Telling(sync)
    commit.appended = 4
    results: list[object] = []
    threads = [waiting(commit, 4, results)]
    assert disk.began.acquire(timeout=WAIT)
    threads += [waiting(commit, 4, results) for _ in range(3)]
    assert all(commit.follow.acquire(timeout=WAIT) for _ in range(3))
    disk.let.release()
    for thread in threads:
        thread.join(WAIT)
    threads.append(waiting(commit, 1, results))
    threads[-1].join(WAIT)
    assert [type(result) for result in results] == [StorageFailed] * 5
    assert len({id(result) for result in results}) == 5  # or their tracebacks would grow together
    assert disk.calls == 1


def test_a_sync_that_fails_in_our_own_words_is_never_tried_again_either() -> None:
    calls: list[int] = []

    def sync() -> None:
        calls.append(1)
        raise StorageFailed("the directory: gone")

    commit = GroupCommit(sync)
    commit.appended = 3
    for _ in range(3):
        with pytest.raises(StorageFailed, match="the directory: gone"):
            commit.wait_durable(3, WAIT)
    assert len(calls) == 1


def test_who_knows_of_a_position_before_its_writer_has_said_it_gets_it() -> None:
    calls: list[int] = []
    commit = GroupCommit(lambda: calls.append(1))
    commit.appended = 3
    commit.wait_durable(7, WAIT)
    assert commit.durable == 7
    commit.wait_durable(7, WAIT)
    assert len(calls) == 1


def test_eight_threads_need_far_fewer_syncs_than_they_make_waits() -> None:
    threads, waits = 8, 50
    changed = threading.Condition()
    appended: list[float] = [0.0] * threads  # by each thread; infinite when it is done
    position = 0

    def sync() -> None:
        # Slow: until everyone has appended something that is not durable yet.
        with changed:
            assert changed.wait_for(lambda: min(appended) > commit.durable, WAIT)

    commit = GroupCommit(sync)

    def body(number: int) -> None:
        nonlocal position
        for _ in range(waits):
            with changed:
                position += 1
                mine = position
                commit.appended = mine
                appended[number] = mine
                changed.notify_all()
            commit.wait_durable(mine, WAIT)
            assert commit.durable >= mine
        with changed:
            appended[number] = math.inf
            changed.notify_all()

    assert run_threads(threads, body) == []
    assert commit.durable == threads * waits
    assert commit.syncs <= threads * waits // 2


def test_an_interrupted_leader_breaks_nothing() -> None:
    answers: list[BaseException | None] = [KeyboardInterrupt(), None]

    def sync() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    commit = GroupCommit(sync)
    commit.appended = 3
    with pytest.raises(KeyboardInterrupt):
        commit.wait_durable(3, WAIT)
    assert commit.durable == 0
    commit.wait_durable(3, WAIT)
    assert commit.durable == 3


def test_a_follower_has_a_deadline() -> None:
    disk = SlowDisk()
    commit = GroupCommit(disk.sync)
    commit.appended = 1
    results: list[object] = []
    leader = waiting(commit, 1, results)
    assert disk.began.acquire(timeout=WAIT)
    with pytest.raises(AskTimeout):
        commit.wait_durable(1, 0.01)
    disk.let.release()
    leader.join(WAIT)
    assert results == ["durable"]


def test_a_leader_waits_a_moment_for_as_many_as_came_the_last_time() -> None:
    commit = GroupCommit(lambda: None)
    commit._crowd, commit._gather_seconds = 3, WAIT
    results: list[object] = []
    threads = []
    for position in (1, 2, 3):
        commit.appended = position
        threads.append(waiting(commit, position, results))
    for thread in threads:
        thread.join(WAIT)
    assert results == ["durable"] * 3
    assert commit.syncs == 1
    assert commit._crowd == 3


def test_who_was_late_for_a_sync_waits_for_those_it_served_to_come_again() -> None:
    disk = SlowDisk()
    commit = Patient(disk.sync)
    results: list[object] = []
    threads = []

    def come(position: int) -> None:
        commit.appended = position
        threads.append(waiting(commit, position, results))

    come(1)
    assert disk.began.acquire(timeout=WAIT)
    come(2)
    assert commit.follow.acquire(timeout=WAIT)
    disk.let.release()
    assert commit.gather.acquire(timeout=WAIT)
    come(3)
    assert disk.began.acquire(timeout=WAIT)
    disk.let.release()
    for thread in threads:
        thread.join(WAIT)
    assert (results, commit.syncs) == (["durable"] * 3, 2)


def test_a_leader_that_is_alone_waits_for_nobody() -> None:
    commit = GroupCommit(lambda: None)
    for position in (1, 2):
        commit.appended = position
        commit.wait_durable(position, WAIT)
    assert (commit.syncs, commit._crowd) == (2, 1)


@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError])
def test_what_a_handler_raises_during_a_sync_is_no_sync_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    plain = open_file.sync_data

    def too_late(number: int, frame: object) -> None:
        raise kind("too late")

    def during(fd: int) -> None:
        monkeypatch.setattr(open_file, "sync_data", plain)
        signal.raise_signal(signal.SIGALRM)

    with heard_by(too_late, signal.SIGALRM), octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"1", sync=True)
        monkeypatch.setattr(open_file, "sync_data", during)
        with pytest.raises(kind, match="too late"):
            store.put(b"k", b"2", sync=True)
        assert store.put(b"k", b"3", sync=True) == store.last_sqn
        assert store[b"k"] == b"3"


def test_a_timeout_that_a_handler_raises_during_a_put_is_no_write_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(number: int, frame: object) -> None:
        raise TimeoutError("too late")

    def during(*_: object) -> int:
        signal.raise_signal(signal.SIGALRM)
        return 0

    with heard_by(too_late, signal.SIGALRM), octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"1")
        with monkeypatch.context() as patched:
            patched.setattr(open_file.RealFile, "pwrite", during)
            with pytest.raises(TimeoutError, match="too late"):
                store.put(b"k", b"2")
        store.put(b"k", b"3")
        assert store[b"k"] == b"3"


def by_a_commit(frame: FrameType, called: str) -> bool:
    """Whether group commits make a call of C, also by what they call."""
    within: FrameType | None = frame
    while within is not None and within.f_code.co_filename != group_commit.__file__:
        within = within.f_back
    return within is not None


def test_a_follower_that_is_interrupted_anywhere_lets_go_of_no_lock_of_others() -> None:
    disk = SlowDisk()
    commit = GroupCommit(disk.sync)
    commit.appended = 1
    results: list[object] = []
    leader = waiting(commit, 1, results)
    assert disk.began.acquire(timeout=WAIT)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def follow() -> None:
        with pytest.raises((KeyboardInterrupt, AskTimeout)):
            commit.wait_durable(1, 0.01)

    try:
        with heard_by(interrupt):
            assert behind_each_call(follow, by_a_commit) > 5
    finally:
        disk.let.release()
        leader.join(WAIT)
    assert results == ["durable"]


def test_a_handler_may_sync_wherever_its_own_thread_leads() -> None:
    commit = GroupCommit(lambda: signal.pthread_kill(threading.get_ident(), 0))

    def append(*_: object) -> None:
        commit.appended += 1
        commit._crowd = 2  # so that it waits for one more
        commit.wait_durable(commit.appended, 0.1)

    with heard_by(append):
        assert behind_each_call(append, by_a_commit) > 5
    assert commit.durable == commit.appended
    assert commit._leader == 0
