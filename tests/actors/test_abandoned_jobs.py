"""A job that a close has abandoned does not begin any more, however close behind it comes; one that
a worker process has begun is ended, and for one that has begun on a thread the close waits."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_actor import WAIT
from whole_store import no_hang

from octavo.actors.worker import JobRunner, WorkerDied
from octavo.actors.worker_pipe import WorkerPipe
from octavo.files.door.disk import RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.files.errors import Closed, StorageFull
from octavo.files.jobs.table import JOBS


@pytest.fixture(params=[False, True], ids=["process", "thread"])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobRunner]:
    made = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None), in_process=request.param)
    yield made
    made.close()


def merge_of_nothing(runner: JobRunner, directory: Path) -> dict[str, Any]:
    return runner.run(
        "merge", ledger=str(directory), stem="m", inputs=[], basement=True, now_ms=0,
        max_rows=1, max_bytes=1, levels=[],
    )  # fmt: skip


def test_it_is_refused(runner: JobRunner, tmp_path: Path) -> None:
    runner.abandon("merge")
    with pytest.raises(Closed, match="next opening"):
        merge_of_nothing(runner, tmp_path)


def test_another_one_runs(runner: JobRunner, tmp_path: Path) -> None:
    runner.abandon("seal")
    assert merge_of_nothing(runner, tmp_path)["files"] == []


def test_a_close_waits_for_the_job_of_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever opens the store next would find it still changing files.
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None), in_process=True)
    began, closing, closed = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def job(disk: RealDisk) -> dict[str, Any]:
        began.set()
        assert closing.wait(WAIT)
        closed.wait(0.3)  # a close that does not wait comes in here
        order.append("job")
        return {}

    monkeypatch.setitem(JOBS, "seal", job)
    monkeypatch.setattr(runner, "_drop", closing.set)
    thread = threading.Thread(target=runner.run, args=("seal",))
    thread.start()
    assert began.wait(WAIT)
    runner.close()
    order.append("closed")
    closed.set()
    thread.join(WAIT)
    assert order == ["job", "closed"]


def test_it_is_refused_while_its_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    started: Callable[[], Any] = runner._started

    def abandoned_meanwhile() -> Any:
        process = started()
        runner.abandon("merge")
        return process

    monkeypatch.setattr(runner, "_started", abandoned_meanwhile)
    with pytest.raises(Closed, match="next opening"):
        merge_of_nothing(runner, tmp_path)
    runner.close()


def test_none_begins_behind_a_close(runner: JobRunner, tmp_path: Path) -> None:
    # What it changes may be another owner's by then.
    runner.close()
    with pytest.raises(Closed):
        merge_of_nothing(runner, tmp_path)
    assert runner._process is None


def test_none_begins_that_was_cut_off_while_its_process_was_about_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    started: Callable[[], Any] = runner._started

    def cut_off_before() -> Any:
        runner.cut_off()  # which finds no process to end
        return started()

    monkeypatch.setattr(runner, "_started", cut_off_before)
    with pytest.raises(Closed):
        merge_of_nothing(runner, tmp_path)
    assert runner._process is None
    runner.close()


def test_none_begins_in_a_store_that_was_replaced(tmp_path: Path) -> None:
    # A worker knows it by its path, where another store may stand by now.
    lock = FileLock(f"{tmp_path}/LOCK", lambda: None, stands=lambda: False)
    runner = JobRunner(RealDisk(), lock)
    with pytest.raises(OSError, match="replaced") as raised:
        merge_of_nothing(runner, tmp_path)
    assert raised.value.errno == errno.ESTALE
    assert runner._process is None


def test_the_process_of_one_that_is_abandoned_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    ask = WorkerPipe.ask

    def abandoned_meanwhile(pipe: WorkerPipe, *given: Any) -> dict[str, Any]:
        process = runner._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)  # so that it is at it
        runner.abandon("merge")
        return ask(pipe, *given)

    monkeypatch.setattr(WorkerPipe, "ask", abandoned_meanwhile)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        merge_of_nothing(runner, tmp_path)
    runner.close()


def test_who_closes_in_the_midst_of_its_own_job_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a signal's handler may that comes in it.
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None), in_process=True)

    def job(disk: RealDisk) -> dict[str, Any]:
        runner.close()
        return {}

    monkeypatch.setitem(JOBS, "seal", job)
    with no_hang(20):
        assert runner.run("seal") == {}


def test_one_that_finds_no_memory_on_a_thread_waits_for_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None), in_process=True)

    def job(disk: RealDisk) -> dict[str, Any]:
        raise MemoryError

    monkeypatch.setitem(JOBS, "seal", job)
    with pytest.raises(StorageFull, match="no memory"):
        runner.run("seal")
