"""Asks that race a stop, 100,000 of them: each is answered, and no turn comes after the end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from counting_actor import WAIT, Counter, run_threads
from pykka import ActorDeadError
from pykka.messages import ProxyCall

from octavo.actors.turns.runtime import Ref

ASKS = 100_000
THREADS = 4
ADD = ProxyCall(("add",), (), {})

WAYS: list[Callable[[Ref[Counter]], int]] = [
    lambda ref: ref.call(Counter.add),
    lambda ref: ref.actor.add_inlined(),
    lambda ref: ref.ask(ADD, block=False).get(timeout=WAIT),  # type: ignore[no-any-return]
    lambda ref: ref.ask(ADD, timeout=WAIT),  # type: ignore[no-any-return]
]


def test_asks_that_race_a_stop_are_all_answered() -> None:
    answered, dead = [0] * THREADS, [0] * THREADS
    current = [Counter.start()]
    held = [current[0]] * THREADS
    stopped: list[Counter] = []

    def replace_current() -> None:
        old = current[0]
        current[0] = Counter.start()
        if old.stop(timeout=WAIT):
            stopped.append(old.actor)

    def asker(number: int) -> None:
        for i in range(ASKS // THREADS):
            if i % 25 == number:
                replace_current()
            # Often the ref of a moment ago, so that asks meet the stop or come after it.
            ref = current[0] if i % 3 else held[number]
            held[number] = current[0]
            try:
                if WAYS[(i + number) % len(WAYS)](ref) < 1:
                    raise AssertionError("a wrong answer")
                answered[number] += 1
            except ActorDeadError:
                dead[number] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # more places to race at
    try:
        failures = run_threads(THREADS, asker)
    finally:
        sys.setswitchinterval(interval)
    current[0].stop()
    assert failures == []
    assert sum(answered) + sum(dead) == ASKS
    assert min(sum(answered), sum(dead), len(stopped)) > 1000
    assert [actor.wrong for actor in stopped if actor.wrong] == []
    assert all(not actor.waiting_messages for actor in stopped)
