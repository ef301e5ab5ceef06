"""A job that a close has abandoned does not begin any more, however close behind it comes; for one
that has begun on a thread the close waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_actor import WAIT

from octavo.actors.worker import JobRunner
from octavo.files.door.disk import RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.files.errors import Closed
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
