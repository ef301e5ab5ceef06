"""What an actor is told while somebody is in its turn, or waits for it, is served behind that: no
message waits for the next one."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from counting_actor import WAIT, Counter
from one_thread import HeldPool
from pykka.messages import ProxyCall

from octavo.actors.turns import runtime, waits
from octavo.actors.turns.messages import Call, interruptible
from octavo.actors.turns.ref import Ref
from octavo.actors.turns.runtime import TurnActor
from octavo.actors.turns.turn_future import TurnFuture
from octavo.files.errors import AskTimeout

ADD = ProxyCall(("add",), (), {})


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldPool]:
    held = HeldPool()
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "POOL", held)
        yield held


@pytest.fixture
def ref(pool: HeldPool) -> Iterator[Ref[Counter]]:
    started = Counter.start()
    yield started
    started.stop()


def told(ref: Ref[Counter], pool: HeldPool) -> Callable[[Counter], None]:
    """What is told in a turn, and that the pool leaves to who is in it."""

    def tell(_: Counter) -> None:
        ref.tell(ADD)
        pool.go_on()
        assert ref.actor.value == 0

    return tell


def in_a_call(ref: Ref[Counter], pool: HeldPool) -> None:
    ref.call(told(ref, pool))


def in_an_ask(ref: Ref[Counter], pool: HeldPool) -> None:
    ref.ask(Call(told(ref, pool), (), {}))


def in_a_turn(ref: Ref[Counter], pool: HeldPool) -> None:
    ref.actor.enter()
    told(ref, pool)(ref.actor)
    ref.actor.leave()


def in_an_answer(ref: Ref[Counter], pool: HeldPool) -> None:
    ref.send(told(ref, pool))
    ref.actor.answer(None)


def before_a_turn_that_has_no_time_for_it(ref: Ref[Counter], pool: HeldPool) -> None:
    ref.tell(ADD)
    pool.work.clear()
    with pytest.raises(AskTimeout, match="1 earlier messages"):
        ref.actor.enter(0)


def before_a_wait_for_a_turn_that_does_not_come(ref: Ref[Counter], pool: HeldPool) -> None:
    assert next(ref.actor.turns)
    told(ref, pool)(ref.actor)
    with pytest.raises(AskTimeout):
        ref.ask(ADD, timeout=0)
    ref.actor.turn_release()


@pytest.mark.parametrize(
    "way",
    [
        in_a_call,
        in_an_ask,
        in_a_turn,
        in_an_answer,
        before_a_turn_that_has_no_time_for_it,
        before_a_wait_for_a_turn_that_does_not_come,
    ],
)
def test_it_is_served_behind_that(
    ref: Ref[Counter], pool: HeldPool, way: Callable[[Ref[Counter], HeldPool], None]
) -> None:
    way(ref, pool)
    pool.go_on()
    assert ref.actor.value == 1


def test_who_waits_no_more_closes_no_cycle_later(ref: Ref[Counter]) -> None:
    assert next(ref.actor.turns)
    with pytest.raises(AskTimeout):
        ref.ask(ADD, timeout=0)
    ref.actor.turn_release()
    assert threading.get_ident() not in waits.waiting


def test_an_ask_may_wait_as_long_as_it_takes(ref: Ref[Counter]) -> None:
    entered, go = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: ref.call(Counter.hold, entered, go))
    other.start()
    assert entered.wait(WAIT)
    asked = threading.Thread(target=lambda: ref.ask(ADD, timeout=math.inf))
    asked.start()
    while asked.is_alive() and not waits.is_awaited(ref.actor):
        pass
    go.set()
    asked.join(WAIT)
    other.join(WAIT)
    assert ref.actor.value == 1


def test_what_an_actor_raised_is_told_again_without_its_turn(ref: Ref[Counter]) -> None:
    future = ref.ask(ProxyCall(("unknown",), (), {}), block=False)
    with pytest.raises(AttributeError):
        future.get()
    assert next(ref.actor.turns)
    with pytest.raises(AttributeError):
        future.get(timeout=0)
    ref.actor.turn_release()


def test_an_answer_that_was_given_stays() -> None:
    future, error = TurnFuture(), RuntimeError("too late")
    future.set(1)
    future.settle((RuntimeError, error, None))
    assert future.get() == 1


class Cut(TurnActor):
    """Ctrl-C comes in the first of its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.done = 0

    def short(self) -> None:
        self.begun += 1
        if self.begun == 1:
            signal.raise_signal(signal.SIGINT)
        self.done += 1

    @interruptible
    def long(self) -> None:
        self.short()


def test_a_message_is_served_whole_whatever_a_ctrl_c_comes_in_it(pool: HeldPool) -> None:
    cut = Cut.start()
    cut.send(Cut.short)
    with pytest.raises(KeyboardInterrupt):
        cut.actor.answer(None)
    assert (cut.actor.begun, cut.actor.done) == (1, 1)
    assert not cut.actor.waiting_messages
    cut.stop()


def test_a_message_that_takes_long_is_cut_short_by_ctrl_c_and_begins_again(pool: HeldPool) -> None:
    cut = Cut.start()
    cut.send(Cut.long)
    with pytest.raises(KeyboardInterrupt):
        cut.actor.answer(None)
    assert (cut.actor.begun, cut.actor.done) == (1, 0)
    pool.go_on()
    assert (cut.actor.begun, cut.actor.done) == (2, 1)
    assert not cut.actor.waiting_messages
    cut.stop()
