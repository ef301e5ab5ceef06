"""Other processes and an open store: whichever way they began, they refuse it or are refused, and
the store goes on."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import octavo

MODEL = Path(__file__).parent.parent / "model"
INHERITING = """
import multiprocessing, sys
import octavo

def refused(call):
    try:
        call()
    except (octavo.Closed, octavo.StoreLocked, octavo.Misuse):
        return True
    return False

def inherited(store, told):
    tries = (lambda: store.put("k", "v"), lambda: store.get("1"), lambda: dict(store.items()),
             store.compact, store.snapshot, store.sync, lambda: octavo.open(store.path))
    told.send(sum(map(refused, tries)))
    store.close()

def beside(path, told):
    with octavo.open(path, read_only=True) as other:
        seen = len(other)
    told.send(seen if refused(lambda: octavo.open(path)) else -1)

if __name__ == "__main__":
    method, path = sys.argv[1:]
    context = multiprocessing.get_context(method)
    with octavo.open(path) as store:
        store.put_many((str(n), "v") for n in range(300))
        works = [(beside, (path,), 300)]
        if method == "fork":
            works.append((inherited, (store,), 7))
        else:
            process = context.Process(target=inherited, args=(store, None))
            assert refused(process.start)
        for work, arguments, wanted in works:
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(*arguments, theirs))
            process.start()
            theirs.close()
            got = mine.recv()
            process.join()
            assert (got, process.exitcode) == (wanted, 0), (method, work, got, process.exitcode)
        store.put("k", "of the parent")
    with octavo.open(path) as store:
        assert store.get("k") == b"of the parent" and len(store) == 301 and store.verify().ok
"""
WATCHING = """
import os, sys, threading
import octavo
from octavo.actors.keeping import inbox_watch
with octavo.open(sys.argv[1] + "/a"):
    child = os.fork()
    if not child:
        looked, twice = [], threading.Event()
        def look(running, now_ms, stuck):
            looked.append(os.path.basename(running.path))
            if looked.count("b") == 2:
                twice.set()
        inbox_watch.serve = look
        with octavo.open(sys.argv[1] + "/b"):
            twice.wait()
        os._exit(0 if set(looked) == {"b"} else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child looked into the store of its parent"
"""
LEAVING = """
import os, signal, sys
import octavo
store = octavo.open(sys.argv[1])
store.put("k", "v")
if not os.fork():
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
signal.pause()
"""

READING = """
import os, sys
import octavo
octavo.open(sys.argv[1]).close()
with octavo.open(sys.argv[1], push_rows=64, worker=False) as store:
    store.put_many((str(n), "v") for n in range(300))
reader = octavo.open(sys.argv[1], read_only=True, max_open_files=8)
hear, tell = os.pipe()
if not os.fork():
    os.close(tell)
    if sys.argv[2] != "outlive":
        assert len(reader) == 300
    if sys.argv[2] == "close":
        reader.close()
    elif sys.argv[2] == "drop":
        del reader
        octavo.open(sys.argv[1], read_only=True).close()
    elif sys.argv[2] == "outlive":
        os.read(hear, 1)
        try:
            dict(reader.items())
        except octavo.SnapshotExpired:
            pass
        else:
            os._exit(1)
    sys.exit()
if sys.argv[2] == "outlive":
    reader.close()
    os.close(tell)
assert os.wait()[1] == 0
if sys.argv[2] != "outlive":
    assert reader["1"] == b"v" and len(dict(reader.items())) == 300
    reader.close()
assert not os.listdir(sys.argv[1] + "/snapshots")
"""
NUMBERED = """
import os, sys
import octavo
with octavo.open(sys.argv[1]) as store:
    store.put("k", "v")
    if not os.fork():
        os._exit(store.last_sqn)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == store.last_sqn == 1
"""
WARNED = """
import os, sys
import octavo
with octavo.open(sys.argv[1]) as store:
    store.put("k", "v")
    assert store._running.runner._started() is not None
    if not os.fork():
        sys.exit()
    assert os.wait()[1] == 0
"""
# Children of a process whose lowest free descriptors are those of its workers' pipes.
CROWDED = """
import os, sys
import octavo
from octavo.files.door.disk import RealDisk
low = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
with octavo.open(sys.argv[1] + "/a") as store, octavo.open(sys.argv[1] + "/b") as other:
    for number in low:
        os.close(number)
    runners = [store._running.runner, store._running.inker_clerk.actor.runner]
    pipes = [pipe.fileno() for each in runners for p in [each._started()]
             for pipe in (p.stdin, p.stdout)]
    while os.open(os.devnull, os.O_RDONLY) < max(pipes):
        pass
    if not os.fork():
        for each in (store, other):
            try:
                each.put("k", "v")
            except octavo.Closed as told:
                assert "forked" in str(told) and "read_only=True" in str(told), told
            else:
                os._exit(1)
        null = os.stat(os.devnull)
        assert all(os.path.samestat(os.fstat(number), null) for number in pipes)
        sys.exit()
    assert os.wait()[1] == 0
    store.put("k", "v")
"""
# Children that are forked in the midst of what another thread does.
READING_BESIDE = """
import os, sys
import octavo
with octavo.open(sys.argv[1], push_rows=64, worker=False) as store:
    store.put_many((str(n), "v") for n in range(300))
with octavo.open(sys.argv[1], read_only=True, max_open_files=8) as reader:
    files = reader._pinned._open_files
    with files._lock:  # as a thread has it that opens a file
        child = os.fork()
        if not child:
            assert files._lock.acquire(False), "nobody will ever give it back"
            files._lock.release()
            assert len(reader) == len(dict(reader.items())) == 300
            sys.exit()
    assert os.waitpid(child, 0)[1] == 0
"""
CLOSING_BESIDE = """
import os, sys, threading
import octavo
from octavo.actors.opening import shutdown
begun, go, stop = threading.Event(), threading.Event(), shutdown.stop
def slowly(running):
    begun.set()
    go.wait()
    stop(running)
shutdown.stop = slowly
store = octavo.open(sys.argv[1])
store.put("k", "v")
process = store._running.runner._started()
pipes = [process.stdin.fileno(), process.stdout.fileno()]
thread = threading.Thread(target=store.close)
thread.start()
begun.wait()
child = os.fork()
if not child:
    assert store._closing.acquire(False), "nobody will ever give it back"
    store._closing.release()
    store.close()
    null = os.stat(os.devnull)
    assert all(os.path.samestat(os.fstat(number), null) for number in pipes)
    try:
        store.get("k")
    except octavo.Closed:
        sys.exit()
    os._exit(1)
go.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
with octavo.open(sys.argv[1]) as store:
    assert store.get("k") == b"v"
"""


def run_to_its_end(words: list[str]) -> str:
    """What it says on standard error."""
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(MODEL), *sys.path]))}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=told)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_store_does_not_go_along_to_another_process(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(INHERITING)
    run_to_its_end([sys.executable, str(program), method, str(tmp_path / "s")])


def test_what_is_asked_of_a_store_no_child_of_its_owner_answers(tmp_path: Path) -> None:
    run_to_its_end([sys.executable, "-c", WATCHING, str(tmp_path)])


@pytest.mark.parametrize("child", ["exit", "close", "drop", "outlive"])
def test_what_a_process_reads_is_not_removed_by_its_child(tmp_path: Path, child: str) -> None:
    run_to_its_end([sys.executable, "-c", READING, str(tmp_path / "s"), child])


def test_a_child_knows_the_last_number_before_the_fork(tmp_path: Path) -> None:
    run_to_its_end([sys.executable, "-c", NUMBERED, str(tmp_path / "s")])


def test_a_child_warns_of_no_pipes_of_the_worker(tmp_path: Path) -> None:
    told = run_to_its_end([sys.executable, "-X", "dev", "-c", WARNED, str(tmp_path / "s")])
    assert "ResourceWarning" not in told


def test_a_child_refuses_wherever_the_pipes_of_the_workers_are(tmp_path: Path) -> None:
    assert "Exception" not in run_to_its_end([sys.executable, "-c", CROWDED, str(tmp_path)])


@pytest.mark.parametrize("program", [READING_BESIDE, CLOSING_BESIDE], ids=["reads", "closes"])
def test_a_child_waits_for_no_thread_of_its_parent(tmp_path: Path, program: str) -> None:
    assert "Exception" not in run_to_its_end([sys.executable, "-c", program, str(tmp_path / "s")])


def test_an_open_store_cannot_be_copied(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store, store.snapshot() as snapshot:
        things: list[Any] = [store, store.bucket("b"), snapshot, snapshot.bucket("b")]
        for thing in things:
            with pytest.raises(octavo.Misuse, match="another process"):
                copy.copy(thing)


def test_a_program_that_is_started_inherits_nothing(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        words = [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd')); input()"]
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
        )
        assert child.stdout is not None
        child.stdout.readline()
        place = f"/proc/{child.pid}/fd"
        links = [os.readlink(f"{place}/{number}") for number in os.listdir(place)]
        assert not [link for link in links if link.startswith(str(tmp_path))]
    with octavo.open(tmp_path / "s") as store:  # while it lives
        assert store.get("k") == b"v"
    child.communicate(b"\n")


def test_a_child_that_outlives_the_owner_does_not_keep_the_store(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LEAVING, str(tmp_path / "s")]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    try:
        owner.kill()
        owner.wait()
        with octavo.open(tmp_path / "s") as store:
            assert store.get("k") == b"v"
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_race_for_a_store_have_it_one_at_a_time(tmp_path: Path, method: str) -> None:
    """In a process of its own, which has no threads to fork beside."""
    races = {"fork": 6, "spawn": 1, "forkserver": 1}[method]
    words = [sys.executable, str(MODEL / "openers.py"), str(tmp_path), method, json.dumps(races)]
    run_to_its_end(words)
