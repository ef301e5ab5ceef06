"""The actor runtime: what the actor model promises, and what it costs in threads."""

from __future__ import annotations

import os
import threading

import pykka
import pytest
from pykka import ActorDeadError
from pykka.messages import ProxyCall

from octavo.actors.pool import MAX_THREADS, POOL
from octavo.actors.runtime import TurnActor
from octavo.files.errors import AskCycle, AskTimeout

WAIT = 10.0


class Counter(TurnActor):
    def __init__(self) -> None:
        super().__init__()
        self.value = 0
        self.seen: list[object] = []
        self.inside = 0
        self.overlapped = False

    def add(self, by: int = 1) -> int:
        self.inside += 1
        if self.inside > 1:
            self.overlapped = True
        before = self.value
        for _ in range(20):
            pass
        self.value = before + by
        self.inside -= 1
        return self.value

    def note(self, what: object) -> None:
        self.seen.append(what)

    def hold(self, entered: threading.Event, go: threading.Event) -> None:
        entered.set()
        go.wait(WAIT)

    def boom(self) -> None:
        self.value += 1
        raise ValueError("boom")

    def add_itself(self) -> int:
        return self.actor_ref.call(Counter.add)

    def add_through(self, other: pykka.ActorRef) -> int:
        return other.call(Counter.add_through_back, self.actor_ref)

    def add_through_back(self, first: pykka.ActorRef) -> int:
        return first.call(Counter.add)

    def meet_then_ask(self, barrier: threading.Barrier, other: pykka.ActorRef) -> int:
        barrier.wait(WAIT)
        return other.call(Counter.add)


@pytest.fixture
def ref():
    started = Counter.start()
    yield started
    started.stop()


def run_threads(count: int, body) -> list[BaseException]:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            body(number)
        except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a call never came back"
    return failures


def test_a_call_runs_on_the_asking_thread_and_gives_the_result(ref) -> None:
    assert ref.call(Counter.add, 5) == 5
    assert ref.ask(ProxyCall(("add",), (1,), {})) == 6
    assert ref.proxy().add(1).get(timeout=WAIT) == 7


def test_turns_never_overlap(ref) -> None:
    def body(number: int) -> None:
        for _ in range(500):
            if number % 2:
                ref.call(Counter.add)
            else:
                ref.send(Counter.add)

    assert run_threads(6, body) == []
    assert ref.call(lambda counter: counter.value) == 3000
    assert not ref.actor.overlapped


def test_messages_of_one_sender_keep_their_order(ref) -> None:
    def body(number: int) -> None:
        for i in range(200):
            kind = (i + number) % 3
            if kind == 0:
                ref.send(Counter.note, (number, i))
            elif kind == 1:
                ref.call(Counter.note, (number, i))
            else:
                ref.ask(ProxyCall(("note",), ((number, i),), {}), block=False)

    assert run_threads(4, body) == []
    seen = ref.call(lambda counter: list(counter.seen))
    for number in range(4):
        assert [i for n, i in seen if n == number] == list(range(200))


def test_an_error_reaches_the_asker_with_its_traceback_and_the_actor_lives_on(ref) -> None:
    with pytest.raises(ValueError, match="boom") as raised:
        ref.call(Counter.boom)
    assert "boom" in [frame.name for frame in raised.traceback]
    with pytest.raises(ValueError, match="boom"):
        ref.ask(ProxyCall(("boom",), (), {}), block=False).get(timeout=WAIT)
    assert ref.call(Counter.add) == 3


def test_an_error_in_a_tell_is_logged_and_the_actor_lives_on(ref, caplog) -> None:
    ref.send(Counter.boom)
    assert ref.call(Counter.add) == 2
    assert "failed to handle" in caplog.text


def test_an_ask_has_a_deadline(ref) -> None:
    entered, go = threading.Event(), threading.Event()
    ref.send(Counter.hold, entered, go)
    assert entered.wait(WAIT)
    with pytest.raises(AskTimeout, match="Counter"):
        ref.ask(ProxyCall(("add",), (), {}), timeout=0.01)
    go.set()
    assert ref.call(Counter.add) == 1


def test_a_tell_never_waits_for_a_busy_actor(ref) -> None:
    entered, go = threading.Event(), threading.Event()
    ref.send(Counter.hold, entered, go)
    assert entered.wait(WAIT)
    for _ in range(1000):
        ref.send(Counter.add)
    go.set()
    assert ref.call(lambda counter: counter.value) == 1000


def test_a_stopped_actor_answers_everything(ref) -> None:
    assert ref.stop() is True
    assert ref.stop() is False
    with pytest.raises(ActorDeadError):
        ref.call(Counter.add)
    with pytest.raises(ActorDeadError):
        ref.ask("x")
    with pytest.raises(ActorDeadError):
        ref.ask("x", block=False).get(timeout=WAIT)
    with pytest.raises(ActorDeadError):
        ref.tell("x")


def test_asks_that_race_a_stop_are_all_answered() -> None:
    answered = [0] * 4

    def body(number: int) -> None:
        for _ in range(2500):
            ref = refs[-1]
            try:
                if number % 2:
                    ref.call(Counter.add)
                else:
                    ref.ask(ProxyCall(("add",), (), {}), block=False).get(timeout=WAIT)
            except ActorDeadError:
                pass
            answered[number] += 1

    refs = [Counter.start()]
    done = threading.Event()

    def stopper() -> None:
        while not done.is_set():
            refs.append(Counter.start())
            refs.pop(0).stop()

    thread = threading.Thread(target=stopper)
    thread.start()
    failures = run_threads(4, body)
    done.set()
    thread.join(WAIT)
    refs[-1].stop()
    assert failures == []
    assert answered == [2500] * 4


def test_an_actor_that_asks_itself_gets_an_error_not_a_hang(ref) -> None:
    with pytest.raises(AskCycle):
        ref.call(Counter.add_itself)
    assert ref.call(Counter.add) == 1


def test_a_cycle_through_another_actor_is_an_error(ref) -> None:
    other = Counter.start()
    with pytest.raises(AskCycle):
        ref.call(Counter.add_through, other)
    assert other.call(Counter.add) == 1
    other.stop()


def test_a_cycle_across_threads_is_an_error(ref) -> None:
    other = Counter.start()
    barrier = threading.Barrier(2)
    pairs = [(ref, other), (other, ref)]

    failures = run_threads(
        2, lambda n: pairs[n][0].call(Counter.meet_then_ask, barrier, pairs[n][1])
    )
    assert [type(error) for error in failures] in ([AskCycle], [AskCycle, AskCycle])
    assert ref.call(Counter.add) >= 1
    other.stop()


def test_an_interrupt_in_a_turn_lets_go_of_it_and_stops_nothing(ref) -> None:
    bystander = Counter.start()

    def interrupted(counter: Counter) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ref.call(interrupted)
    assert ref.call(Counter.add) == 1
    assert bystander.call(Counter.add) == 1
    bystander.stop()


def test_the_processs_other_actors_are_never_touched() -> None:
    class Foreign(pykka.ThreadingActor):
        def on_receive(self, message: object) -> str:
            return "alive"

    foreign = Foreign.start()
    try:
        refs = [Counter.start() for _ in range(10)]
        for ref in refs:
            with pytest.raises(ValueError, match="boom"):
                ref.call(Counter.boom)
            ref.stop()
        assert foreign.ask("?", timeout=WAIT) == "alive"
    finally:
        foreign.stop()


def test_pykkas_own_stop_all_stops_ours_too() -> None:
    ref = Counter.start()
    pykka.ActorRegistry.stop_all(timeout=WAIT)
    with pytest.raises(ActorDeadError):
        ref.call(Counter.add)


def test_five_thousand_actors_need_no_thread_of_their_own() -> None:
    before = threading.active_count()
    refs = [Counter.start() for _ in range(5000)]
    for ref in refs:
        ref.send(Counter.add)
    assert all(ref.call(lambda counter: counter.value) == 1 for ref in refs)
    assert threading.active_count() <= before + MAX_THREADS
    assert POOL.threads <= MAX_THREADS
    for ref in refs:
        ref.stop()


def test_a_forked_child_has_a_pool_of_its_own(ref) -> None:
    ref.send(Counter.add)
    assert ref.call(lambda counter: counter.value) == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            mine = Counter.start()
            if mine.ask(ProxyCall(("add",), (), {}), block=False).get(timeout=WAIT) == 1:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
