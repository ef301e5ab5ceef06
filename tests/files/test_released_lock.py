"""A lock that is let go of while others look at it or have it open, or where a step fails."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from descriptors import descriptors

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


def test_a_released_lock_is_free_though_a_process_that_is_being_started_has_it_open(
    tmp_path: Path,
) -> None:
    """Until its program begins that has copies of all that is open here."""
    lock = lock_file(str(tmp_path / "LOCK"))
    copies = [os.dup(int(number)) for number in descriptors(tmp_path / "LOCK")]
    lock.release()
    lock_file(str(tmp_path / "LOCK")).release()
    assert copies
    for number in copies:
        os.close(number)


def test_a_lock_is_free_though_a_step_of_letting_go_of_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fcntl.flock

    def failing(fd: int, how: int) -> None:
        if how == fcntl.LOCK_UN:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain(fd, how)

    monkeypatch.setattr(fcntl, "flock", failing)
    lock = lock_file(str(tmp_path / "LOCK"))
    with pytest.raises(OSError, match="Input/output"):
        lock.release()
    monkeypatch.undo()
    assert not descriptors(tmp_path)
    lock_file(str(tmp_path / "LOCK")).release()
