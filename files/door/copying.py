"""A file again under another name, in pages of its own."""

from __future__ import annotations

import contextlib

from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk

_PIECE_BYTES = 8 << 20


def copied(disk: Disk, source: str, target: str) -> None:
    """A copy of a file, its bytes durable; the directory is the caller's. Raises FileExistsError,
    OSError; then no half of it is left, as far as that can be. O(bytes)."""
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
    """Have a journal file in pages of its own under its name, whatever else has a link or a map of
    it. As ``copied``; what is left where that is cut short, an opening removes."""
    beside = path + TEMPORARY_SUFFIX
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(beside)
    copied(disk, path, beside)
    disk.rename(beside, path)
