"""Another thread's call at any point where CPython may switch threads: both answers are right.

Each case is one kind of call, 200 times, with a call of another thread within each. Every second of
those stops at some step of its own until the first call has ended. In every second round, sizes are
so small that few rows take all ways.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path

from known_calls import STANDARD, wrong_reads
from known_heads import HEADS
from small_sizes import small_sizes
from switched import CLOSES, switched_store

RUNS = 200
RUNS_A_LOOK = 20
CALLS = [(known, call) for known in (STANDARD, HEADS) for call in known.calls]


def case(seed: int, number: int) -> dict[str, int]:
    turn, place = divmod(number, len(CALLS))
    (known, call) = random.Random(seed).sample(CALLS, len(CALLS))[place]
    sizes = random.Random(f"sizes {seed} {number}")
    home = Path(tempfile.mkdtemp(prefix="octavo-switches-"))
    try:
        with (
            small_sizes(sizes) if turn % 2 else nullcontext(),
            switched_store(home / "s", f"{seed} {number}", known) as switched,
        ):
            for run in range(RUNS):
                other = switched.on.rng.choice([*known.others, CLOSES])
                wrong = switched.wrong(call, other, stops=run % 2 == 1)
                if not wrong and run % RUNS_A_LOOK == 0:
                    wrong = wrong_reads(switched.on, known.reads)
                if wrong:
                    raise AssertionError(f"run {run}: {wrong}")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return {"calls": RUNS}
