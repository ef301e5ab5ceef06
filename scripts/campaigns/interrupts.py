"""Ctrl-C within every call: the call is done or not, the store goes on and verifies.

Puts, batches, reads, scans, snapshots, publishing, compaction, backups, closing, opening; in one
case by the clock, in the next at steps drawn from the seed. In two cases of six a head-only store,
in two beside a thread that goes on; in two of three with small sizes.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path

from interrupted import Interrupted
from interrupted_beside import InterruptedBeside
from interrupted_heads import InterruptedHeads
from small_sizes import small_sizes

ROUNDS = 150
KINDS = (Interrupted, InterruptedHeads, InterruptedBeside)


def case(seed: int, number: int) -> dict[str, int]:
    home = Path(tempfile.mkdtemp(prefix="octavo-interrupts-"))
    try:
        kind = KINDS[number // 2 % 3]
        sizes = small_sizes(random.Random(f"sizes {seed} {number}"))
        with sizes if number % 7 > 2 else nullcontext():
            store = kind(home, f"{seed} {number}", by_steps=number % 2 == 1)
            try:
                store.run(ROUNDS)
            finally:
                store.store.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    counts = {"interrupts": sum(store.hits.values()), "calls": store.rounds}
    return counts | {f"in {what}": store.hits.get(what, 0) for what in ("close", "open", "compact")}
