"""Bulk loads, edits, open scans, feeds, backups and losses, combined, over small sizes.

Each case is some runs of tests/model/combined_machine.py: deep ledgers of many small files, and
each way of reading.
"""

from __future__ import annotations

import logging

from combined_machine import CombinedMachine

RUNS = 10
STEPS = 80
ENDS = ("reopen", "kill", "cut_the_power", "lose_the_ledger", "promote")


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    done = {"steps": 0, "ends": 0, "bulk loads": 0}
    for run in range(RUNS):
        machine = CombinedMachine(seed * 100_000 + number * RUNS + run)
        machine.run(STEPS)
        done["steps"] += STEPS
        done["ends"] += sum(machine.done.get(end, 0) for end in ENDS)
        done["bulk loads"] += machine.done.get("take_files_in", 0)
    return done
