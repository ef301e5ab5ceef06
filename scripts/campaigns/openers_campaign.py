"""Processes (forked, spawned, of a fork server) race for a store: one at a time has it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from openers import METHODS, raced

RACES = 5


def case(seed: int, number: int) -> dict[str, int]:
    counts = {"openings": 0, "refused": 0}
    for each in range(RACES):
        home = Path(tempfile.mkdtemp(prefix="octavo-openers-"))
        method = METHODS[each % 3] if each < 3 else "fork"
        try:
            for what, count in raced(home, f"{seed} {number} {each}", method).items():
                counts[what] += count
        finally:
            shutil.rmtree(home, ignore_errors=True)
    return counts
