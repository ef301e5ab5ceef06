"""A signal's handler that puts or closes, wherever in a call of its own thread it runs: at once
told of a cycle where that call is in the turn, never left to wait for itself."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from behind_calls import behind_each_call, heard_by

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.opening import shutdown
from octavo.actors.turns.ref import Ref
from octavo.actors.turns.runtime import TurnActor
from octavo.files.errors import AskCycle


class Handler:
    """Puts, and swallows that it may not."""

    def __init__(self, store: octavo.Store) -> None:
        self._store = store
        self.met: list[str] = []

    def __call__(self, *_: object) -> None:
        try:
            self._store.put("from the handler", b"%d" % len(self.met))
        except AskCycle:
            self.met.append("cycle")
        else:
            self.met.append("put")


def of_put(store: octavo.Store) -> CodeType:
    store.put("a", "b")
    written: Any = store._plain_put
    code: CodeType = written.__code__
    return code


CALLS: dict[str, tuple[Callable[[octavo.Store], CodeType], Callable[[octavo.Store], object]]] = {
    "put": (of_put, lambda store: store.put("key", "value")),
    "call": (
        lambda _: Ref.call.__code__,
        lambda store: store._bookie.actor_ref.call(Bookie.push),
    ),
    "enter": (lambda _: TurnActor.enter.__code__, lambda store: in_its_turn(store._bookie)),
}


def in_its_turn(bookie: Bookie) -> None:
    bookie.enter()
    bookie.leave()


@pytest.mark.parametrize("name", CALLS)
def test_a_handler_that_puts_waits_for_no_turn_of_its_own_thread(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_of, action = CALLS[name]
    monkeypatch.setattr(TurnActor, "DEADLINE_SECONDS", 10.0)
    with octavo.open(tmp_path / "store", worker=False) as store:
        handler, code = Handler(store), code_of(store)
        with heard_by(handler):
            behind_each_call(lambda: action(store), lambda frame, _: frame.f_code is code)
        assert "put" in handler.met  # before it was in the turn, or after
        assert ("cycle" in handler.met) == (name == "put")  # the others call nothing of C in theirs
        assert store["from the handler"] == b"%d" % (
            len(handler.met) - 1 - handler.met[::-1].index("put")
        )
        assert store.verify().ok


class Closer(Handler):
    """Closes the store, and swallows that it may not."""

    def __call__(self, *_: object) -> None:
        with pytest.raises(AskCycle, match="nothing was closed"):
            self._store.close()
        self.met.append("cycle")


def test_a_close_within_a_put_of_its_own_thread_is_refused_and_the_put_goes_on(
    tmp_path: Path,
) -> None:
    with octavo.open(tmp_path / "store", worker=False) as store:
        closer, code = Closer(store), of_put(store)
        among = {"xxh3_64_intdigest", "append"}  # before its record is one, after
        with heard_by(closer):
            behind_each_call(
                lambda: store.put("key", "value"),
                lambda frame, called: frame.f_code is code and called in among,
            )
        assert closer.met.count("cycle") > 1
        assert not store.closed
        assert store["key"] == b"value"
        assert store.verify().ok
    with octavo.open(tmp_path / "store", worker=False) as store:
        assert store.last_sqn == len(closer.met) + 2  # an orderly end: no number was left out


def test_a_close_within_a_close_of_its_own_thread_leaves_it_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = octavo.open(tmp_path / "store", worker=False)
    store.put("key", "value")
    stop, closed = shutdown.stop, []

    def interrupted(running: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)
        stop(running)

    def close(*_: object) -> None:
        store.close()
        closed.append(True)

    with heard_by(close), monkeypatch.context() as patched:
        patched.setattr(shutdown, "stop", interrupted)
        store.close()
    assert closed == [True]
    with octavo.open(tmp_path / "store", worker=False) as store:
        assert (store["key"], store.last_sqn) == (b"value", 1)
