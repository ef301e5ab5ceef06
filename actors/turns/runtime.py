"""The actor runtime, built on pykka's hooks for new kinds of actor.

An actor handles one message at a time, in order, and shares no mutable state. It is not a thread:
it is a *turn* (a lock), an inbox, and state that only the thread in its turn changes.

    ask     takes the turn on the asking thread, serves what came before, runs the message there,
            and lets go of the turn. The asker would otherwise only have waited.
    tell    puts the message into the inbox; the shared pool serves it. The teller never waits.

Whoever lets go of a turn while the inbox is not empty has the pool serve it. Since an ask serves
the inbox first, messages of one sender are handled in the order in which they were sent.

A hot path may inline its actor's turn, exactly so:

    me = get_ident()
    for mine in self.turns:         # take the turn if it is free
        if not mine:
            self.enter()            # wait for it
        break
    try:
        self.holder = me
        if self.inbox:              # something came before, or the actor is stopped
            self.catch_up()
        ...
    finally:
        self.holder = 0
        self.turn_release()
        if self.inbox:
            self.schedule()

``turns`` is an endless iterator whose every step is ``lock.acquire(False)``. It replaces that call
because CPython looks for a Ctrl-C after each call of C, but not after a step of a ``for``: a Ctrl-C
between a call that took the turn and the ``try`` would leave the turn taken for ever. For the same
reason the turn ends with a direct call of ``turn_release``, which is C: before the first step of a
Python function, such as ``leave``, a Ctrl-C can come, too.

``inbox`` is only tested here; it is true for ever once the actor is stopped. ``holder`` is set as
soon as the turn is taken, with no call in between: otherwise a signal's handler that asks for a
turn that its own thread is in would wait, and everybody with it, instead of getting an AskCycle.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sized
from functools import wraps
from itertools import count, repeat
from time import monotonic
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

import pykka
from pykka import ActorDeadError, ActorRegistry
from pykka.messages import _ActorStop

from octavo.actors.turns import waits
from octavo.actors.turns.messages import Call, may_be_cut_short, name_of
from octavo.actors.turns.pool import POOL
from octavo.actors.turns.ref import Ref
from octavo.actors.turns.turn_future import TurnFuture
from octavo.files.errors import AskCycle, AskTimeout
from octavo.files.locks import new_lock, new_rlock
from octavo.files.messages import messages_of
from octavo.files.unbroken import need_room, unbroken

__all__ = ["Ref", "TurnActor", "in_turn"]

A = TypeVar("A", bound="TurnActor")
R = TypeVar("R")
P = ParamSpec("P")

log = messages_of("octavo.runtime")

_get_ident = threading.get_ident
_STOPPED = ("stopped",)
"""The inbox of a stopped actor, as turns see it: never empty, so that every turn looks closer."""

_ROOM = 100
"""More nested calls than any message needs."""

_numbers = count(1)
_actors: set[weakref.ref[TurnActor]] = set()
_gone = _actors.discard
"""Not a WeakSet: that runs Python when an actor is collected, in which a Ctrl-C would be lost."""

# Pykka's lock around the starts and stops of all actors: one that Ctrl-C leaves free, like ours.
ActorRegistry._actor_refs_lock = new_rlock()


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
        return self.owner is None or not self.owner.waiting_messages


class _Flag:
    """As much of an Event as an actor's end needs: nobody waits for it."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told = False

    def set(self) -> None:
        self._told = True

    def is_set(self) -> bool:
        return self._told


class TurnActor(pykka.Actor):
    """Base of every actor of Octavo. ``actor_ref`` (a Ref) is how others reach it.

    An exception that a tell raises is logged and given to ``on_failure``. The actor lives on; it
    decides itself whether to stop or to refuse work.
    """

    DEADLINE_SECONDS: ClassVar[float] = 60.0
    """How long an ask waits for its turn by default."""

    def __init__(self) -> None:
        # In place of pykka's own: a UUID, an Event with its locks and a ref that gets replaced are
        # half of what an actor costs, and a large store has thousands.
        self.actor_urn = f"urn:octavo:{next(_numbers)}"
        self.actor_inbox = self._create_actor_inbox()
        self.actor_stopped = cast(threading.Event, _Flag())
        self.waiting_messages: deque[tuple[Any, TurnFuture | None]] = deque()
        self.inbox: Sized = self.waiting_messages
        """True if a turn has more to do than its own work: messages, or the actor is stopped."""
        self._turn = new_lock()
        self.turns: Iterator[bool] = map(self._turn.acquire, repeat(False))
        """Each step takes the turn if it is free, and says whether it did."""
        self.turn_release = self._turn.release
        self.holder = 0
        """Ident of the thread that has the turn; 0: nobody has it, or it is unknown who."""
        self._inherited = False
        cast(_Inbox, self.actor_inbox).owner = self
        self._actor_ref = Ref(self)
        _actors.add(weakref.ref(self, _gone))

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Ref[Self]:
        """Make the actor and return its Ref. Takes no thread. Raises what ``on_start`` raises."""
        return cast("Ref[Self]", super().start(*args, **kwargs))

    @property
    def actor_ref(self) -> Ref[Self]:
        """How others reach this actor."""
        return self._actor_ref  # type: ignore[return-value]  # no cast, which is a call

    @property
    def is_stopped(self) -> bool:
        """Whether no turn does anything any more."""
        return self.inbox is _STOPPED

    def stopped_error(self) -> Exception:
        """The error that a stopped actor answers with; a subclass may have its own."""
        if self._inherited:
            return ActorDeadError(f"{self} belongs to the process that this one was forked from")
        return ActorDeadError(f"{self} is stopped")

    # ------------------------------------------------------------ pykka's hooks

    @staticmethod
    def _create_actor_inbox() -> Any:
        return _Inbox()

    @staticmethod
    def _create_future() -> Any:
        return TurnFuture()

    def _start_actor_loop(self) -> None:
        # In a turn: others may have the ref from pykka's registry already.
        try:
            self.actor_ref.call(TurnActor._start_up)
        except BaseException:  # before the turn began, too: pykka has registered it
            self._end()
            raise

    def _start_up(self) -> None:
        self.on_start()

    def _handle_receive(self, message: Any) -> Any:
        if type(message) is Call:
            return message.method(self, *message.args, **message.kwargs)
        return super()._handle_receive(message)

    def _stop(self) -> None:
        self._end()
        try:
            self.on_stop()
        except Exception:
            log.exception("%s: on_stop failed; it is stopped all the same", self)

    def _end(self) -> None:
        ActorRegistry.unregister(self.actor_ref)  # first: what finds no memory here is called again
        self.inbox = _STOPPED
        self.actor_stopped.set()

    # ------------------------------------------------------------ turns

    def enter(self, timeout: float | None = None) -> None:
        """Take the turn, in this thread, and serve the messages that came before. Pairs with
        leave().

        ``timeout`` (seconds, None for DEADLINE_SECONDS) bounds the wait for the turn; after it, no
        earlier message is begun. Raises stopped_error() (ActorDeadError), AskCycle, AskTimeout;
        then the turn is not taken.
        """
        deadline = None
        me = _get_ident()
        for mine in self.turns:
            if not mine:
                deadline = self.wait_for_turn(timeout)
            break
        try:
            self.holder = me
            if self.inbox:
                if deadline is None and timeout is not None:
                    deadline = monotonic() + timeout
                self.catch_up(deadline)
        except BaseException:
            self.holder = 0
            self.turn_release()
            if self.inbox:
                self.schedule()
            raise

    def leave(self) -> None:
        """Let go of the turn; the pool serves what came meanwhile.

        A Ctrl-C before the release would leave the turn taken for ever: the main thread calls
        this in an unbroken step, or uses in_turn() or Ref.call instead.
        """
        self.holder = 0
        self.turn_release()
        if self.inbox:
            self.schedule()

    def catch_up(self, deadline: float | None = None) -> None:
        """Serve the messages that are in the inbox now; later ones have to wait. In the turn.

        ``deadline`` is of time.monotonic(); None: DEADLINE_SECONDS from now. Raises
        stopped_error(), AskTimeout; the turn stays taken.
        """
        if deadline is None:
            deadline = monotonic() + self.DEADLINE_SECONDS
        self._serve(len(self.waiting_messages), deadline)
        if self.inbox is _STOPPED:
            raise self.stopped_error()

    def wait_for_turn(self, timeout: float | None, asked: object = "this call") -> float:
        """Take a turn that was not free; return the deadline that ``timeout`` means, of
        time.monotonic(). Raises AskTimeout and AskCycle, which name ``asked``; stopped_error().
        """
        if self._inherited:
            raise self.stopped_error()
        seconds = self.DEADLINE_SECONDS if timeout is None else max(timeout, 0.0)
        deadline = monotonic() + seconds
        me = _get_ident()
        earlier = waits.waiting.get(me)  # of a turn that a signal interrupted in this very thread
        mine = False
        try:
            waits.waiting[me] = waits.Wait(self)
            self._refuse_cycle(me, asked)
            # A for, not a call: see the module. From here to the end nothing may be called.
            for mine in map(self._turn.acquire, (True,), (min(seconds, threading.TIMEOUT_MAX),)):
                if not mine:
                    raise AskTimeout(
                        f"{self} did not get round to {name_of(asked)} within {seconds:g} s"
                    )
                self.holder = me
                break  # a second round would begin with a look for Ctrl-C
        finally:
            if earlier is not None:
                waits.waiting[me] = earlier
            elif me in waits.waiting:
                del waits.waiting[me]
            if not mine and self.inbox:
                self.schedule()  # the pool may have left the inbox to this thread
        return deadline

    def _refuse_cycle(self, me: int, asked: object) -> None:
        actors = waits.cycle(self, me)
        if actors is not None:
            way = " -> ".join(type(actor).__name__ for actor in (actors[-1], *actors))
            raise AskCycle(
                f"{self} was asked for {name_of(asked)} in its own turn: {way}; a signal handler"
                " must leave such calls to the program that it interrupted"
            )

    # ------------------------------------------------------------ messages

    def deliver(self, message: Any, future: TurnFuture | None) -> None:
        """Put a message into the inbox and have the pool serve it; ``future`` gets the answer."""
        self.waiting_messages.append((message, future))
        POOL.submit(self._serve_on_pool)

    def schedule(self) -> None:
        """Have the pool serve the inbox, if it is not empty."""
        if self.waiting_messages:
            POOL.submit(self._serve_on_pool)

    def answer(self, timeout: float | None) -> None:
        """Serve everything that was sent before this, on this thread. Raises AskCycle,
        AskTimeout."""
        deadline = monotonic() + (self.DEADLINE_SECONDS if timeout is None else timeout)
        me = _get_ident()
        for mine in self.turns:
            if not mine:
                deadline = self.wait_for_turn(timeout, "an answer")
            break
        try:
            self.holder = me
            self._serve(len(self.waiting_messages), deadline)
        finally:
            self.holder = 0
            self.turn_release()
            if self.inbox:
                self.schedule()

    def _serve_on_pool(self) -> None:
        messages = self.waiting_messages
        me = _get_ident()
        while messages:
            for mine in self.turns:
                if not mine:
                    return  # the turn's holder serves them, or has this run again at its end
                break
            try:
                self.holder = me
                self._serve(len(messages), None)
            finally:
                self.holder = 0
                self.turn_release()
            if waits.is_awaited(self):
                return  # let the waiting thread have the turn: it serves the rest, or reschedules

    def _serve(self, count: int, deadline: float | None) -> None:
        """Answer the next ``count`` messages. In a turn. Raises AskTimeout; and RecursionError if
        the asking thread's stack has no room for them, as a pool thread's has."""
        messages = self.waiting_messages
        if count and deadline is not None:
            need_room(_ROOM)
        for _ in range(count):
            if not messages:
                return
            if deadline is not None and monotonic() > deadline:
                raise AskTimeout(f"{self} has {len(messages)} earlier messages to serve")
            message, future = messages[0]
            if type(message) is Call and may_be_cut_short(message.method):
                self._answer(message, future)
                messages.popleft()
            else:
                with unbroken:
                    messages.popleft()
                    self._answer(message, future)

    def _answer(self, message: Any, future: TurnFuture | None) -> None:
        if self.inbox is _STOPPED:
            self._answer_dead(message, future)
            return
        try:
            answer = self._handle_receive(message)
            if future is not None:
                future.set(answer)
        except BaseException as error:
            if future is not None:
                future.settle(sys.exc_info())
            elif isinstance(error, Exception):
                self._tell_failed(message)
            if not isinstance(error, Exception):
                raise

    def _answer_dead(self, message: Any, future: TurnFuture | None) -> None:
        if future is None:
            log.debug("%s is stopped and dropped %s", self, name_of(message))
        elif isinstance(message, _ActorStop):
            future.set(None)
        else:
            error = self.stopped_error()
            future.settle((type(error), error, None))

    def _tell_failed(self, message: Any) -> None:
        # By name: the arguments may be a user's values, and large.
        log.exception("%s failed to handle %s", self, name_of(message))
        try:
            self.on_failure(*sys.exc_info())
        except Exception:
            log.exception("%s: on_failure failed", self)

    def _forked(self) -> None:
        """In a forked child: answer from now on as a copy of another process's actor.

        Takes no lock: a thread that is gone may hold it.
        """
        self._inherited = True
        self.inbox = _STOPPED
        self.holder = 0
        self.actor_stopped.set()


def in_turn(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[A, P], R]:
    """Make a method take its actor's turn itself, as Ref.call does for any method."""

    @wraps(method)
    def run(self: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.actor_ref.call(method, *args, **kwargs)

    return run


def _in_child() -> None:
    ActorRegistry._actor_refs_lock = new_rlock()  # a thread that is gone may hold the old one
    waits.waiting.clear()
    for reference in list(_actors):
        if (actor := reference()) is not None:
            actor._forked()


os.register_at_fork(after_in_child=_in_child)
