"""What other machines never do at once; ``scripts/campaign combined`` goes on."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from combined_machine import CombinedMachine

from octavo import read_only

SEED = int(os.environ.get("OCTAVO_SEED", "200"))
STEPS = 50


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left() -> Iterator[None]:
    """Readers on disks that are no more, which the next reader of other tests would clean up."""
    yield
    gc.collect()
    read_only._dropped.clear()


@pytest.mark.parametrize("number", range(24))
def test_a_store_does_what_its_log_says(number: int) -> None:
    print(f"OCTAVO_SEED={SEED + number} pytest tests/model/test_combined_machine.py # its number 0")
    CombinedMachine(SEED + number).run(STEPS)
