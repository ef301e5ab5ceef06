"""Where files stand that are made and removed all the time: in memory, where there is room."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SHM = Path("/dev/shm")


def place(room_bytes: int) -> Path | None:
    """A file system in memory with so much room; None, for the ordinary place of temporary files,
    where there is none: containers often have 64 MiB."""
    if not SHM.is_dir() or not os.access(SHM, os.W_OK):
        return None
    return SHM if shutil.disk_usage(SHM).free >= room_bytes else None
