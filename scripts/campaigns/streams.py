"""Spark's change feed and sink beside an owner at full speed: nothing lost, repeated, invented.

The owner, Spark's driver, its executors and its Python workers are killed at random moments. In
half of the cases streams are driven as Spark drives them, but without it, which is quicker. See
tests/model/followed.py.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from followed import Case
from followed_plan import drawn
from in_memory import place

CASE_SECONDS = 1800
ROOM_BYTES = 2 << 30


def case(seed: int, number: int) -> dict[str, int]:
    work = Path(tempfile.mkdtemp(prefix="octavo-streams-", dir=place(ROOM_BYTES)))
    try:
        return Case(drawn(f"{seed} {number}"), work).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
