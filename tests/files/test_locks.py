"""Locks of a ``with`` that Ctrl-C comes into: they are let go, on every CPython."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from counting_actor import WAIT
from ctrl_c import CtrlC

from octavo.actors.turns.runtime import ActorRegistry
from octavo.files.locks import Taken, new_lock, new_rlock

ROUNDS = 400
SEED = 7
MAKERS: dict[str, Callable[[], Any]] = {
    "a lock": new_lock,
    "one that is taken again": new_rlock,
    "a lock, as of 3.14": lambda: Taken(threading.Lock()),
    "one that is taken again, as of 3.14": lambda: Taken(threading.RLock()),
}


@pytest.fixture(params=list(MAKERS))
def lock(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


def is_free(lock: Any) -> bool:
    """Whether another thread can take it."""
    found: list[bool] = []

    def look() -> None:
        if lock.acquire(blocking=False):
            lock.release()
            found.append(True)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(WAIT)
    return bool(found)


def test_an_interrupt_leaves_no_lock_taken(lock: Any) -> None:
    def often() -> None:
        with lock:
            pass
        with lock:
            pass

    with CtrlC(SEED) as ctrl_c:
        for _ in range(ROUNDS):
            ctrl_c.during(often, 0.0001, 0.0006, 4000)
            assert is_free(lock)


def test_an_interrupt_leaves_pykkas_registry_free() -> None:
    lock = ActorRegistry._actor_refs_lock
    with CtrlC(SEED) as ctrl_c:
        for _ in range(ROUNDS):
            ctrl_c.during(ActorRegistry.get_all, 0.0001, 0.0006, 4000)
            assert is_free(lock)


def test_the_block_has_it_to_its_end(lock: Any) -> None:
    with lock:
        assert not is_free(lock)
    assert is_free(lock)
    with pytest.raises(ValueError, match="boom"), lock:
        raise ValueError("boom")
    assert is_free(lock)


def test_who_waits_in_a_condition_of_it_is_woken(lock: Any) -> None:
    changed, waiting, woken = threading.Condition(lock), threading.Event(), threading.Event()

    def wait() -> None:
        with lock:
            waiting.set()
            if changed.wait(WAIT):
                woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(WAIT)
    with lock:  # so the other one waits by now
        changed.notify()
    assert woken.wait(WAIT)
    thread.join(WAIT)
    assert is_free(lock)
