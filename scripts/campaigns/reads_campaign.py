"""Reads of published snapshots by any options, however they are cut into tasks and batches.

Each case makes a store and reads it as tests/model/random_reads.py does, over sizes of its own.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

import random_reads
from in_memory import place

ROOM_BYTES = 64 << 20


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    home = Path(tempfile.mkdtemp(prefix="octavo-reads-", dir=place(ROOM_BYTES)))
    try:
        rows = random_reads.case(home, f"{seed} {number}")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return {"reads": random_reads.READS, "rows": rows}
