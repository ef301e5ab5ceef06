"""A store that failed, in a program that goes on: nothing of it stays open, or the file system that
failed could not be unmounted, and every error is one of ours."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.files.errors import StorageFailed

WRITES: dict[str, Callable[[octavo.Store], object]] = {
    "put": lambda store: store.put(b"k", b"v"),
    "large put": lambda store: store.put(b"k", os.urandom(20_000)),
    "larger put": lambda store: store.put(b"k", os.urandom(2 << 20)),
    "few": lambda store: store.put_many((b"%d" % n, b"v") for n in range(9)),
    "many": lambda store: store.put_many((b"%d" % n, b"v") for n in range(3000)),
    "sync": lambda store: store.sync(),
}


def fails(call: Callable[[], object]) -> bool:
    """Whether it raises StorageFailed, which is forgotten at once."""
    try:
        call()
    except octavo.StorageFailed:
        return True
    return False


@pytest.mark.parametrize("write", WRITES)
def test_a_store_that_failed_and_was_closed_has_no_file_open(tmp_path: Path, write: str) -> None:
    store = octavo.open(tmp_path / "s", worker=False)
    store.put(b"first", b"v")
    file = store._running.inker.actor.active.file
    number = int(file.fd)
    del file
    end, other = os.pipe()
    os.dup2(end, number, inheritable=False)  # which can be written to, or synced, no more
    gc.disable()
    try:
        for _ in range(2):
            assert fails(lambda: WRITES[write](store))
        with suppress(octavo.StorageFailed):
            store.close()
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            os.fstat(number)
    finally:
        gc.enable()
        os.close(end)
        os.close(other)


@pytest.mark.parametrize("write", [each for each in WRITES if each != "sync"])
def test_a_write_that_fails_as_its_file_failed_elsewhere_is_told_by_an_error_of_ours(
    tmp_path: Path, write: str
) -> None:
    store = octavo.open(tmp_path / "s", worker=False)
    store.put(b"first", b"v")
    active = store._running.inker.actor.active

    def refused(*_: Any) -> int:
        active.failed = StorageFailed("a sync failed beside it")
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    class Refusing:
        fd = active.file.fd
        pwrite = pwrite_parts = staticmethod(refused)

    active.file, file = Refusing(), active.file
    with pytest.raises(octavo.StorageFailed, match="a sync failed beside it"):
        WRITES[write](store)
    active.file = file
    with suppress(octavo.StorageFailed):
        store.close()
