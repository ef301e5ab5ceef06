"""Random calls against a dict, with snapshots, reopenings and lost processes.

Each case is a run of the state machine of tests/model with a seed of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

TESTS = Path(__file__).resolve().parent.parent.parent / "tests" / "model"


def _machine() -> type:
    spec = importlib.util.spec_from_file_location("machine", TESTS / "test_state_machine.py")
    if spec is None or spec.loader is None:
        raise ImportError("tests/model/test_state_machine.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules["machine"] = module
    spec.loader.exec_module(module)
    return module.StoreMachine


MACHINE = _machine()
EXAMPLES = 10
STEPS = 50


def case(seed_of_run: int, number: int) -> dict[str, int]:
    machine = seed(f"{seed_of_run} {number}")(MACHINE)
    given = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=given)
    return {"steps": EXAMPLES * STEPS}
