"""Who waits for whom: what is a cycle, and what only looked like one."""

from __future__ import annotations

import pytest

from octavo.actors.turns import waits


class Turn:
    def __init__(self, holder: int = 0) -> None:
        self.holder = holder


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else waits in this process is none of these tests' business."""
    monkeypatch.setattr(waits, "waiting", {})


def test_a_turn_that_this_thread_is_in_is_a_cycle() -> None:
    mine = Turn(holder=1)
    assert waits.cycle(mine, 1) == [mine]


def test_a_turn_of_a_thread_that_waits_for_nothing_is_none() -> None:
    assert waits.cycle(Turn(holder=2), 1) is None
    assert waits.cycle(Turn(holder=0), 1) is None


def test_a_row_of_waits_that_leads_back_is_a_cycle() -> None:
    first, second, mine = Turn(2), Turn(3), Turn(1)
    waits.waiting.update({2: waits.Wait(second), 3: waits.Wait(mine)})
    assert waits.cycle(first, 1) == [first, second, mine]


def test_a_ring_that_this_thread_is_not_in_is_none_of_its_business() -> None:
    first, second = Turn(2), Turn(3)
    waits.waiting.update({2: waits.Wait(second), 3: waits.Wait(first)})
    assert waits.cycle(first, 1) is None


def test_a_holder_that_let_go_before_it_came_to_wait_closes_no_cycle() -> None:
    class LettingGo(Turn):
        """Held by thread 2 when it is first looked at, and by nobody afterwards."""

        def __init__(self) -> None:
            self.looks = 0

        @property
        def holder(self) -> int:  # type: ignore[override]
            self.looks += 1
            return 2 if self.looks == 1 else 0

    mine = Turn(1)
    waits.waiting[2] = waits.Wait(mine)
    assert waits.cycle(LettingGo(), 1) is None


def test_a_later_wait_of_the_same_thread_is_another_wait() -> None:
    class WaitingAnew(Turn):
        """By the second look its thread has given up one wait and begun another."""

        def __init__(self) -> None:
            self.looks = 0

        @property
        def holder(self) -> int:  # type: ignore[override]
            self.looks += 1
            if self.looks == 2:
                waits.waiting[2] = waits.Wait(mine)
            return 2

    mine = Turn(1)
    waits.waiting[2] = waits.Wait(mine)
    assert waits.cycle(WaitingAnew(), 1) is None
