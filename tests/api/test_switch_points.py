"""Wherever CPython goes on with another thread within a call, both are right: what is read is of a
moment, writes are in the order of their sqns, and memory and files agree afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from known_calls import STANDARD, Known, wrong_reads
from known_heads import HEADS
from switch_points import SwitchPoints, only_where_they_are_seen
from switched import CLOSES, switched_store

SEED = os.environ.get("OCTAVO_SEED", "20261121")
WARM = 50
WHOLE = 1
STOPPED = 2
CALLS_AN_OPENING = 4
CLOSES_A_CALL = 12
CALLS = [
    pytest.param(known, call, id=f"{call}{of}")
    for known, of in ((STANDARD, ""), (HEADS, ", head-only"))
    for call in known.calls
]

pytestmark = only_where_they_are_seen


def test_each_switch_point_of_a_call_is_seen_once() -> None:
    def step() -> None:
        pass

    def work() -> None:
        step()
        step()
        step()

    points, seen = SwitchPoints(), []
    for _ in range(WARM):  # CPython takes steps together, and looks at fewer points
        with points.of_a_call():
            work()
    most = points.passed
    for at in range(1, most + 1):
        with points.of_a_call(at, lambda: seen.append(points.where)):
            work()
    assert len(seen) == most
    assert sum(where.split(",")[0].endswith("step") for where in seen) == 3, seen


@pytest.mark.parametrize(("known", "call"), CALLS)
def test_a_call_of_another_thread_may_come_at_any_switch_point(
    known: Known, call: str, tmp_path: Path
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    with switched_store(tmp_path / "s", f"{SEED} {call}", known) as switched:
        for place, other in enumerate(known.others):
            if place % CALLS_AN_OPENING == 0:
                switched.on.open_again()
            for number in range(WHOLE + STOPPED):
                assert not switched.wrong(call, other, stops=number >= WHOLE)
        assert not wrong_reads(switched.on, known.reads)


@pytest.mark.parametrize(("known", "call"), CALLS)
def test_a_close_by_another_thread_may_come_at_any_switch_point(
    known: Known, call: str, tmp_path: Path
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    with switched_store(tmp_path / "s", f"{SEED} {call}", known) as switched:
        for number in range(CLOSES_A_CALL):
            assert not switched.wrong(call, CLOSES, stops=number % 2 == 1)
        assert not wrong_reads(switched.on, known.reads)
