"""Every kind of call against a model, with jumping clocks, kills, power cuts and backups.

Each case is one run of tests/model/long_machine.py, over options of its own.
"""

from __future__ import annotations

import logging

from long_machine import LongMachine

STEPS = 2000


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    machine = LongMachine(seed * 100_000 + number)
    machine.run(STEPS)
    ends = ("reopen", "kill", "cut_the_power")
    return {
        "steps": STEPS,
        "ends": sum(machine.done.get(end, 0) for end in ends),
        "clock jumps": machine.done.get("jump", 0),
    }
