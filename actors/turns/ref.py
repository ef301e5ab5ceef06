"""The reference through which an actor is reached: pykka's, with turns on the asking thread."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident as _get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from pykka import ActorRef
from pykka.messages import _ActorStop

from octavo.actors.turns.messages import Call
from octavo.actors.turns.turn_future import TurnFuture

if TYPE_CHECKING:
    from octavo.actors.turns.runtime import TurnActor

A = TypeVar("A", bound="TurnActor")
R = TypeVar("R")
P = ParamSpec("P")


class Ref(ActorRef[A], Generic[A]):
    """How an actor is reached. Keeps the actor alive, which no thread does; thread-safe."""

    def __init__(self, actor: A) -> None:
        super().__init__(actor)
        self.actor: A = actor
        """The actor itself: only for its immutable parts, and for inlined turns."""

    def call(self, method: Callable[Concatenate[A, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method of the actor in its turn, on this thread; return or raise what it does.

        ``method`` is run as it is: a subclass's method of the same name is not looked for.
        Also raises stopped_error() (ActorDeadError), AskCycle, AskTimeout.
        """
        actor = self.actor
        deadline = None
        me = _get_ident()
        for mine in actor.turns:
            if not mine:
                deadline = actor.wait_for_turn(None, method)
            break
        try:
            actor.holder = me
            if actor.inbox:
                actor.catch_up(deadline)
            return method(actor, *args, **kwargs)
        finally:
            actor.holder = 0
            actor.turn_release()
            if actor.inbox:
                actor.schedule()

    def send(
        self, method: Callable[Concatenate[A, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Have a method run soon in the actor's turn, on the pool. A stopped actor drops it."""
        self.actor.deliver(Call(method, args, kwargs), None)

    def tell(self, message: Any) -> None:
        """pykka's tell. Raises stopped_error() (ActorDeadError)."""
        actor = self.actor
        if actor.is_stopped:
            raise actor.stopped_error()
        actor.deliver(message, None)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """pykka's ask: returns the answer, or with ``block=False`` a future of it.

        ``timeout`` (seconds, None for DEADLINE_SECONDS) bounds the wait for the turn only: a
        message that has begun runs to its end, on this thread. The same holds for a future's
        ``get``. Raises stopped_error() (ActorDeadError), AskCycle, AskTimeout, and what the actor
        raised.
        """
        actor = self.actor
        if not block:
            future = TurnFuture(actor)
            actor.deliver(message, future)
            return future
        deadline = None if timeout is None else monotonic() + timeout
        me = _get_ident()
        for mine in actor.turns:
            if not mine:
                deadline = actor.wait_for_turn(timeout, message)
            break
        try:
            actor.holder = me
            if actor.inbox:
                actor.catch_up(deadline)
            return actor._handle_receive(message)
        finally:
            actor.holder = 0
            actor.turn_release()
            if actor.inbox:
                actor.schedule()

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop the actor after the messages it already has; return whether it was running.

        Later asks, and those that race this one, raise stopped_error(). Not for use within the
        actor's own turn, where ``self.stop()`` stops it after the turn. Raises AskCycle,
        AskTimeout.
        """
        if not block:
            return super().stop(block=False)
        try:
            self.ask(_ActorStop(), timeout=timeout)
        except Exception:
            if self.actor.is_stopped:
                return False
            raise
        return True
