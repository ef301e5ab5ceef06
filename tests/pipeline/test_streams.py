"""Streams and loads beside an owner at full speed, while each of them is killed.

Long form: scripts/campaign streams.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from followed import Case
from followed_plan import drawn

SEED = os.environ.get("OCTAVO_SEED", "20261121")


def test_nothing_is_lost_repeated_or_invented_whatever_is_killed(tmp_path: Path) -> None:
    """Driven as Spark drives them, and without it."""
    print(f"OCTAVO_SEED={SEED}")
    plan = drawn(SEED, master="", kills=6)
    counts = Case(replace(plan, heads=False, burst=500), tmp_path).run()
    assert counts["kills"] == 6
    assert counts["changes"] > 0


def test_nor_by_spark(tmp_path: Path) -> None:
    print(f"OCTAVO_SEED={SEED}")
    plan = drawn(SEED, master="local[2,4]")
    kills = [(1, "python", 0.0), (1, "driver", 0.0), (1, "owner", 0.0)]
    counts = Case(replace(plan, heads=False, burst=300, kills=kills), tmp_path).run()
    assert counts["drivers"] == 2
    assert counts["batches"] > 0


def test_what_is_pinned_of_a_head_only_store_is_one_moment_of_it(tmp_path: Path) -> None:
    print(f"OCTAVO_SEED={SEED}")
    plan = drawn(SEED, master="", kills=3)
    options = plan.options | {"mode": "head_only"}
    counts = Case(replace(plan, heads=True, options=options, burst=500), tmp_path).run()
    assert counts["read"] > 0
