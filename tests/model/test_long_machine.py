"""Tens of thousands of steps against a model; ``scripts/campaign model`` goes on."""

from __future__ import annotations

import os

import pytest
from long_machine import LongMachine

SEED = int(os.environ.get("OCTAVO_SEED", "1"))
STEPS = 2000


@pytest.mark.parametrize("number", range(24))
def test_a_store_does_what_its_model_does(number: int) -> None:
    print(f"OCTAVO_SEED={SEED + number} pytest 'tests/model/test_long_machine.py' # its number 0")
    LongMachine(SEED + number).run(STEPS)
