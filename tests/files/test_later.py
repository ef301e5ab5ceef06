"""A module that is loaded later is loaded whole, and no lock of imports stays taken."""

from __future__ import annotations

import _imp
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from cutting_short import cut_short

from octavo.files.later import Later

NAME = "octavo_test_of_later"


def test_a_ctrl_c_as_a_module_is_loaded_leaves_it_whole_and_no_lock_of_imports_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{NAME}.py").write_text("first = 1\nsecond = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    at, cut = 0, True
    while cut:
        at += 1
        sys.modules.pop(NAME, None)
        module = Later(NAME)
        cut, _ = cut_short(lambda module=module: module.first, at)
        if taken := _imp.lock_held():
            _imp.release_lock()  # or every other thread of this process would wait for ever
        assert not taken, f"step {at}"
        assert (module.first, module.second) == (1, 2), f"step {at}"
    sys.modules.pop(NAME)
    assert at > 50  # of which most are CPython's own


_BEGUN, _GO_ON = threading.Event(), threading.Event()
_LONGEST = 60.0
SLOW = """
import sys
of = sys.modules["test_later"]
of._BEGUN.set()
of._GO_ON.wait()
first = 1
"""


def test_a_child_that_is_forked_while_another_thread_loads_a_module_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{NAME}.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "test_later", sys.modules[__name__])
    module = Later(NAME)
    loading = threading.Thread(target=lambda: module.first)
    loading.start()
    assert _BEGUN.wait(_LONGEST)
    os.register_at_fork(before=_GO_ON.set)  # before those that wait for the other thread
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)  # it would wait for the other thread's lock of the module for ever
        os._exit(module.first)
    _, status = os.waitpid(child, 0)
    loading.join(_LONGEST)
    sys.modules.pop(NAME)
    assert os.waitstatus_to_exitcode(status) == 1
