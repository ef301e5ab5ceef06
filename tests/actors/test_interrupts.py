"""Ctrl-C at any moment: it is raised, and no turn stays taken, no thread of the pool is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest
from counting_actor import WAIT, Counter
from ctrl_c import CtrlC
from pykka import ActorDeadError, ActorRegistry
from pykka.messages import ProxyCall

from octavo.actors.turns.runtime import Ref
from octavo.actors.writing.group_commit import GroupCommit

ROUNDS = 400
SEED = 20
ADD = ProxyCall(("add",), (), {})


@pytest.fixture
def ref() -> Iterator[Ref[Counter]]:
    started = Counter.start()
    yield started
    started.stop()


@pytest.fixture
def interrupted() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Calls something over and over until Ctrl-C comes, at a random moment."""
    with CtrlC(SEED) as ctrl_c:
        yield lambda action: ctrl_c.during(action, 0.0001, 0.0006, 4000)


@pytest.mark.parametrize(
    "ask",
    [
        lambda ref: ref.actor.add_inlined(),
        lambda ref: ref.call(Counter.add),
        lambda ref: ref.ask(ADD),
    ],
    ids=["inlined", "call", "ask"],
)
def test_a_turn_that_is_interrupted_is_let_go(
    ref: Ref[Counter],
    interrupted: Callable[[Callable[[], object]], None],
    ask: Callable[[Ref[Counter]], object],
) -> None:
    for _ in range(ROUNDS):
        interrupted(lambda: ask(ref))
        assert not ref.actor._turn.locked()
        assert ref.actor.holder == 0
        ref.actor.inside = False


def test_a_wait_for_a_turn_that_is_interrupted_takes_no_turn(
    ref: Ref[Counter], interrupted: Callable[[Callable[[], object]], None]
) -> None:
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            ref.call(Counter.add)

    thread = threading.Thread(target=others, daemon=True)
    thread.start()
    for _ in range(ROUNDS // 4):
        interrupted(lambda: ref.call(Counter.total))
    stop.set()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert not ref.actor._turn.locked()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_pool_goes_on_after_interrupts_of_tellers(
    ref: Ref[Counter], interrupted: Callable[[Callable[[], object]], None]
) -> None:
    for _ in range(ROUNDS // 4):
        interrupted(lambda: ref.send(Counter.total))
    served = threading.Event()
    ref.send(lambda _: served.set())
    assert served.wait(WAIT)


def test_an_interrupt_stops_no_other_actor(ref: Ref[Counter]) -> None:
    def raising(counter: Counter) -> None:
        raise KeyboardInterrupt

    other = Counter.start()
    with pytest.raises(KeyboardInterrupt):
        ref.call(raising)
    assert ref.call(Counter.add) == 1
    assert other.call(Counter.add) == 1
    other.stop()


def test_a_leader_of_a_group_commit_that_is_interrupted_leads_no_more(
    interrupted: Callable[[Callable[[], object]], None],
) -> None:
    commit = GroupCommit(lambda: None)

    def append() -> None:
        commit.appended += 1
        commit.wait_durable(commit.appended, WAIT)

    for _ in range(ROUNDS):
        interrupted(append)
        assert commit._leader == 0
        assert commit.durable <= commit.appended + 1


def forked(body: Callable[[], bool]) -> int:
    """Exit code of a child that runs ``body``: 0 if that is true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if body() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_a_pool_of_its_own(ref: Ref[Counter]) -> None:
    ref.send(Counter.add)
    assert ref.call(Counter.total) == 1

    def body() -> bool:
        mine, served = Counter.start(), threading.Event()
        mine.send(lambda _: served.set())
        return served.wait(WAIT) and mine.call(Counter.add) == 1

    assert forked(body) == 0


def test_a_forked_child_waits_for_no_thread_that_began_an_actor() -> None:
    taken, go = threading.Event(), threading.Event()

    def begin() -> None:
        with ActorRegistry._actor_refs_lock:
            taken.set()
            go.wait(WAIT)

    thread = threading.Thread(target=begin)
    thread.start()
    assert taken.wait(WAIT)

    def body() -> bool:
        lock = ActorRegistry._actor_refs_lock
        if not lock.acquire(blocking=False):
            return False
        lock.release()
        return Counter.start().call(Counter.add) == 1

    try:
        assert forked(body) == 0
    finally:
        go.set()
        thread.join(WAIT)


def test_a_forked_childs_copies_of_actors_refuse_at_once(ref: Ref[Counter]) -> None:
    entered, go = threading.Event(), threading.Event()
    held = Counter.start()
    held.send(Counter.hold, entered, go)  # the child has no thread that would end this turn
    assert entered.wait(WAIT)

    def refused(ask: Callable[[], object]) -> bool:
        try:
            ask()
        except ActorDeadError as error:
            return "forked" in str(error)
        return False

    def body() -> bool:
        return (
            all(
                refused(ask)
                for one in (ref, held)
                for ask in (
                    lambda one=one: one.call(Counter.add),
                    lambda one=one: one.ask(ADD, block=False).get(timeout=WAIT),
                    one.actor.add_inlined,
                )
            )
            and held.stop() is False
        )

    assert forked(body) == 0
    go.set()
    assert ref.call(Counter.add) == 1
    assert held.call(Counter.add) == 1
    held.stop()
