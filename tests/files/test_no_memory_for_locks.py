"""A lock that is not given to anybody, for want of memory, is not held by anybody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from descriptors import descriptors

from octavo.files.door import file_lock
from octavo.files.door.file_lock import lock_file


@pytest.mark.parametrize("step", ["_names", "_without_workers", "object", "partial", "FileLock"])
def test_a_lock_without_memory_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    path = str(tmp_path / "LOCK")
    lock_file(path).release()
    before = descriptors(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(file_lock, step, no_memory, raising=False)
        with pytest.raises(MemoryError):
            lock_file(path)
    assert descriptors(tmp_path) == before
    lock_file(path).release()


def test_a_lock_without_memory_for_its_deadline_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wait:
        def __radd__(self, now: float) -> float:
            raise MemoryError

    before = descriptors(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(file_lock, "_LONGEST_WAIT", Wait())
        with pytest.raises(MemoryError):
            lock_file(str(tmp_path / "LOCK"))
    assert descriptors(tmp_path) == before


THREE_IN_A_ROW = """
import sys
from _testcapi import remove_mem_hooks, set_nomemory
from octavo.files.door.file_lock import lock_file

failed = 0
for at in range(200):
    lock = None
    set_nomemory(at, at + 3)
    try:
        lock = lock_file(sys.argv[1])
        remove_mem_hooks()
    except MemoryError:
        remove_mem_hooks()
        failed += 1
    if lock is not None:
        lock.release()
    lock_file(sys.argv[1]).release()
print(failed)
"""


def test_a_lock_is_free_where_letting_go_of_it_finds_no_memory_either(tmp_path: Path) -> None:
    pytest.importorskip("_testcapi")  # some distributions leave it out
    path = str(tmp_path / "LOCK")
    lock_file(path).release()
    done = subprocess.run(
        [sys.executable, "-c", THREE_IN_A_ROW, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 20
