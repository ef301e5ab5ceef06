"""Steps that no signal cuts in two: its handler runs at their end, and stands again afterwards,
even where the handler of another signal raises just then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from octavo.files.unbroken import Unbroken


class Alarm(Exception):  # noqa: N818 - as a program's own time limit raises it
    pass


def rings(number: int, frame: FrameType | None) -> None:
    raise Alarm


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, rings)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark puts its own there
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ctrl_c_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def broken_off(times: int, putting: Callable[[Any], bool]) -> Callable[[int, Any], object]:
    """``signal.signal`` in whose call SIGALRM comes: it first runs handlers of what has come."""
    real, left = signal.signal, [times]

    def replaced(number: int, handler: Any) -> object:
        if number == signal.SIGINT and putting(handler) and left[0]:
            left[0] -= 1
            rings(signal.SIGALRM, None)
        return real(number, handler)

    return replaced


def stepped(*during: Callable[[], object]) -> None:
    """A step in which all of this is done."""
    with Unbroken():
        for each in during:
            each()


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_handler_runs_at_the_end_of_the_step() -> None:
    reached: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        stepped(lambda: stepped(ctrl_c), lambda: reached.append(True))
    assert reached
    ctrl_c_is_heard()


class Breaking:
    """As putting handlers back, or off, is broken off so many times by an alarm."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def off(self, times: int, *, back: bool) -> None:
        def putting(handler: object) -> bool:
            return (handler is signal.default_int_handler) is back

        self.monkeypatch.setattr(signal, "signal", broken_off(times, putting))


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return Breaking(monkeypatch)


@pytest.mark.parametrize("times", [1, 2], ids=["once", "again"])
def test_a_handler_that_raises_as_others_are_put_back_costs_none_of_them(
    breaking: Breaking, times: int
) -> None:
    step = Unbroken()
    with pytest.raises(Alarm), step:
        breaking.off(times, back=True)
    if times == 2:
        with step:  # which puts it back
            pass
    ctrl_c_is_heard()


def test_a_signal_finds_its_handler_where_that_could_not_be_put_back(breaking: Breaking) -> None:
    with pytest.raises(Alarm):
        stepped(lambda: breaking.off(2, back=True))
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ctrl_c_is_heard()


def test_a_handler_that_raises_as_others_are_put_off_leaves_no_step(breaking: Breaking) -> None:
    begun: list[bool] = []
    breaking.off(1, back=False)
    with pytest.raises(Alarm):
        stepped(lambda: begun.append(True))
    assert not begun
    ctrl_c_is_heard()


def test_what_came_during_a_step_is_heard_though_another_raises(breaking: Breaking) -> None:
    with pytest.raises(KeyboardInterrupt):
        stepped(ctrl_c, lambda: breaking.off(1, back=True))
    ctrl_c_is_heard()


def test_of_several_that_came_during_a_step_each_is_heard() -> None:
    """As CPython has it, where the handler of one of them raises, as that of Ctrl-C does."""
    heard: list[int] = []

    def hears(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise Alarm

    for number in (signal.SIGALRM, signal.SIGINT):
        signal.signal(number, hears)
    with pytest.raises(Alarm):
        stepped(ctrl_c, lambda: signal.raise_signal(signal.SIGALRM))
    assert heard == [signal.SIGINT, signal.SIGALRM]
