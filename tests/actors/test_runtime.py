"""The actor runtime: what the actor model promises, and what it costs in threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pykka
import pytest
from counting_actor import WAIT, Counter, run_threads
from pykka import ActorDeadError
from pykka.messages import ProxyCall

from octavo.actors.turns.pool import MAX_THREADS, POOL
from octavo.actors.turns.runtime import Ref
from octavo.files.errors import AskCycle, AskTimeout, Closed

ADD = ProxyCall(("add",), (), {})


@pytest.fixture
def ref() -> Iterator[Ref[Counter]]:
    started = Counter.start()
    yield started
    started.stop()


@contextmanager
def busy(ref: Ref[Counter]) -> Iterator[threading.Event]:
    """The actor is in a turn, on the pool, until the end or until the event is set."""
    entered, go = threading.Event(), threading.Event()
    ref.send(Counter.hold, entered, go)
    assert entered.wait(WAIT)
    try:
        yield go
    finally:
        go.set()


# ------------------------------------------------------------ turns


def test_a_call_runs_on_the_asking_thread(ref: Ref[Counter]) -> None:
    me = threading.get_ident()
    assert ref.call(Counter.thread) == me
    assert ref.ask(ProxyCall(("thread",), (), {})) == me
    assert ref.ask(ProxyCall(("thread",), (), {}), block=False).get() > 0


def test_pykkas_proxy_works(ref: Ref[Counter]) -> None:
    proxy = ref.proxy()
    assert proxy.add(5).get() == 5
    proxy.value = 7
    assert proxy.value.get() == 7
    assert pykka.get_all([proxy.add(1), proxy.add(1)]) == [8, 9]
    assert proxy.add(1).map(lambda value: value * 2).get(timeout=WAIT) == 20


def test_turns_never_overlap(ref: Ref[Counter]) -> None:
    ways: list[Callable[[], object]] = [
        lambda: ref.call(Counter.add),
        lambda: ref.send(Counter.add),
        ref.actor.add_inlined,
        ref.actor.add_inlined,
        lambda: ref.ask(ADD),
        lambda: ref.ask(ADD, block=False),
    ]

    def body(number: int) -> None:
        for _ in range(1000):
            ways[number]()

    assert run_threads(6, body) == []
    assert ref.call(Counter.total) == 6000
    assert ref.actor.wrong == []


def test_messages_of_one_sender_keep_their_order(ref: Ref[Counter]) -> None:
    def body(number: int) -> None:
        for i in range(400):
            match (i + number) % 4:
                case 0:
                    ref.send(Counter.note, (number, i))
                case 1:
                    ref.call(Counter.note, (number, i))
                case 2:
                    ref.tell(ProxyCall(("note",), ((number, i),), {}))
                case 3:
                    ref.ask(ProxyCall(("note",), ((number, i),), {}), block=False)

    assert run_threads(4, body) == []
    seen = ref.call(lambda counter: list(counter.seen))
    for number in range(4):
        assert [what[1] for what in seen if what[0] == number] == list(range(400))  # type: ignore[index]


def test_an_inlined_turn_serves_first_what_was_told_before(ref: Ref[Counter]) -> None:
    ref.actor.waiting_messages.append((ADD, None))
    assert ref.actor.add_inlined() == 2


def test_a_tell_never_waits_for_a_busy_actor(ref: Ref[Counter]) -> None:
    with busy(ref):
        for _ in range(1000):
            ref.send(Counter.add)
    assert ref.call(Counter.total) == 1000


def test_an_actor_that_never_stops_telling_itself_still_answers(ref: Ref[Counter]) -> None:
    ref.send(Counter.tell_itself_for_ever)
    for number in range(200):
        assert ref.call(Counter.add) == number + 1
        assert ref.ask(ProxyCall(("total",), (), {}), block=False).get() == number + 1


# ------------------------------------------------------------ errors


def test_an_error_reaches_the_asker_with_its_traceback_and_the_actor_lives_on(
    ref: Ref[Counter],
) -> None:
    for ask in (
        lambda: ref.call(Counter.boom),
        lambda: ref.ask(ProxyCall(("boom",), (), {})),
        lambda: ref.ask(ProxyCall(("boom",), (), {}), block=False).get(),
    ):
        with pytest.raises(ValueError, match="boom") as raised:
            ask()
        assert "boom" in [frame.name for frame in raised.traceback]
    assert ref.call(Counter.add) == 4


def test_an_error_in_a_tell_is_logged_without_its_arguments_and_the_actor_lives_on(
    ref: Ref[Counter], caplog: pytest.LogCaptureFixture
) -> None:
    ref.send(Counter.boom, "a secret")
    ref.tell(ProxyCall(("boom",), ("a secret",), {}))
    assert ref.call(Counter.add) == 3
    assert ref.actor.failures == [ValueError, ValueError]
    assert caplog.text.count("failed to handle") == 2
    assert "a secret" not in caplog.text


def test_a_failing_on_failure_does_not_reach_an_innocent_asker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unlucky(Counter):
        def on_failure(self, kind: object, error: object, traceback: object) -> None:
            raise RuntimeError("again")

    ref = Unlucky.start()
    ref.actor.waiting_messages.append((ProxyCall(("boom",), (), {}), None))
    assert ref.call(Counter.add) == 2
    assert "on_failure failed" in caplog.text
    ref.stop()


def test_a_queued_ask_that_is_broken_off_is_answered(ref: Ref[Counter]) -> None:
    future = ref.actor._create_future()
    ref.actor.waiting_messages.append((ProxyCall(("exit",), (), {}), future))
    with pytest.raises(SystemExit):
        ref.call(Counter.add)
    with pytest.raises(SystemExit):
        future.get(timeout=0)
    assert ref.call(Counter.add) == 1


# ------------------------------------------------------------ deadlines


def test_an_ask_has_a_deadline_and_names_actor_and_message(ref: Ref[Counter]) -> None:
    with busy(ref):
        with pytest.raises(AskTimeout, match=r"Counter .* add within 0\.01 s"):
            ref.ask(ADD, timeout=0.01)
        with pytest.raises(AskTimeout, match="Counter"):
            ref.actor.enter(0.01)
        with pytest.raises(AskTimeout, match="Counter"):
            ref.ask(ADD, block=False).get(timeout=0.01)
    assert ref.call(Counter.add) == 2  # the last was not taken back, only not waited for


def test_who_names_no_deadline_has_the_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "DEADLINE_SECONDS", 0.01)
    ref = Counter.start()
    with busy(ref):
        for ask in (
            lambda: ref.call(Counter.add),
            lambda: ref.ask(ADD),
            lambda: ref.ask(ADD, block=False).get(),
            ref.actor.add_inlined,
            ref.actor.enter,
        ):
            with pytest.raises(AskTimeout):
                ask()
    ref.stop(timeout=WAIT)


def test_the_deadline_holds_while_earlier_messages_are_served(ref: Ref[Counter]) -> None:
    for _ in range(3):
        ref.actor.waiting_messages.append((ADD, None))
    with pytest.raises(AskTimeout, match="3 earlier messages"):
        ref.ask(ADD, timeout=0)
    assert ref.call(Counter.add) == 4


def test_an_answered_future_does_not_wait_for_the_actor(ref: Ref[Counter]) -> None:
    future = ref.ask(ADD, block=False)
    assert future.get() == 1
    with busy(ref):
        assert future.get(timeout=0) == 1


# ------------------------------------------------------------ starting and stopping


def test_a_stopped_actor_answers_everything(ref: Ref[Counter]) -> None:
    proxy = ref.proxy()
    assert ref.stop() is True
    assert ref.stop() is False
    assert ref.stop(block=False).get(timeout=WAIT) is True
    for ask in (
        lambda: ref.call(Counter.add),
        lambda: ref.ask(ADD),
        lambda: ref.ask(ADD, block=False).get(),
        lambda: ref.tell(ADD),
        lambda: proxy.add().get(),
        ref.actor.add_inlined,
        ref.actor.enter,
    ):
        with pytest.raises(ActorDeadError, match="Counter"):
            ask()
    ref.send(Counter.add)  # is dropped
    assert ref.actor.value == 0
    assert not ref.is_alive()


def test_what_came_before_a_stop_is_done_and_what_came_after_is_answered() -> None:
    ref = Counter.start()
    with busy(ref):
        before = ref.ask(ADD, block=False)
        stop = ref.stop(block=False)
        after = ref.ask(ADD, block=False)
    assert stop.get() is True
    assert before.get() == 1
    with pytest.raises(ActorDeadError):
        after.get()


def test_an_actor_can_stop_itself() -> None:
    ref = Counter.start()
    ref.call(lambda counter: counter.stop())
    assert ref.stop() in (True, False)
    assert ref.actor.ended


def test_an_actor_may_say_in_its_own_words_that_it_is_stopped() -> None:
    class Shop(Counter):
        def stopped_error(self) -> Exception:
            return Closed("the shop is closed")

    ref = Shop.start()
    assert ref.stop() is True
    assert ref.stop() is False
    for ask in (
        lambda: ref.call(Counter.add),
        ref.actor.add_inlined,
        lambda: ref.ask(ADD, block=False).get(),
    ):
        with pytest.raises(Closed, match="the shop"):
            ask()


def test_a_failing_on_start_is_raised_and_leaves_no_actor_behind() -> None:
    class Stillborn(Counter):
        def on_start(self) -> None:
            raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        Stillborn.start()
    assert pykka.ActorRegistry.get_by_class(Stillborn) == []


def no_memory(*_: object) -> None:
    raise MemoryError


def test_an_actor_that_finds_no_memory_as_it_starts_is_not_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Ref, "call", no_memory)
    with pytest.raises(MemoryError):
        Counter.start()
    assert pykka.ActorRegistry.get_by_class(Counter) == []


def test_an_actor_that_finds_no_memory_as_it_stops_is_stopped_by_the_next_call(
    ref: Ref[Counter], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pykka.ActorRegistry, "unregister", no_memory)
        with pytest.raises(MemoryError):
            ref.stop()
    assert ref.stop() is True
    assert pykka.ActorRegistry.get_by_class(Counter) == []


def test_a_failing_on_stop_is_logged_and_the_actor_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Clinging(Counter):
        def on_stop(self) -> None:
            raise ValueError("not yet")

    ref = Clinging.start()
    assert ref.stop() is True
    assert "not yet" in caplog.text
    assert not ref.is_alive()


# ------------------------------------------------------------ cycles


def test_an_actor_that_asks_itself_gets_an_error_not_a_hang(ref: Ref[Counter]) -> None:
    with pytest.raises(AskCycle, match="Counter -> Counter"):
        ref.call(Counter.ask_itself)
    with pytest.raises(AskCycle):
        ref.call(lambda counter: counter.actor_ref.ask(ADD, block=False).get())
    with pytest.raises(AskCycle):
        ref.call(lambda counter: counter.actor_ref.stop())
    assert ref.call(Counter.total) == 1  # the one told to it, after its turn


def test_a_cycle_through_another_actor_is_an_error(ref: Ref[Counter]) -> None:
    other = Counter.start()
    with pytest.raises(AskCycle):
        ref.call(Counter.ask_through, other)
    assert other.call(Counter.add) == 1
    other.stop()


def test_a_cycle_across_threads_is_an_error(ref: Ref[Counter]) -> None:
    others = [Counter.start() for _ in range(2)]
    ring = [ref, *others]
    barrier = threading.Barrier(3)
    failures = run_threads(
        3, lambda n: ring[n].call(Counter.meet_then_ask, barrier, ring[(n + 1) % 3])
    )
    assert failures
    assert {type(error) for error in failures} == {AskCycle}
    assert ref.call(Counter.add) >= 1
    for other in others:
        other.stop()


def test_asks_that_cross_but_close_no_cycle_are_all_answered(ref: Ref[Counter]) -> None:
    # Every thread asks down the same row of actors: they wait for each other, but never in a ring.
    row = [ref, Counter.start(), Counter.start()]

    def body(number: int) -> None:
        first = number % 2
        for _ in range(1000):
            row[first].call(Counter.ask, row[first + 1], Counter.add)
            row[2].call(Counter.add)
            row[first + 1].call(Counter.add)

    assert run_threads(4, body) == []
    for other in row[1:]:
        other.stop()


# ------------------------------------------------------------ the process


def test_the_processs_other_actors_are_never_touched() -> None:
    class Foreign(pykka.ThreadingActor):
        def on_receive(self, message: object) -> str:
            return "alive"

    foreign = Foreign.start()
    try:
        for _ in range(10):
            ref = Counter.start()
            with pytest.raises(ValueError, match="boom"):
                ref.call(Counter.boom)
            with pytest.raises(SystemExit):
                ref.call(Counter.exit)
            ref.stop()
        assert foreign.ask("?", timeout=WAIT) == "alive"
    finally:
        foreign.stop()


def test_pykkas_own_stop_all_stops_ours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not what another test left running: that has its own way of being stopped.
    monkeypatch.setattr(pykka.ActorRegistry, "_actor_refs", [])
    ref = Counter.start()
    pykka.ActorRegistry.stop_all(timeout=WAIT)
    assert ref.actor.ended
    with pytest.raises(ActorDeadError):
        ref.call(Counter.add)


def test_five_thousand_actors_need_no_thread_of_their_own() -> None:
    logging.getLogger("pykka").setLevel(logging.INFO)
    before = threading.active_count()
    refs = [Counter.start() for _ in range(5000)]
    for ref in refs:
        ref.send(Counter.add)
    assert all(ref.call(Counter.total) == 1 for ref in refs)
    assert threading.active_count() <= before + MAX_THREADS
    assert POOL.threads <= MAX_THREADS
    for ref in refs:
        ref.stop()


def test_a_thread_of_the_pool_can_ask(ref: Ref[Counter]) -> None:
    other = Counter.start()
    asked = ref.ask(ProxyCall(("ask",), (other, Counter.add), {}), block=False)
    assert asked.get() == 1
    other.stop()


def test_a_future_is_answered_though_the_whole_pool_is_busy(ref: Ref[Counter]) -> None:
    others = [Counter.start() for _ in range(MAX_THREADS)]
    entered, go = [threading.Event() for _ in others], threading.Event()
    for other, event in zip(others, entered, strict=True):
        other.send(Counter.hold, event, go)
    assert all(event.wait(WAIT) for event in entered)
    assert ref.ask(ADD, block=False).get(timeout=WAIT) == 1
    go.set()
    for other in others:
        other.stop()
