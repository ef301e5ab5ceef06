"""What the file system says of the files of a store that is at work."""

from __future__ import annotations

import os
from pathlib import Path


def stats_of(directory: Path, pattern: str) -> list[os.stat_result]:
    """Of the files that match. They are listed again where one got another name meanwhile, as it
    was sealed, or went."""
    while True:
        try:
            return [file.stat() for file in directory.glob(pattern) if not file.is_dir()]
        except FileNotFoundError:
            continue
