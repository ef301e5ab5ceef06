"""Steps of an owner, or calls of another thread, within a read: it finds a state that existed.

A read is one from another process, between whose operations the owner takes steps, or a call of one
thread, within which another thread makes calls. It finds one state, or (a change feed) all changes.
Each case is each way of reading, and each call, with several steps at some of its operations.
"""

from __future__ import annotations

import logging

from interleaved import READS, drawn, interleaved
from interleaved_calls import CALLS, drawn_calls, interleaved_calls

RUNS_A_READ = 12
RUNS_A_CALL = 4
MOST = 120


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    counts = {"readings": 0, "calls": 0, "operations": 0, "steps": 0}
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
    for call in CALLS:
        most = MOST
        for each in range(RUNS_A_CALL):
            run = number * RUNS_A_CALL + each
            steps = drawn_calls(call, seed, run, most)
            calls, wrong = interleaved_calls(call, steps, seed + run)
            if wrong:
                raise AssertionError(f"{call}, {steps}, {seed + run}: {wrong}")
            most = max(calls, 1)
            counts["calls"] += 1
            counts["operations"] += calls
            counts["steps"] += sum(at <= calls for at in steps)
    return counts
