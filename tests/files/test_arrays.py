"""NumPy is loaded whole, whenever a Ctrl-C comes: half loaded it would stay so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_INTERRUPTED = """
import signal, sys
from octavo.files.kernels.arrays import np

class Comes:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.lib.mixins":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Comes())
try:
    np.zeros(3)
except KeyboardInterrupt:
    print("interrupted")
print(np.unique(np.zeros(3))[0])
"""


def test_numpy_is_there_after_an_interrupt_as_it_was_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["interrupted", "0.0"], done.stderr


_TOO_DEEP = """
import sys
from octavo.files.kernels.arrays import np

def at(depth):
    return at(depth - 1) if depth else np.zeros(3)

refused = 0
for depth in range(sys.getrecursionlimit(), 0, -1):
    try:
        at(depth)
        break
    except RecursionError:
        refused += 1
print(refused > 100, np.unique(np.zeros(3))[0])
"""


def test_numpy_is_there_after_a_call_that_had_recursed_too_far_to_load_it() -> None:
    words = [sys.executable, "-c", _TOO_DEEP]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True", "0.0"], done.stderr


_WITHOUT_THREADS = """
import os, sys, threading
from octavo.files.kernels.arrays import np

class Comes:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.lib.mixins":
            print(os.environ.get("OPENBLAS_NUM_THREADS"))

def start(thread):
    raise RuntimeError("can't start new thread")

os.cpu_count = lambda: 4
if sys.argv[1] == "none":
    threading.Thread.start = start
sys.meta_path.insert(0, Comes())
np.zeros(3)
print(os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(("threads", "told"), [("none", "1"), ("enough", "None")])
def test_what_comes_with_numpy_begins_no_threads_where_there_are_none_to_be_had(
    threads: str, told: str
) -> None:
    words = [sys.executable, "-c", _WITHOUT_THREADS, threads]
    plain = {name: word for name, word in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=plain)
    assert done.stdout.split() == [told, "None"], done.stderr


_WITHOUT_MEMORY = """
import os, threading
from octavo.files.kernels import arrays

class Event(threading.Event):
    def set(self):
        raise MemoryError

plain, threading.Event = threading.Event, Event
arrays.os.cpu_count = lambda: 2
begin = threading.Thread.start

def start(thread):
    thread._started = plain()
    begin(thread)
    raise MemoryError

threading.Thread.start = start
try:
    arrays.np.zeros(3)
except MemoryError:
    left = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    print([thread.daemon for thread in left], flush=True)
    os._exit(0)
"""


def test_a_process_that_had_no_memory_as_numpy_came_ends_all_the_same() -> None:
    words = [sys.executable, "-c", _WITHOUT_MEMORY]
    plain = {name: word for name, word in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=plain)
    # The end of an interpreter waits for a thread that is no daemon.
    assert done.stdout == "[True]\n", done.stderr
