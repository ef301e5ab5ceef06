"""The actor runtime, built on pykka's hooks for new kinds of actor.

An actor handles one message at a time, in order, and shares no mutable state. It is not a thread:
it is a *turn* (a lock), an inbox, and state that only the holder of the turn changes.

    ask     takes the turn on the asking thread, serves what is already in the inbox, runs the
            message there, and lets go. The asker would only have waited otherwise.
    tell    puts the message into the inbox; the shared pool serves it. The teller never waits.

Whoever lets go of a turn while the inbox is not empty has the pool serve it. Since an ask serves
the inbox first, messages of one sender are handled in the order they were sent.

A hot path may inline a turn. It leaves the holder unknown, which costs the detection of a cycle
through it (the deadline still holds), and saves two calls:

    if self.inbox or not self.turn_acquire(False):
        self.enter()
    try:
        ...
    finally:
        self.holder = 0
        self.turn_release()
        if self.inbox:
            self.schedule()
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import pykka
from pykka import ActorDeadError, ActorRef, ActorRegistry, ThreadingFuture
from pykka.messages import ProxyCall, _ActorStop

from octavo.actors.pool import POOL
from octavo.files.errors import AskCycle, AskTimeout

log = logging.getLogger("octavo.runtime")

A = TypeVar("A", bound="TurnActor")
R = TypeVar("R")
P = ParamSpec("P")

_waiting: dict[int, TurnActor] = {}
"""Which actor's turn each blocked thread waits for. Only touched on the slow path."""


class _Inbox:
    """What pykka's own code puts envelopes into."""

    def __init__(self) -> None:
        self.owner: TurnActor | None = None

    def put(self, envelope: Any, /) -> None:
        if self.owner is not None:
            self.owner.deliver(envelope.message, envelope.reply_to)

    def get(self) -> Any:
        raise NotImplementedError("a turn actor's inbox is served by turns")

    def empty(self) -> bool:
        return self.owner is None or not self.owner.inbox


class TurnActor(pykka.Actor):
    """Base of every actor of Octavo. ``actor_ref`` (a Ref) is how others reach it."""

    DEADLINE_SECONDS: ClassVar[float] = 60.0
    """How long an ask waits for the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: deque[tuple[Any, Any]] = deque()  # (message, future or None)
        self._turn = threading.Lock()
        self.turn_acquire = self._turn.acquire
        self.turn_release = self._turn.release
        self.holder = 0  # ident of the thread in whose turn this is; 0: none, or not known
        cast(_Inbox, self.actor_inbox).owner = self
        self._actor_ref = Ref(self)

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Ref[Self]:
        """Make the actor; how to reach it. Costs no thread."""
        return cast("Ref[Self]", super().start(*args, **kwargs))

    @property
    def actor_ref(self) -> Ref[Self]:
        """How others reach this actor."""
        return cast("Ref[Self]", self._actor_ref)

    # ------------------------------------------------------------ pykka's hooks

    @staticmethod
    def _create_actor_inbox() -> Any:
        return _Inbox()

    @staticmethod
    def _create_future() -> Any:
        return ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.on_start()

    # ------------------------------------------------------------ turns

    def enter(self, timeout: float | None = None) -> None:
        """Take the turn, in this thread, and serve what came before. See leave().

        Raises ActorDeadError, AskCycle, AskTimeout.
        """
        me = threading.get_ident()
        if not self.turn_acquire(False):
            self._wait_for_turn(me, self.DEADLINE_SECONDS if timeout is None else timeout)
        self.holder = me
        try:
            if self.actor_stopped.is_set():
                raise ActorDeadError(f"{self} is stopped")
            if self.inbox:
                self._serve()
        except BaseException:
            self.leave()
            raise

    def _wait_for_turn(self, me: int, timeout: float) -> None:
        _waiting[me] = self
        try:
            self._refuse_cycle(me)
            if not self._turn.acquire(timeout=timeout):
                raise AskTimeout(f"{self} did not get round to this call within {timeout:g} s")
        finally:
            del _waiting[me]

    def _refuse_cycle(self, me: int) -> None:
        """Follow who waits for whom from here; back at this thread is a cycle."""
        actor: TurnActor | None = self
        for _ in range(1000):
            if actor is None:
                return
            holder = actor.holder
            if holder == me:
                raise AskCycle(f"{self} was asked, through others or directly, in its own turn")
            actor = _waiting.get(holder)

    def leave(self) -> None:
        """Let go of the turn; the pool serves what came meanwhile."""
        self.holder = 0
        self.turn_release()
        if self.inbox:
            self.schedule()

    def schedule(self) -> None:
        """Have the pool serve the inbox."""
        POOL.submit(self._serve_on_pool)

    def deliver(self, message: Any, future: Any) -> None:
        """Put a message into the inbox and have it served; ``future`` takes the answer."""
        self.inbox.append((message, future))
        self.schedule()

    def _serve_on_pool(self) -> None:
        # Someone else's turn: it serves the inbox, or schedules this again, when it ends.
        while self.inbox and self.turn_acquire(False):
            self.holder = threading.get_ident()
            try:
                self._serve()
            finally:
                self.holder = 0
                self.turn_release()

    def _serve(self) -> None:
        """Handle every message in the inbox. In a turn."""
        inbox = self.inbox
        while True:
            try:
                message, future = inbox.popleft()
            except IndexError:
                return
            if self.actor_stopped.is_set():
                self._answer_dead(message, future)
                continue
            try:
                answer = self._handle_receive(message)
            except Exception:
                if future is not None:
                    future.set_exception(sys.exc_info())
                else:
                    log.exception("%s failed to handle %s", self, message)
                    self.on_failure(*sys.exc_info())
                continue
            if future is not None:
                future.set(answer)

    def _answer_dead(self, message: Any, future: Any) -> None:
        if future is None:
            return
        if isinstance(message, _ActorStop):
            future.set(None)
            return
        dead = ActorDeadError(f"{self} stopped before it handled the message")
        future.set_exception((ActorDeadError, dead, None))

    def _stop(self) -> None:
        ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()
        self.on_stop()


class Ref(ActorRef[A], Generic[A]):
    """How an actor is reached. Holds it, as no thread does; thread-safe."""

    def __init__(self, actor: A) -> None:
        super().__init__(actor)
        self.actor: A = actor
        """The actor itself: for its immutable parts, and for inlined turns."""

    def call(self, method: Callable[Concatenate[A, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method of the actor in its turn, on this thread; its result, or what it raised.

        Raises ActorDeadError, AskCycle, AskTimeout.
        """
        actor = self.actor
        actor.enter()
        try:
            return method(actor, *args, **kwargs)
        finally:
            actor.leave()

    def send(
        self, method: Callable[Concatenate[A, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Have a method run in the actor's turn, soon, on the pool. A stopped actor drops it."""
        call = ProxyCall(attr_path=(method.__name__,), args=args, kwargs=kwargs)
        self.actor.deliver(call, None)

    def tell(self, message: Any) -> None:
        """pykka's tell. Raises ActorDeadError."""
        if self.actor_stopped.is_set():
            raise ActorDeadError(f"{self} is stopped")
        self.actor.deliver(message, None)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """pykka's ask: the answer, or with ``block=False`` a future of it.

        Raises ActorDeadError, AskCycle, AskTimeout, and what the actor raised.
        """
        actor = self.actor
        if not block:
            future = actor._create_future()
            actor.deliver(message, future)
            return future
        actor.enter(timeout)
        try:
            return actor._handle_receive(message)
        finally:
            actor.leave()

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop the actor after the messages it already has; whether it was running.

        Asks that come later, or race this, raise ActorDeadError.
        """
        if not block:
            return super().stop(block=False)
        try:
            self.ask(_ActorStop(), timeout=timeout)
        except ActorDeadError:
            return False
        return True
