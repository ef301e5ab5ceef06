"""An I/O error at every call of the disk, one at a time: see io_faults.py for what must hold.

``scripts/campaign io-faults`` does the same with larger workloads, and with two errors at once.
"""

from __future__ import annotations

import os

import pytest
from crash_workloads import LITTLE, WORKLOADS
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


MET = [
    # The fsync of a batch in a file that had been rolled since: the next file took puts.
    ("batches", "ENOSPC", (72,), 20261121006),
    # The second of two fsyncs failed, which nobody believed: no fault of the store.
    ("batches", "EINTR", (76, 78), 20261121068),
]


@pytest.mark.parametrize(("name", "kind", "places", "seed"), MET)
def test_what_a_campaign_met(name: str, kind: str, places: tuple[int, ...], seed: int) -> None:
    cuts = WORKLOADS[name](0)
    fault = Fault(kind, places)
    assert broken(name, cuts.workload, cuts.setup, seed, fault, **cuts.options) == ""
    assert fault.fired == len(places)
