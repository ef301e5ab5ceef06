"""The power goes on a real file system: what was synced is there, batches are whole.
A thousand, of shorter lives: test_short_lives.py.

Long form: scripts/campaign power-ext4, power-xfs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from killing import Rounds
from lives import Nursery
from loop_disk import LoopDisk, NotHere
from said_loudly import or_say_so

SEED = os.environ.get("OCTAVO_SEED", "20261121")
ROUNDS = {"ext4": 8, "xfs": 4}
MOST_ROUNDS = 64
"""Few lives may all end before a step was answered."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.mark.parametrize("sync", ["always", "none"])
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_was_synced_survives_a_power_cut(kind: str, sync: str, nursery: Nursery) -> None:
    print(f"OCTAVO_SEED={SEED} (a longer run: scripts/campaign power-{kind})")
    disk = or_say_so(f"power cuts on {kind}", lambda: LoopDisk(kind), NotHere)
    if disk is None:
        return
    try:
        rounds = Rounds(
            nursery, disk.path / "s", f"{SEED} {kind} {sync}", sync=sync, disk=disk, most_steps=120
        )
        for number in range(1, MOST_ROUNDS + 1):
            rounds.live_and_die()
            if number >= ROUNDS[kind] and rounds.counts["steps"]:
                break
        assert rounds.counts["cuts"] == number
        assert rounds.counts["steps"] > 0
    finally:
        disk.close()
