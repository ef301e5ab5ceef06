"""Whatever the owner does between two operations of who reads from another process: what that finds
is a state of the store, or all its changes. So it is with the calls of two threads of the owner."""

from __future__ import annotations

import pytest
from interleaved import READS, STEPS, drawn, interleaved
from interleaved_calls import CALLS, OTHERS, interleaved_calls
from whole_store import SEED

STRIDE = 4
SEVERAL = 25
PLACES = 4


@pytest.mark.parametrize("read", READS)
def test_any_step_of_the_owner_may_come_between(read: str) -> None:
    calls, wrong = interleaved(read, {}, SEED)
    assert not wrong
    for number, step in enumerate(STEPS):
        for at in range(1 + number % STRIDE, calls + 1, STRIDE):
            _, wrong = interleaved(read, {at: step}, SEED)
            assert not wrong, f"{step} before operation {at} of {calls}: {wrong}"


@pytest.mark.parametrize("read", READS)
def test_several_steps_of_the_owner_may_come_between(read: str) -> None:
    print(f"OCTAVO_SEED={SEED}")
    for number in range(SEVERAL):
        steps = drawn(read, SEED, number)
        _, wrong = interleaved(read, steps, SEED + number)
        assert not wrong, f"{steps}: {wrong}"


def test_an_opening_and_a_save_may_come_while_files_are_linked() -> None:
    """The link of an unsealed file that the opening made anew, and a ledger that has more."""
    for at in range(1, 40):
        _, wrong = interleaved("pin", {at: "opens again", at + 9: "saves"}, 2)
        assert not wrong, f"from operation {at} on: {wrong}"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("call", CALLS)
def test_any_call_of_another_thread_may_come_between(call: str, seed: int) -> None:
    most, wrong = interleaved_calls(call, {}, seed)
    assert not wrong
    for number, step in enumerate(OTHERS):
        stride = max(most // PLACES, 1)
        for at in range(1 + number % stride, most + 1, stride):
            _, wrong = interleaved_calls(call, {at: step}, seed)
            assert not wrong, f"{step} before operation {at} of {most}: {wrong}"
