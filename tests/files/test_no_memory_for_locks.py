"""A lock that is not given to anybody, for want of memory, is not held by anybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from descriptors import descriptors

from octavo.files import file_lock
from octavo.files.file_lock import lock_file


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
