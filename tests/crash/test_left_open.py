"""Stores that a program does not close: the interpreter's end does, all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import octavo

BEGINNING = """
import gc, sys
import octavo
from octavo.actors.opening import shutdown

def stop(running, stop=shutdown.stop):
    print("stopped", running.path)
    stop(running)
    if "fails" in sys.argv[1]:
        raise OSError("in vain")

shutdown.stop = stop
"""
LEAVING = {
    "a bucket is kept": """
bucket = octavo.open(sys.argv[1], worker=False).bucket("b")
bucket.put("k", "v")
""",
    "nothing is kept": """
octavo.open(sys.argv[1], worker=False).put("k", "v")
gc.collect()
""",
}
OF_A_CHILD = """
import multiprocessing, sys, threading
from multiprocessing.util import Finalize
import octavo

def writes(path):
    octavo.open(path, worker=False).put("k", "v")

def writes_on(path):
    ending = threading.Event()
    Finalize(None, ending.set, exitpriority=-1)
    if sys.version_info >= (3, 13):  # which waits for threads before it does anything else
        ending.set()
    store = octavo.open(path, worker=False)
    def write():
        ending.wait()
        store.put("k", "v")
        print("written")
    threading.Thread(target=write).start()

def reads(path):
    octavo.open(path, worker=False).close()
    assert octavo.open(path, read_only=True).get("k") is None

if __name__ == "__main__":
    method, work, path = sys.argv[1:]
    child = multiprocessing.get_context(method).Process(target=globals()[work], args=(path,))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
THREE = """
stores = [octavo.open(sys.argv[1] + name, worker=False) for name in "abc"]
"""


def stopped(program: str, path: Path) -> list[str]:
    """The stores that were, in no order."""
    words = [sys.executable, "-c", BEGINNING + program, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return sorted(line.split(maxsplit=1)[1] for line in done.stdout.splitlines())


@pytest.mark.parametrize("leaving", LEAVING)
def test_a_store_is_closed_at_the_end_though_the_program_dropped_it(
    tmp_path: Path, leaving: str
) -> None:
    assert stopped(LEAVING[leaving], tmp_path / "s") == [str(tmp_path / "s")]


def test_where_closing_one_at_the_end_fails_the_others_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "fails-"
    assert stopped(THREE, path) == [f"{path}{name}" for name in "abc"]


def test_what_is_dropped_as_the_interpreter_ends_can_catch_what_it_gets(tmp_path: Path) -> None:
    program = """
import sys
import octavo

class Late:
    def __del__(self):
        try:
            store.put("k", "v")
        except octavo.Closed:
            print("closed")

store = octavo.open(sys.argv[1], worker=False)
late = Late()
late.itself = late  # so that it goes only when modules do
"""
    words = [sys.executable, "-c", program, str(tmp_path / "s")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("closed\n", "")


def child_that(does: str, method: str, path: Path) -> str:
    """What it printed."""
    path.with_suffix(".py").write_text(OF_A_CHILD)
    words = [sys.executable, str(path.with_suffix(".py")), method, does, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_a_process_of_multiprocessing_leaves_open_is_closed_at_its_end(
    tmp_path: Path, method: str
) -> None:
    child_that("writes", method, tmp_path / "s")
    with octavo.open(tmp_path / "s") as store:
        assert store.last_sqn == 1, "numbers are skipped, as after a kill"
    child_that("reads", method, tmp_path / "r")
    assert os.listdir(tmp_path / "r" / "snapshots") == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_threads_that_outlive_the_work_of_such_a_process_may_still_write(
    tmp_path: Path, method: str
) -> None:
    assert child_that("writes_on", method, tmp_path / "s") == "written\n"
    with octavo.open(tmp_path / "s") as store:
        assert store["k"] == b"v"
