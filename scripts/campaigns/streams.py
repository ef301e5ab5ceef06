"""Spark's change feed and sink beside an owner at full speed: nothing lost, repeated, invented.

The owner, Spark's driver, its executors and its Python workers are killed at random moments. In
half of the cases streams are driven as Spark drives them, but without it, which is quicker. See
tests/model/followed.py. What Spark and the owner wrote to their logs in a case that failed is kept
in .campaigns/streams-SEED-CASE.
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
KEPT = Path(__file__).resolve().parent.parent.parent / ".campaigns"


def case(seed: int, number: int) -> dict[str, int]:
    work = Path(tempfile.mkdtemp(prefix="octavo-streams-", dir=place(ROOM_BYTES)))
    try:
        return Case(drawn(f"{seed} {number}"), work).run()
    except AssertionError:
        keep_logs(work, KEPT / f"streams-{seed}-{number}")
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def keep_logs(work: Path, kept: Path) -> None:
    """Keep the logs of the driver, the owner and each executor, of all their lives."""
    for file in (*work.glob("*.stderr"), *work.glob("spark/work/*/*/stderr")):
        to = kept / file.relative_to(work)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
