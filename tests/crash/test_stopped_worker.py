"""A worker process that was stopped, and so neither works nor dies: no one waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import no_hang

import octavo
from octavo.actors import worker as worker_module
from octavo.actors import worker_pipe
from octavo.actors.turns.runtime import TurnActor
from octavo.actors.worker import JobRunner, WorkerDied
from octavo.actors.worker_pipe import Silent, WorkerPipe
from octavo.files.door.disk import RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.files.jobs import worker

# Says when the job is there; ends it at a line on the other input, whenever that comes.
SLOW = """
import os, sys
from octavo.files.jobs import table, worker
worker.BEAT_SECONDS = 0.01
end = int(sys.argv.pop())
table.JOBS["slow"] = lambda disk, blob: {"read": os.read(end, 1).decode(), "blob": len(blob)}
worker.main()
"""


class _FirstIsStopped:
    """Stops the first worker process that is given a job, and gives it up at once."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.stopped: list[int] = []
        started: Callable[[JobRunner], subprocess.Popen[bytes] | None] = JobRunner._started
        sign = worker_pipe._sign

        def first(runner: JobRunner) -> subprocess.Popen[bytes] | None:
            process = started(runner)
            if process is not None and not self.stopped:
                self.stopped.append(process.pid)
                os.kill(process.pid, signal.SIGSTOP)
            return process

        def signed(wanted: Any) -> None:
            if len(self.stopped) == 1:
                self.stopped.append(0)
                raise Silent
            sign(wanted)

        patched.setattr(JobRunner, "_started", first)
        patched.setattr(worker_pipe, "_sign", signed)


@pytest.mark.parametrize("what", ["compact", "close"])
def test_another_one_does_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    rows = {b"%05d" % number: b"%d" % number for number in range(20_000)}
    with octavo.open(tmp_path / "s", compact_every_seconds=None) as store:
        store.put_many(rows)
        with monkeypatch.context() as patched:
            first = _FirstIsStopped(patched)
            store.compact() if what == "compact" else store.close()
            assert len(first.stopped) == 2
        with pytest.raises(ProcessLookupError):
            os.kill(first.stopped[0], 0)  # it was ended, and waited for
    with octavo.open(tmp_path / "s") as store:
        assert dict(store.items()) == rows
        assert store.verify().ok


def test_the_error_of_what_is_not_tried_again_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    with monkeypatch.context() as patched:
        _FirstIsStopped(patched)
        with pytest.raises(WorkerDied, match=r"no sign of life for 30 s of 'merge'.*try again"):
            _merge_of_nothing(runner, tmp_path)
    assert _merge_of_nothing(runner, tmp_path)["files"] == []
    runner.close()


def _merge_of_nothing(runner: JobRunner, directory: Path) -> dict[str, Any]:
    return runner.run(
        "merge", ledger=str(directory), stem="m", inputs=[], basement=True, now_ms=0,
        max_rows=1, max_bytes=1, levels=[],
    )  # fmt: skip


@pytest.fixture
def slow() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A worker whose job "slow" ends when a byte is written to the number."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(read)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(read,),
    )
    os.close(read)
    with process:
        try:
            yield process, write
        finally:
            process.kill()
            os.close(write)


def test_a_worker_says_that_it_is_alive_while_a_job_runs(
    slow: tuple[subprocess.Popen[bytes], int],
) -> None:
    process, end = slow
    assert process.stdin is not None
    assert process.stdout is not None
    worker.pass_by_what_was_printed(process.stdout)
    worker.send(process.stdin, {"job": "slow", "arguments": {}}, (b"four",))
    for _ in range(3):
        assert worker.receive(process.stdout) == ({"alive": True}, [])
    os.write(end, b"!")
    while (answer := worker.receive(process.stdout)[0]) == {"alive": True}:
        pass
    assert answer == {"result": {"read": "!", "blob": 4}}


def test_a_long_job_is_waited_for_and_its_signs_of_life_are_not_answers(
    slow: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, end = slow
    signs: list[object] = []
    receive = worker.receive

    def counted(source: Any) -> Any:
        found = receive(source)
        signs.append(found)
        if len(signs) == 5:
            os.write(end, b"!")
        return found

    monkeypatch.setattr(worker, "receive", counted)
    monkeypatch.setattr(worker_pipe, "LOOKS", 100)  # it may begin late on a busy machine
    blob = bytes(1 << 20)  # more than a pipe holds
    assert WorkerPipe(process).ask("slow", (blob,), {}) == {
        "result": {"read": "!", "blob": len(blob)}
    }
    assert len(signs) > 5


@pytest.mark.parametrize("blob", [b"", bytes(1 << 20)], ids=["answers nothing", "takes nothing in"])
def test_a_stopped_worker_is_given_up_after_some_looks(
    slow: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch, blob: bytes
) -> None:
    process, _ = slow
    pipe = WorkerPipe(process)
    worker.pass_by_what_was_printed(pipe)
    pipe.begun = True
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(worker_pipe, "LOOK_SECONDS", 0.001)
    with no_hang(20), pytest.raises(Silent):
        pipe.ask("slow", (blob,), {})


def test_a_close_ends_one_that_was_stopped_as_it_rested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None), in_process=False)
    nothing = {"inputs": [], "basement": True, "now_ms": 0, "max_rows": 1, "max_bytes": 1}
    runner.run("merge", ledger=str(tmp_path), stem="m", levels=[], **nothing)
    process = runner._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    monkeypatch.setattr(worker_module, "_GRACE_SECONDS", 0.0)
    try:
        with no_hang(20):
            runner.close()
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_all_looks_together_take_less_than_an_ask_waits() -> None:
    assert worker.BEAT_SECONDS * 2 < worker_pipe.LOOK_SECONDS * worker_pipe.LOOKS
    assert worker_pipe.LOOK_SECONDS * worker_pipe.LOOKS < TurnActor.DEADLINE_SECONDS
