"""Stores that a program does not close: the interpreter's end does, all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
