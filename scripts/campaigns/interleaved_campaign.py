"""An owner's steps between the operations of who reads its store from another process: what is
found is a state that there was, or all changes.

Each case is a store, each way of reading, and several steps at some of the reading's operations.
"""

from __future__ import annotations

import logging

from interleaved import READS, drawn, interleaved

RUNS_A_READ = 12


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    counts = {"readings": 0, "operations": 0, "steps": 0}
    for read in READS:
        for each in range(RUNS_A_READ):
            run = number * RUNS_A_READ + each
            steps = drawn(read, seed, run)
            calls, wrong = interleaved(read, steps, seed + run)
            if wrong:
                raise AssertionError(f"{read}, {steps}, {seed + run}: {wrong}")
            counts["readings"] += 1
            counts["operations"] += calls
            counts["steps"] += sum(at <= calls for at in steps)
    return counts
