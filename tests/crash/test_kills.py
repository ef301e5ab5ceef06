"""SIGKILL again and again, with compaction, backups and publishing under way. Thousands, without
those: test_short_lives.py.

Long form: scripts/campaign kill.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from killing import Rounds
from lives import Nursery

SEED = os.environ.get("OCTAVO_SEED", "20261121")
ROUNDS = 12
MOST_ROUNDS = 64
"""Few lives may all end before a step was answered."""


@pytest.mark.parametrize("sync", ["always", "none"])
def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path, sync: str) -> None:
    print(f"OCTAVO_SEED={SEED} (a longer run: scripts/campaign kill)")
    with Nursery() as nursery:
        rounds = Rounds(nursery, tmp_path / "s", f"{SEED} kill {sync}", sync=sync, most_steps=150)
        for number in range(1, MOST_ROUNDS + 1):
            rounds.live_and_die()
            if number >= ROUNDS and rounds.counts["steps"]:
                break
    assert rounds.counts["kills"] == number
    assert rounds.counts["steps"] > 0
