"""However an interpreter ends with an open store: it does end, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import octavo

BEGINNING = """
import atexit, os, sys, threading
import octavo
def said(store, key):
    store.put(key, b"v" * 50)
    os.write(1, key + b"\\n")
store = octavo.open(sys.argv[1], push_rows=256)
for n in range(600):
    said(store, b"k%d" % n)
"""
WRITING = """
def write(name):
    try:
        n = 0
        while True:
            said(store, b"%s-%d" % (name, n)); n += 1
    except octavo.OctavoError:
        pass
for name in (b"a", b"b"):
    threading.Thread(target=write, args=(name,), daemon=True).start()
"""
ENDINGS = {
    "the last line": "",
    "sys.exit": "sys.exit(0)",
    "an exception": "raise ValueError('nobody catches this')",
    "os._exit": "os._exit(0)",
    "atexit": "atexit.register(lambda: said(store, b'late'))",
    "a thread": "t = threading.Thread(target=lambda: said(store, b'late')); t.start()",
    "writers": WRITING,
    "writers, sys.exit": WRITING + "sys.exit(0)",
    "writers, os._exit": WRITING + "os._exit(0)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_lost_when_an_interpreter_ends(tmp_path: Path, ending: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + ENDINGS[ending], str(tmp_path / "s")],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    keys = [line for line in done.stdout.split(b"\n")[:-1] if line]
    assert len(keys) >= 600, done.stderr
    assert done.returncode == (1 if ending == "an exception" else 0), done.stderr
    with octavo.open(tmp_path / "s") as store:
        assert [key for key in keys if key not in store] == []


def test_a_forked_child_refuses_and_its_parent_goes_on(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", push_rows=64) as store:
        store.put_many((b"%d" % n, b"v") for n in range(300))
        child = os.fork()
        if not child:
            code = 1
            try:
                tries = (
                    lambda: store.put(b"k", b"v"), lambda: store.get(b"1"), store.compact,
                    lambda: store.backup(tmp_path / "b"), store.snapshot, store.sync, store.stats,
                )  # fmt: skip
                code = sum(not _refused(call) for call in tries)
                store.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.put(b"k", b"v") > 300
        with pytest.raises(octavo.StoreLocked):
            octavo.open(tmp_path / "s")
    with octavo.open(tmp_path / "s") as store:
        assert len(store) == 301
        assert store.verify().ok


def _refused(call: object) -> bool:
    try:
        call()  # type: ignore[operator]
    except octavo.Closed:
        return True
    return False


def test_of_openers_that_race_one_has_the_store(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s").close()
    for _ in range(480):
        barrier = threading.Barrier(3)
        have: list[octavo.Store] = []
        refused: list[octavo.StoreLocked] = []

        def race(
            barrier: threading.Barrier = barrier,
            have: list[octavo.Store] = have,
            refused: list[octavo.StoreLocked] = refused,
        ) -> None:
            barrier.wait()
            try:
                have.append(octavo.open(tmp_path / "s", worker=False))
            except octavo.StoreLocked as error:
                refused.append(error)

        threads = [threading.Thread(target=race) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(have) == 1, refused
        have[0].close()
