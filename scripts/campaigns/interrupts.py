"""Ctrl-C within every call: it is done or not, the store goes on and verifies.

Puts, batches, reads, scans, snapshots, publishing, compaction, backups, closing, opening; in one
case by the clock, in the next at steps that the seed says. In two cases of four a head-only store,
in two of three with small sizes.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path

from interrupted import Interrupted
from interrupted_heads import InterruptedHeads
from small_sizes import small_sizes

ROUNDS = 150


def case(seed: int, number: int) -> dict[str, int]:
    home = Path(tempfile.mkdtemp(prefix="octavo-interrupts-"))
    try:
        kind = InterruptedHeads if number % 4 > 1 else Interrupted
        with small_sizes(random.Random(f"sizes {seed} {number}")) if number % 3 else nullcontext():
            store = kind(home, f"{seed} {number}", by_steps=number % 2 == 1)
            try:
                store.run(ROUNDS)
            finally:
                store.store.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    counts = {"interrupts": sum(store.hits.values()), "calls": store.rounds}
    return counts | {f"in {what}": store.hits.get(what, 0) for what in ("close", "open", "compact")}
