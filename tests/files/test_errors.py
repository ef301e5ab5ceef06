"""Errors as they cross from one process to another."""

from __future__ import annotations

import errno
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

import octavo
from octavo.files import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.Conflict("if_sqn=1 does not hold", expected=1, found=2),
        errors.Corruption("journal/x", 7, "checksum", expected=3, found=4),
        errors.StoreLocked("s/LOCK is locked"),
        errors.Misuse(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_another_process_is_the_same_here(error: errors.OctavoError) -> None:
    error.add_note("of a task")
    found: Any = ForkingPickler.loads(ForkingPickler.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_a_traceback_names_an_error_as_a_program_does() -> None:
    for name in octavo.__all__:
        found = getattr(octavo, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert f"{found.__module__}.{found.__qualname__}" == f"octavo.{name}"


def test_a_limit_of_a_files_size_is_not_called_want_of_space() -> None:
    told = errors.storage_error(OSError(errno.EFBIG, "File too large"), "a file")
    assert isinstance(told, errors.StorageFull)
    assert "ulimit -f" in str(told)


def test_who_may_not_read_a_file_is_told_of_permissions() -> None:
    told = errors.storage_error(PermissionError(errno.EACCES, "Permission denied"), "a file")
    assert isinstance(told, errors.StorageFailed)
    assert "user must be allowed to read" in str(told)
    assert "reopen" not in str(told)
