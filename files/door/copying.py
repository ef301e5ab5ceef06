"""Copies files, into pages of their own, where a link would share them."""

from __future__ import annotations

import contextlib

from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk

_PIECE_BYTES = 8 << 20


def copied(disk: Disk, source: str, target: str) -> None:
    """Copy a file, its bytes durably; the caller syncs the directory. Raises FileExistsError,
    OSError; then it removes the unfinished copy, as far as it can. O(bytes)."""
    view = memoryview(disk.map(source))
    file = disk.create(target)
    try:
        try:
            for at in range(0, len(view), _PIECE_BYTES):
                file.write_all(bytes(view[at : at + _PIECE_BYTES]))
            file.sync()
        finally:
            file.close()
    except OSError:
        with contextlib.suppress(OSError):  # or a full disk would stay full
            disk.unlink(target)
        raise


def set_apart(disk: Disk, path: str) -> None:
    """Replace a journal file by a copy in pages of its own, whatever else has a link to it, or a
    map of it. Errors as ``copied``; an opening removes what an end in the middle leaves."""
    beside = path + TEMPORARY_SUFFIX
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(beside)
    copied(disk, path, beside)
    disk.rename(beside, path)
