"""What other machines never do at once; ``scripts/campaign combined`` goes on."""

from __future__ import annotations

import os

import pytest
from combined_machine import CombinedMachine

SEED = int(os.environ.get("OCTAVO_SEED", "200"))
STEPS = 50


@pytest.mark.parametrize("number", range(24))
def test_a_store_does_what_its_log_says(number: int) -> None:
    print(f"OCTAVO_SEED={SEED + number} pytest tests/model/test_combined_machine.py # its number 0")
    CombinedMachine(SEED + number).run(STEPS)
