"""A real file system on a loop device that can lose its power.

The image lies in memory. The cut is ext4's and XFS's own shutdown call without a flush of their
log: what was not synced is gone, as on a machine whose plug is pulled.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from in_memory import place

_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)
SIZES = {"ext4": 256 << 20, "xfs": 320 << 20}
_MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


_LONGEST_BUSY = 300.0
"""Seconds."""


class NotHere(Exception):  # noqa: N818 (what is missing is no error of the test)
    """This machine cannot do it; the message says what it lacks."""


def run(*words: str) -> None:
    try:
        subprocess.run(
            words, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise NotHere(f"{words[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NotHere(f"{' '.join(words)}: {error.stderr.strip() or error}") from None


class LoopDisk:
    """A file system of its own, mounted at ``path`` until ``close``."""

    def __init__(self, kind: str) -> None:
        if os.geteuid():
            raise NotHere("mounting a file system needs root")
        self.kind = kind
        self._home = Path(tempfile.mkdtemp(prefix="octavo-power-", dir=place(SIZES[kind])))
        self._image = self._home / "image"
        self.path = self._home / "disk"
        self.mounted = self._was_mounted = False
        self.off = False
        try:
            self.path.mkdir()
            with self._image.open("wb") as image:
                image.truncate(SIZES[kind])
            run(*_MAKE[kind], str(self._image))
            self.mount()
            self.cut_power()
            self.mount()
        except BaseException:
            self.close()
            raise

    def mount(self) -> None:
        """As after power came back: the file system recovers from its log."""
        until = time.monotonic() + (_LONGEST_BUSY if self._was_mounted else 0.0)
        while not self.mounted:
            try:
                run("mount", "-o", "loop", "-t", self.kind, str(self._image), str(self.path))
                self.mounted = self._was_mounted = True
            except NotHere:
                # It worked before: other processes take and give back loop devices meanwhile.
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        self.off = False

    def shut_down(self) -> None:
        """From here on nothing reaches the disk; who writes on is told EIO. Idempotent."""
        if self.off:
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _NO_LOG_FLUSH)
        except OSError as error:
            raise NotHere(f"the shutdown call of {self.kind}: {error}") from None
        finally:
            os.close(fd)
        self.off = True

    def fail(self) -> None:
        """As after an error that ext4 met: it is only read from here on, and what was not synced
        is in memory alone."""
        run("mount", "-o", "remount,errors=remount-ro", str(self.path))
        found = os.stat(self.path).st_dev
        device = os.path.basename(
            os.path.realpath(f"/sys/dev/block/{os.major(found)}:{os.minor(found)}")
        )
        try:
            Path(f"/sys/fs/{self.kind}/{device}/trigger_fs_error").write_text("1")
        except OSError as error:
            raise NotHere(f"an error of {self.kind}: {error}") from None

    def unmount(self) -> None:
        """Tried again while it is busy: a process that dies lets go of its lock on the store a
        moment before it lets go of its last file."""
        until = time.monotonic() + _LONGEST_BUSY
        while self.mounted:
            try:
                run("umount", str(self.path))
                self.mounted = False
            except NotHere as busy:
                if "busy" not in str(busy) or time.monotonic() > until:
                    raise

    def cut_power(self) -> None:
        """Nobody may have a file of it open."""
        self.shut_down()
        self.unmount()

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)
            self.mounted = False
        shutil.rmtree(self._home, ignore_errors=True)
