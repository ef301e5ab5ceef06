"""What is kept of files that are read, and until when."""

from __future__ import annotations

import errno
import os

import pytest

import octavo
from octavo.actors.open_files import OpenFiles
from octavo.files.lifecycle import State


class OneFile:
    """A file that can be mapped, and read by calls."""

    def __init__(self) -> None:
        self.state = State.SEALED
        self.mapped = 0
        self.pread: object = None
        self.path = ""

    def map_now(self) -> bytes:
        self.mapped += 1
        return b"file"

    def forget_map(self) -> None:
        self.mapped -= 1


def test_behind_a_close_no_file_is_mapped_and_no_map_is_kept() -> None:
    files, file = OpenFiles(8), OneFile()
    assert files.opened(file) == b"file"
    files._called.append(file)  # type: ignore[arg-type]
    file.pread = lambda length, at: b""
    files.let_go()
    assert (file.mapped, file.pread) == (0, None)
    with pytest.raises(octavo.Closed):
        files.opened(file)
    assert file.mapped == 0


def test_nothing_is_kept_of_a_file_that_is_dropped() -> None:
    files, file = OpenFiles(8), OneFile()
    files.opened(file)
    files._singly[file] = [0, 0, 0]
    files.dropped(file)
    assert not files._open
    assert not files._singly


def test_a_read_that_a_device_breaks_off_tells_why() -> None:
    def to_a_place(length: int, at: int) -> bytes:
        if at >= 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(min(length, 4096 - at))

    files, file = OpenFiles(8), OneFile()
    file.pread, file.path = to_a_place, "a file"
    assert files.read(file, 4000, 96) == bytes(96)  # type: ignore[arg-type]
    with pytest.raises(octavo.StorageFailed, match="Input/output error"):
        files.read(file, 4000, 200)  # type: ignore[arg-type]
