"""Two thousand kills and a thousand power cuts, of lives that are as short as can be.

Lives with threads, backups and publishing: test_kills.py, test_power_cut.py. Long form:
scripts/campaign kill, power-ext4, power-xfs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from said_loudly import or_say_so
from short_lives import NotThis, lived

SEED = os.environ.get("OCTAVO_SEED", "20261121")
LIVES = {"kill": 2000, "ext4": 1000, "xfs": 100}


@pytest.mark.parametrize("kind", LIVES)
def test_nothing_that_was_answered_is_lost(tmp_path: Path, kind: str) -> None:
    counts = or_say_so(
        f"{LIVES[kind]} short lives on {kind}",
        lambda: lived(kind, tmp_path, SEED, LIVES[kind]),
        NotThis,
    )
    if counts is not None:
        print(kind, counts)
        assert counts["lives"] == LIVES[kind]
        assert counts["openings"] >= LIVES[kind] // 2 - 1
