"""A lock whose holder lets go of it as another thread looks whether its directory still stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.files.door.file_lock import lock_file


def test_one_that_is_released_just_then_was_replaced_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_file(str(tmp_path / "LOCK"))
    stat, others = os.stat, list[int]()

    def released(path: str) -> os.stat_result:
        lock.release()
        # By now its descriptors' numbers are those of other files.
        others.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(8))
        return stat(path)

    monkeypatch.setattr(os, "stat", released)
    try:
        lock.refuse_replaced()
    finally:
        monkeypatch.undo()
        for number in others:
            os.close(number)
