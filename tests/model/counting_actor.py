"""An actor to try the runtime with: it notices when turns overlap, or come after its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from octavo.actors.turns.runtime import Ref, TurnActor

WAIT = 300.0
"""Seconds after which a test gives up on something that should happen at once: a thread may not get
the processor for long."""


class Counter(TurnActor):
    def __init__(self) -> None:
        super().__init__()
        self.value = 0
        self.seen: list[object] = []
        self.failures: list[object] = []
        self.inside = False
        self.ended = False
        self.wrong: list[str] = []

    def on_stop(self) -> None:
        self.ended = True

    def on_failure(self, kind: object, error: object, traceback: object) -> None:
        self.failures.append(kind)

    def add(self, by: int = 1) -> int:
        if self.inside:
            self.wrong.append("turns overlapped")
        if self.ended:
            self.wrong.append("a turn came after the end")
        self.inside = True
        before = self.value
        for _ in range(20):
            pass
        self.value = before + by
        self.inside = False
        return self.value

    def add_inlined(self, by: int = 1) -> int:
        """As a hot path does it, see octavo.actors.turns.runtime."""
        me = threading.get_ident()
        for mine in self.turns:
            if not mine:
                self.enter()
            break
        try:
            self.holder = me
            if self.inbox:
                self.catch_up()
            return self.add(by)
        finally:
            self.holder = 0
            self.turn_release()
            if self.inbox:
                self.schedule()

    def note(self, what: object) -> None:
        self.seen.append(what)

    def total(self) -> int:
        return self.value

    def thread(self) -> int:
        return threading.get_ident()

    def hold(self, entered: threading.Event, go: threading.Event) -> None:
        entered.set()
        go.wait(WAIT)

    def boom(self, *_: object) -> None:
        self.value += 1
        raise ValueError("boom")

    def exit(self) -> None:
        raise SystemExit

    def tell_itself_for_ever(self) -> None:
        self.actor_ref.send(Counter.tell_itself_for_ever)

    def ask_itself(self) -> int:
        return self.actor_ref.call(Counter.add)

    def ask(self, other: Ref[Counter], method: Callable[[Counter], int]) -> int:
        return other.call(method)

    def ask_through(self, other: Ref[Counter]) -> int:
        return other.call(Counter.ask, self.actor_ref, Counter.add)

    def meet_then_ask(self, barrier: threading.Barrier, other: Ref[Counter]) -> int:
        barrier.wait(WAIT)
        return other.call(Counter.add)


def run_threads(count: int, body: Callable[[int], object]) -> list[BaseException]:
    """Run ``body(number)`` in threads; what they raised. Fails if one does not come back."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            body(number)
        except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT)
        if thread.is_alive():
            raise AssertionError("a call never came back")
    return failures
