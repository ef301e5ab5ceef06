"""An I/O error at every call of the disk, one at a time: see io_faults.py for what must hold.

``scripts/campaign io-faults`` does the same with larger workloads, and with two errors at once.
"""

from __future__ import annotations

import os

import pytest
from crash_workloads import LITTLE
from io_faults import KINDS, Fault, broken

SEED = int(os.environ.get("OCTAVO_SEED", "1"))


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(LITTLE))
def test_an_error_at_any_call_is_told_and_loses_nothing(name: str, kind: str) -> None:
    workload, setup, options = LITTLE[name]
    for number in range(1, 1000):
        fault = Fault(kind, (number,))
        wrong = broken(name, workload, setup, SEED, fault, **options)
        assert not wrong, (
            f"{kind} at call {number} ({fault.operation}) of {name!r}: {wrong}\n"
            f"OCTAVO_SEED={SEED} pytest tests/crash/test_io_faults.py -k '{name} and {kind}'"
        )
        if not fault.fired:
            assert number > 10
            return
    raise AssertionError("more calls than there can be")
