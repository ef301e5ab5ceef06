"""The N-th allocation of a call fails, once or for a while: the call is done or not, never half.

Each case is some hundred failures within one kind of call, in a process of its own.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from no_memory import KINDS, SAVING, starved

CALLS = 150
LONG_KINDS = (
    "publish", "backup", "compact", "close", "open", "reader", "verify", "restore", "ingest",
)  # fmt: skip


def case(seed: int, number: int) -> dict[str, int]:
    rng = random.Random(f"{seed} {number}")
    kind = list(KINDS)[number % len(KINDS)]
    window = rng.choice((1, 1, 1, 3, 25))
    step = rng.randint(1, 5)
    if kind.removeprefix("heads ") in LONG_KINDS:
        step = rng.randint(1, 30)
    elif kind.endswith("save"):
        step = rng.randint(1, SAVING // CALLS)
    work = (kind, window, rng.randint(1, step), step, CALLS)
    home = Path(tempfile.mkdtemp(prefix="octavo-no-memory-"))
    try:
        return starved(home, f"{seed} {number}", [work])
    finally:
        shutil.rmtree(home, ignore_errors=True)
