"""A file again under another name, in pages of its own."""

from __future__ import annotations

from octavo.files.disk import Disk

_PIECE_BYTES = 8 << 20


def copied(disk: Disk, source: str, target: str) -> None:
    """A copy of a file, its bytes durable; the directory is the caller's. Raises FileExistsError,
    OSError. O(bytes)."""
    view = memoryview(disk.map(source))
    file = disk.create(target)
    try:
        for at in range(0, len(view), _PIECE_BYTES):
            file.write_all(bytes(view[at : at + _PIECE_BYTES]))
        file.sync()
    finally:
        file.close()
