"""Group commit: one fsync for all who wait, and what a failed one means."""

from __future__ import annotations

import threading

import pytest

from octavo.actors.group_commit import GroupCommit
from octavo.files.errors import AskTimeout, StorageFailed

WAIT = 10.0


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
    commit = GroupCommit(disk.sync)
    results: list[object] = []
    commit.appended = 1
    threads = [waiting(commit, 1, results)]
    assert disk.began.acquire(timeout=WAIT)
    commit.appended = 9
    threads += [waiting(commit, position, results) for position in range(2, 10)]
    while commit._followers < 8:
        pass  # until all eight wait; they can do nothing else
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
