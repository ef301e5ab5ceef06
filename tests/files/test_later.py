"""A module that is loaded later is loaded whole, and no lock of imports stays taken."""

from __future__ import annotations

import _imp
import sys
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
