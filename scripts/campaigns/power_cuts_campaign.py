"""A power cut at every operation of a workload, and in the recoveries from it.

Each case is one workload of tests/model/crash_workloads.py, from a seed of its own.
"""

from __future__ import annotations

import logging

from crash_workloads import WORKLOADS

CASE_SECONDS = 3600
NAMES = list(WORKLOADS)


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    round_, which = divmod(number, len(NAMES))
    counts = WORKLOADS[NAMES[which]](seed * 100_000 + round_).run()
    return {
        "images": counts.images,
        "opened": counts.opened,
        "crash points": counts.points,
        "crashes in recoveries": counts.deep,
    }
