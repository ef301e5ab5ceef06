"""strace makes system calls of a real store fail, or kill it: what was answered is there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from straced import check, injected


def case(seed: int, number: int) -> dict[str, int]:
    if not number:
        check()
    home = Path(tempfile.mkdtemp(prefix="octavo-strace-"))
    try:
        return injected(home, f"{seed} {number}")
    finally:
        shutil.rmtree(home, ignore_errors=True)
