"""What importing and opening say where Octavo, or a part of it, can not be used."""

from __future__ import annotations

import _thread
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import octavo
from octavo.actors.keeping.inbox_watch import WATCH


def test_on_windows_importing_says_what_there_is_to_do() -> None:
    script = "import sys; sys.platform = 'win32'; import octavo"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: Octavo runs on Linux and macOS" in done.stderr


@pytest.mark.parametrize("has", ["maxsize = (1 << 31) - 1", "byteorder = 'big'"])
def test_on_machines_of_another_kind_importing_says_so(has: str) -> None:
    script = f"import sys; sys.{has}; import octavo"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: Octavo needs a 64-bit Python on a little-endian machine" in done.stderr


def test_without_spark_a_frame_says_what_to_install_and_leaves_nothing_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "octavo.pipeline.source", None)
    with octavo.open(tmp_path / "s") as store, store.snapshot() as snap:
        store.put("k", "v")
        with pytest.raises(octavo.Misuse, match=r"Spark is missing.*pip install 'octavo\[spark\]'"):
            snap.df(None)
        assert store.published() == []


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
    run = interpreters.run_string
run(other, f'''
import sys
sys.path[:] = {sys.path}
import octavo
for options in ({{}}, {{"read_only": True}}):
    try:
        octavo.open({sys.argv[1]!r}, **options)
    except octavo.Misuse as error:
        print(error)
''')
interpreters.destroy(other)
"""


def test_in_a_subinterpreter_an_opening_says_so_and_the_process_goes_on(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s").close()
    words = [sys.executable, "-c", SUBINTERPRETER, str(tmp_path / "s")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.count("this is a subinterpreter") == 2, done.stderr
    assert done.returncode == 0, done.stderr


class Seeker:
    """Hears which modules are looked for."""

    def __init__(self) -> None:
        self.sought: list[str] = []

    def find_spec(self, name: str, *_: object) -> None:
        self.sought.append(name)


def test_a_second_opening_looks_for_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A child that another thread forks meanwhile would wait for CPython's lock of it for ever.
    seeker = Seeker()
    for _ in range(2):
        seeker.sought.clear()
        octavo.open(tmp_path / "s").close()
        octavo.open(tmp_path / "s", read_only=True).close()
        monkeypatch.setattr(sys, "meta_path", [seeker, *sys.meta_path])
    assert seeker.sought == []


FORKED_MEANWHILE = """
import os, signal, sys, threading
import octavo
begun, go_on = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, *_):
        if name == "octavo.store":
            begun.set()
            go_on.wait(60)

sys.meta_path.insert(0, Slow())
threading.Thread(target=lambda: octavo.open).start()
begun.wait(60)
os.register_at_fork(before=go_on.set)  # before those that wait for the other thread
if (child := os.fork()) == 0:
    signal.alarm(20)  # it would wait for the other thread's lock of the module for ever
    octavo.open(sys.argv[1]).close()
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_a_child_that_is_forked_during_the_first_opening_can_open_a_store(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKED_MEANWHILE, str(tmp_path / "s")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "0\n", done.stderr


ALL_CALLS = """
import sys
import octavo
from octavo.files.later import loading

class Seeker:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("numpy", "octavo", "pyarrow") and not loading._is_owned():
            print(name)

sys.meta_path.insert(0, Seeker())
path = sys.argv[1]
with octavo.open(path, worker=False, push_rows=64, roll_count=256) as store:
    for number in range(1200):
        key = b"%d" % (number % 500)
        store.bucket(b"%d" % (number % 5)).put(key, key * 50, index={"f": number % 9})
    for bucket in map(store.bucket, list(store.buckets())):
        assert len(list(bucket.items())) == len(list(bucket.heads())) == len(bucket) == 100
        assert len(list(bucket.index("f").range())) == 100
    with store.snapshot() as snap:
        assert len(list(snap.items_by_sqn())) == 500
        snap.merkle()
        snap.bucket(b"1").to_arrow().read_all()
    assert store.verify().ok
    store.compact()
    store.stats(score=True)
    store.inspect_html()
    store.stats_prometheus()
    store.backup(path + "-copy")
with octavo.open(path + "-copy", read_only=True) as store:
    assert store.verify().ok
"""


def test_what_calls_load_is_loaded_so_that_a_fork_waits_for_it(tmp_path: Path) -> None:
    # And so that no Ctrl-C comes in the midst of it, for what is loaded so is loaded unbroken.
    words = [sys.executable, "-c", ALL_CALLS, str(tmp_path / "s")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "", done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=["writing", "reading"])
def test_without_the_interpreter_lock_an_opening_says_how_to_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    octavo.open(tmp_path / "s").close()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(octavo.Misuse, match=r"PYTHON_GIL=1"):
        octavo.open(tmp_path / "s", **options)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    octavo.open(tmp_path / "s", **options).close()


@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=["writing", "reading"])
def test_where_threads_were_replaced_after_the_import_an_opening_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    octavo.open(tmp_path / "s").close()
    with monkeypatch.context() as patched:
        patched.setattr(threading, "get_ident", lambda: _thread.get_ident())
        with pytest.raises(octavo.Misuse, match="before octavo is imported"):
            octavo.open(tmp_path / "s", **options)
    octavo.open(tmp_path / "s", **options).close()


def test_with_a_clock_before_1970_an_opening_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: -1_000_000)
        with pytest.raises(octavo.Misuse, match="clock is before 1970"):
            octavo.open(tmp_path / "s")
    octavo.open(tmp_path / "s").close()


@pytest.mark.parametrize("options", [{}, {"sync": 0.5}], ids=["inbox", "interval"])
def test_where_no_thread_can_be_started_an_opening_says_so_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, float]
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(WATCH, "_thread", None)
        scarce.setattr(threading.Thread, "start", start)
        with pytest.raises(octavo.StorageFull, match=r"no thread can be started.*ulimit -u"):
            octavo.open(tmp_path / "s", **options)
    octavo.open(tmp_path / "s", **options).close()


def public_functions() -> Iterator[tuple[str, Any]]:
    """Of ``octavo`` and its classes, and those classes."""
    for name in octavo.__all__:
        if name == "__version__":
            continue
        found = getattr(octavo, name)
        yield name, found
        for method in vars(found) if inspect.isclass(found) else ():
            if not method.startswith("_") and inspect.isfunction(getattr(found, method)):
                yield f"{name}.{method}", getattr(found, method)


@pytest.mark.parametrize("told", [pytest.param(each, id=name) for name, each in public_functions()])
def test_who_asks_for_the_types_of_what_is_public_is_told(told: Any) -> None:
    # As pydantic, FastAPI and programs that write documents do.
    assert isinstance(get_type_hints(told), dict)
