"""Random calls against a dict, with snapshots, reopenings and lost processes; also indexes.

Each case runs a state machine of tests/model, each in turn, with a seed of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

TESTS = Path(__file__).resolve().parent.parent.parent / "tests" / "model"


def _machine(module_name: str, name: str) -> type:
    spec = importlib.util.spec_from_file_location(module_name, TESTS / f"{module_name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"tests/model/{module_name}.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    found: type = getattr(module, name)
    return found


MACHINES = (
    _machine("test_state_machine", "StoreMachine"),
    _machine("test_index_machine", "IndexMachine"),
)
EXAMPLES = 10
STEPS = 50


def case(seed_of_run: int, number: int) -> dict[str, int]:
    machine = seed(f"{seed_of_run} {number}")(MACHINES[number % len(MACHINES)])
    given = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=given)
    return {"steps": EXAMPLES * STEPS}
