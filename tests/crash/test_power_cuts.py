"""Power cuts at every operation of every workload, with every kind of image, and in recoveries.

OCTAVO_SEED is the first seed. ``scripts/campaign power-cuts`` goes on with others for as long as
one likes.
"""

from __future__ import annotations

import os

import pytest
from crash_workloads import WORKLOADS
from power_cuts import Counts

SEED = int(os.environ.get("OCTAVO_SEED", "1"))
done: list[Counts] = []


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_power_cut_at_any_operation_loses_nothing_that_was_synced(name: str) -> None:
    print(f"OCTAVO_SEED={SEED} pytest tests/crash/test_power_cuts.py -k '{name}'")
    counts = WORKLOADS[name](SEED).run()
    print(name, counts)
    assert counts.points > 30
    done.append(counts)


def test_that_were_as_many_images_as_promised() -> None:
    if len(done) == len(WORKLOADS):  # not where one was picked
        assert sum(counts.images for counts in done) >= 50_000
        assert sum(counts.deep for counts in done) >= 5_000
