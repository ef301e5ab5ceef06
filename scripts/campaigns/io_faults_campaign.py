"""An I/O error at every call of the disk, or at two of them, in small and large workloads.

Each case is one kind of error at one place, or two: EIO, ENOSPC, EMFILE, EINTR, a short write.
"""

from __future__ import annotations

import logging
import random

from crash_workloads import LITTLE, WORKLOADS
from io_faults import KINDS, Fault, broken
from power_cuts import Judge

ERRORS_A_CASE = 50
LARGE = (
    "puts", "not synced", "batches", "merges", "compactions", "snapshots", "head-only", "backups",
    "consumers", "ingests", "openings", "restores", "restores to a sqn",
)  # fmt: skip
LONGEST = 2500


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    rng = random.Random(f"{seed} {number}")
    counts = {"errors": 0, "runs": 0, "two at once": 0}
    name, calls = rng.choice([*LITTLE, *LARGE]), LONGEST
    kind = rng.choice(list(KINDS))
    for _ in range(ERRORS_A_CASE):
        judges: tuple[Judge, ...] = ()
        if name in LITTLE:
            workload, setup, options = LITTLE[name]
        else:
            cuts = WORKLOADS[name](0)
            workload, setup, options, judges = cuts.workload, cuts.setup, cuts.options, cuts.judges
        places = (rng.randint(1, calls),)
        if rng.random() < 0.4:
            places = (places[0], places[0] + rng.choice((1, 2, rng.randint(3, 60))))
            counts["two at once"] += 1
        fault = Fault(kind, places)
        which = seed * 1000 + number
        wrong = broken(name, workload, setup, which, fault, judges=judges, **options)
        if wrong:
            raise AssertionError(f"{kind} at {places} ({fault.operation}) of {name!r}: {wrong}")
        if not fault.fired:
            calls = max(min(calls, fault.calls), 1)
        counts["errors"] += fault.fired
        counts["runs"] += 1
    return counts
