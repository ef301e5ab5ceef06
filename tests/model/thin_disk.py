"""A real file system on a device that runs out of room, as a thinly provisioned volume does.

The image is a sparse file in a file system in memory that is made too small for it. The file system
on it believes that there is room; what it writes later fails, and an fsync tells of that: once.

Not for tests of what was synced: Linux's loop device takes a write that its file cut short for a
whole one, so the first fsync that meets the end of the room may go well.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from loop_disk import NotHere, run

IMAGE_BYTES = 96 << 20
_JOURNAL_AT, _JOURNAL_BYTES = 8192 * 4096, 4 << 20
_OWN_BYTES = 256 << 10
"""What the file system has at its front: its tables."""


class ThinDisk:
    """An ext4 of its own, mounted at ``path`` until ``close``. What it writes for itself has room;
    what it writes for others has as much as ``leave`` left."""

    def __init__(self) -> None:
        if os.geteuid():
            raise NotHere("mounting a file system needs root")
        self._home = Path(tempfile.mkdtemp(prefix="octavo-thin-"))
        self._pool, self.path = self._home / "pool", self._home / "disk"
        self._image = self._pool / "image"
        try:
            for made in (self._pool, self.path):
                made.mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={2 * IMAGE_BYTES}", "none", str(self._pool))
            with self._image.open("wb") as image:
                image.truncate(IMAGE_BYTES)
            run(
                "mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-N", "1024",
                "-J", "size=4,location=8192",
                "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", str(self._image),
            )  # fmt: skip
            with self._image.open("r+b") as image:
                os.posix_fallocate(image.fileno(), 0, _OWN_BYTES)
                os.posix_fallocate(image.fileno(), _JOURNAL_AT, _JOURNAL_BYTES)
            self.mount()
        except BaseException:
            self.close()
            raise

    def mount(self) -> None:
        """As after a new start: what is read comes from the device."""
        run("mount", "-o", "loop,nodiscard", "-t", "ext4", str(self._image), str(self.path))

    def unmount(self) -> None:
        """Nobody may have a file of it open."""
        run("umount", str(self.path))

    def leave(self, room_bytes: int) -> None:
        """So much more reaches the device, and what takes the place of something there."""
        found = os.statvfs(self._pool)
        taken = (found.f_blocks - found.f_bfree) * found.f_frsize
        run("mount", "-o", f"remount,size={taken + room_bytes}", str(self._pool))

    def make_room(self) -> None:
        """All that the file system believes that it has."""
        run("mount", "-o", f"remount,size={2 * IMAGE_BYTES}", str(self._pool))

    def close(self) -> None:
        """Gone, image and all. Idempotent."""
        for mounted in (self.path, self._pool):
            if os.path.ismount(mounted):
                subprocess.run(["umount", "-l", str(mounted)], check=False, capture_output=True)
            if mounted.exists():
                mounted.rmdir()
        if self._home.exists():
            self._home.rmdir()
