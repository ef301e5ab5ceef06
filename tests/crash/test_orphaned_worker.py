"""A worker of a killed owner: the next owner begins when it has left, not before. A worker that is
killed itself: what it was for says so, and can be tried again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from whole_store import flush, opened

import octavo
from octavo.actors.worker import JobRunner, WorkerDied
from octavo.files.door import file_lock
from octavo.files.door.disk import TEMPORARY_SUFFIX
from octavo.files.jobs import worker

# The worker stops itself in the middle of a job, as a slow disk would stop it.
STOPPED_WORKER = """
import os, signal, sys, octavo
from octavo.actors.worker import JobRunner
ask = JobRunner._ask
def asked(self, process, *rest):
    os.kill(process.pid, signal.SIGSTOP)
    print(process.pid, flush=True)
    return ask(self, process, *rest)
JobRunner._ask = asked
store = octavo.open(sys.argv[1], push_rows=256, compact_every_seconds=None)
number = 0
while True:
    store.put("k%d" % number, b"v" * 100)
    number += 1
"""


def stopped_worker_of_a_killed_owner(path: Path) -> int:
    owner = subprocess.Popen(
        [sys.executable, "-c", STOPPED_WORKER, str(path)], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    worker = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    return worker


def test_the_next_owner_waits_for_the_worker_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = stopped_worker_of_a_killed_owner(tmp_path / "s")
    waits = []

    def waiting(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.kill(left, signal.SIGCONT)

    monkeypatch.setattr(file_lock, "_wait", waiting)
    with octavo.open(tmp_path / "s") as store:
        assert len(store) >= 256
        assert store.verify().ok
    assert len(waits) >= 3


def test_a_worker_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = stopped_worker_of_a_killed_owner(tmp_path / "s")
    try:
        monkeypatch.setattr(file_lock, "_LONGEST_WAIT", 0.01)
        with pytest.raises(octavo.StoreLocked, match="worker process"):
            octavo.open(tmp_path / "s")
    finally:
        os.kill(left, signal.SIGKILL)
    monkeypatch.undo()
    with octavo.open(tmp_path / "s") as store:
        assert len(store) >= 256


# A child that has not yet begun its program has what its parent had open; this one begins none.
STARTING = """
import subprocess, sys, octavo
from octavo.files.door import file_lock
store = octavo.open(sys.argv[1])
((descriptors, _),) = file_lock._held.values()
subprocess.Popen(["cat"], pass_fds=descriptors[:1])
print("started", flush=True)
sys.stdin.read()
"""


def killed_as_it_starts_a_worker(path: Path) -> IO[bytes]:
    """What is closed to have the worker give up the lock."""
    owner = subprocess.Popen(
        [sys.executable, "-c", STARTING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"started\n"
    owner.kill()
    owner.wait()
    owner.stdout.close()
    return owner.stdin


def test_the_next_owner_waits_for_what_a_killed_one_was_about_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = killed_as_it_starts_a_worker(tmp_path / "s")
    waits = []

    def waiting(seconds: float) -> None:
        waits.append(seconds)
        left.close()

    monkeypatch.setattr(file_lock, "_MOMENT", 600.0)
    monkeypatch.setattr(file_lock, "_wait", waiting)
    octavo.open(tmp_path / "s").close()
    assert waits


def test_what_stays_with_the_lock_of_a_killed_owner_keeps_it_after_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "_MOMENT", 0.01)
    with (
        killed_as_it_starts_a_worker(tmp_path / "s"),
        pytest.raises(octavo.StoreLocked, match=r"process \d+: it is gone"),
    ):
        octavo.open(tmp_path / "s")


HANGING = """
import signal
from octavo.files.jobs import table, worker
table.JOBS["hang"] = lambda disk: print("hangs", flush=True) or signal.pause()
worker.main()
"""


def test_a_worker_leaves_in_the_middle_of_a_job_when_its_input_closes() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    worker.send(process.stdin, {"job": "hang", "arguments": {}})
    assert process.stderr.readline() == b"hangs\n"
    process.stdin.close()
    assert process.wait(timeout=300) == 0
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("what", ["backup", "publish"])
def test_a_worker_that_dies_as_it_seals_is_told_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with octavo.open(tmp_path / "s", compact_every_seconds=None) as store:
        store.put("k", b"v")

        def call() -> object:
            if what == "backup":
                return store.backup(tmp_path / "b")
            return store.snapshot().publish("p")

        with monkeypatch.context() as patched:
            ask = JobRunner._ask

            def asked(self: JobRunner, process: subprocess.Popen[bytes], *rest: Any) -> Any:
                process.kill()
                process.wait()
                return ask(self, process, *rest)

            patched.setattr(JobRunner, "_ask", asked)
            with pytest.raises(WorkerDied, match="try again"):
                call()
            store.put("l", b"w")
        call()
        assert store.verify().ok


def test_a_worker_that_is_killed_as_it_compacts_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []
    run = JobRunner.run

    def killed_once(self: JobRunner, job: str, *blobs: bytes, **given: Any) -> dict[str, Any]:
        found = run(self, job, *blobs, **given)
        if job in killed or job not in ("survey_deltas", "compact"):
            return found
        killed.append(job)
        if job == "compact":
            assert len(found["files"]) > 1
            last = f"{given['journal']}/{found['files'][-1]['name']}"
            os.rename(last, last + TEMPORARY_SUFFIX)  # of which it was in the midst
        raise WorkerDied("killed")

    monkeypatch.setattr(JobRunner, "run", killed_once)
    options = {"strategies": {"standard": "retain"}, "roll_size_bytes": 1 << 20}
    with opened(tmp_path / "s", compact_every_seconds=None, **options) as store:
        for version in (b"old", b"new"):
            store.put_many((b"%02d" % key, version + os.urandom(50_000)) for key in range(60))
        assert store.compact().records_dropped == 0  # what is left of each is its key
        assert killed == ["survey_deltas", "compact"]
        assert store._inker.active is not None
        there = {path.name for path in (tmp_path / "s" / "journal").iterdir() if path.is_file()}
        named = {entry.name for entry in store._inker.manifest.entries}
        assert there == {*named, store._inker.active.name}
        assert [value[:3] for value in store.values()] == [b"new"] * 60
        assert store.verify().ok


@pytest.mark.parametrize("what", ["level_zero", "merge"])
def test_of_a_worker_that_is_killed_as_it_merges_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    killed: list[int] = []
    run = JobRunner.run

    def killed_once(self: JobRunner, job: str, *blobs: bytes, **given: Any) -> dict[str, Any]:
        found = run(self, job, *blobs, **given)
        if job == what and not killed:
            killed.append(len(found["files"]))
            raise WorkerDied("killed")
        return found

    monkeypatch.setattr(JobRunner, "run", killed_once)
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for version in range(5):
            store.put_many((b"%02d" % key, b"%d" % version) for key in range(60))
            flush(store)
        assert killed == [1]
        levels = store._running.penciller.actor.manifest.levels
        assert {path.name for path in (tmp_path / "s" / "ledger").glob("*.sst")} == {
            entry.name for level in levels for entry in level
        }
        assert store.verify().ok


def test_a_close_whose_workers_are_killed_says_nothing_for_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a container that is short of memory."""

    def killed(self: JobRunner, job: str, *blobs: bytes, **given: Any) -> dict[str, Any]:
        if job == "level_zero":
            raise WorkerDied("killed")
        return run(self, job, *blobs, **given)

    run = JobRunner.run
    with monkeypatch.context() as patched:
        patched.setattr(JobRunner, "run", killed)
        with octavo.open(tmp_path / "s", push_rows=1 << 20) as store:
            store.put_many((b"%05d" % key, b"v") for key in range(20_000))
    assert "memory is not saved" in caplog.text
    with octavo.open(tmp_path / "s") as store:
        assert len(store) == 20_000
        assert store.stats()["notes"] == []
        assert store.verify().ok
