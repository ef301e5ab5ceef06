"""Where a worker process cannot run, its jobs are done on a thread; and it finds what its owner
finds."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.actors import worker, worker_pipe
from octavo.actors.worker import JobRunner, WorkerDied
from octavo.files.door.disk import RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.files.jobs import worker as worker_of_jobs


def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Have workers started by a program that is none."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def merge_of_nothing(runner: JobRunner, directory: Path, close: bool = True) -> dict[str, Any]:
    try:
        return runner.run(
            "merge", ledger=str(directory), stem="m", inputs=[], basement=True, now_ms=0,
            max_rows=1, max_bytes=1, levels=[],
        )  # fmt: skip
    finally:
        if close:
            runner.close()


def test_one_that_ends_before_its_first_answer_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    interpreter(tmp_path, monkeypatch, "exit 1")
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    assert merge_of_nothing(runner, tmp_path)["files"] == []
    assert "cannot run" in caplog.text


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
def test_a_moment_in_which_none_can_be_started_is_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def none(*arguments: Any, **given: Any) -> None:
        raise OSError(reason, os.strerror(reason))

    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    with monkeypatch.context() as moment:
        moment.setattr(subprocess, "Popen", none)
        assert merge_of_nothing(runner, tmp_path, close=False)["files"] == []
    assert runner._process is None
    assert merge_of_nothing(runner, tmp_path, close=False)["files"] == []
    assert runner._process is not None
    runner.close()


def test_what_a_site_prints_as_its_python_begins_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(tmp_path, monkeypatch, f'echo Welcome; exec "{sys.executable}" "$@"')
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    assert merge_of_nothing(runner, tmp_path)["files"] == []
    assert not runner._in_process


def test_one_that_was_killed_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter(tmp_path, monkeypatch, "kill -9 $$")
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    with pytest.raises(WorkerDied):
        merge_of_nothing(runner, tmp_path)


@pytest.mark.parametrize("does", ["exec sleep 1000", "echo What?"], ids=["stays", "ends"])
def test_of_programs_that_say_no_first_word_there_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, does: str
) -> None:
    interpreter(tmp_path, monkeypatch, f"echo >> '{tmp_path}/started'; {does}")
    monkeypatch.setattr(worker_pipe, "LOOK_SECONDS", 0.2)
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    with pytest.raises(WorkerDied, match="try again"):
        merge_of_nothing(runner, tmp_path, close=False)
    for _ in range(3):
        assert merge_of_nothing(runner, tmp_path, close=False)["files"] == []
    runner.close()
    assert "said nothing, twice" in caplog.text
    assert len((tmp_path / "started").read_text()) <= 2


def test_a_frozen_program_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(tmp_path, monkeypatch, f"touch '{tmp_path}/started'; exit 1")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    assert merge_of_nothing(runner, tmp_path)["files"] == []
    assert not (tmp_path / "started").exists()


def test_without_what_waits_for_pipes_none_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(tmp_path, monkeypatch, f"touch '{tmp_path}/started'; exit 1")
    monkeypatch.delattr(select, "poll")  # as eventlet does
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    assert merge_of_nothing(runner, tmp_path)["files"] == []
    assert not (tmp_path / "started").exists()


def test_it_looks_for_modules_where_its_owner_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(tmp_path, monkeypatch, f'echo "$PYTHONPATH" > "{tmp_path}/told"; exit 1')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["vendor", *sys.path])
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    merge_of_nothing(runner, tmp_path)
    told = (tmp_path / "told").read_text().strip().split(os.pathsep)
    others = [each for each in told if not each.startswith(os.path.dirname(os.__file__))]
    assert others[0] == str(tmp_path / "vendor"), "from where the owner stands, not the worker"
    assert set(filter(os.path.isabs, sys.path)) <= set(told)


def test_a_program_s_own_modules_take_no_place_of_python_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "resource.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    assert merge_of_nothing(runner, tmp_path)["files"] == []
    assert not runner._in_process


_NAMED = """
import sys, octavo
with octavo.open(sys.argv[1]) as store:
    store.put_many((f"{n}", b"v" * 200) for n in range(20))
    store.compact()
    print([kind for kind, jobs in store.stats()["jobs"]["totals"].items() if jobs["failures"]])
"""


def test_it_has_its_owners_names_of_files_whatever_the_locale(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # which knows no \xfc
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", _NAMED, str(tmp_path / "b\xfccher")],
        env={**os.environ, **plain},
        capture_output=True,
        check=False,
    )
    assert done.stdout.strip() == b"[]", done.stderr


def test_what_lies_in_the_directory_it_begins_in_is_none_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(tmp_path, monkeypatch, f'echo "$@" > "{tmp_path}/told"; exit 1')
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    merge_of_nothing(runner, tmp_path)
    told = (tmp_path / "told").read_text().split()
    assert "-P" in told[: told.index("-m")]


def test_one_that_died_at_rest_is_followed_by_another(tmp_path: Path) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    merge_of_nothing(runner, tmp_path, close=False)
    process = runner._process
    assert process is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert merge_of_nothing(runner, tmp_path, close=False)["files"] == []
    assert runner._process is not process
    runner.close()


def test_one_that_owes_an_answer_is_asked_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who asked was interrupted, and again as it was to be ended: the answer is none to this job.
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    merge_of_nothing(runner, tmp_path, close=False)
    process = runner._process

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker_of_jobs, "receive", interrupted)
        patch.setattr(worker, "_kill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            merge_of_nothing(runner, tmp_path, close=False)
    assert runner._process is process
    assert merge_of_nothing(runner, tmp_path, close=False)["files"] == []
    assert runner._process is not process
    runner.close()


def test_one_that_ends_with_an_error_behind_its_first_answer_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    merge_of_nothing(runner, tmp_path, close=False)
    runner.rest()
    with monkeypatch.context() as patch:
        interpreter(tmp_path, patch, "exit 1")
        with pytest.raises(WorkerDied, match="died with 1"):
            merge_of_nothing(runner, tmp_path, close=False)
    assert merge_of_nothing(runner, tmp_path, close=False)["files"] == []
    assert runner._process is not None
    runner.close()
