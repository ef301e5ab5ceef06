"""Head-only stores against a dict: rows, trims, snapshots, closes, kills, backups, repairs.

Each case is a run of tests/model/head_only_machine.py, over small sizes and options of its own.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from pathlib import Path

from head_only_machine import Machine
from in_memory import place
from small_sizes import small_sizes

STEPS = 300
ROOM_BYTES = 64 << 20


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    home = Path(tempfile.mkdtemp(prefix="octavo-head-only-", dir=place(ROOM_BYTES)))
    try:
        with small_sizes(random.Random(f"sizes {seed} {number}")):
            machine = Machine(home, f"head-only {seed} {number}")
            machine.run(STEPS)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return {"steps": STEPS} | {each: machine.done.get(each, 0) for each in ("trim", "end")}
