"""The future of an actor's answer; a thread that waits for it serves the actor's inbox itself."""

from __future__ import annotations

import queue
from types import TracebackType
from typing import Any, Protocol

from pykka import ThreadingFuture

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Answering(Protocol):
    """What a future needs of the actor that owes the answer."""

    def answer(self, timeout: float | None) -> None:
        """Serve, on this thread, every message that was sent before this call."""


class TurnFuture(ThreadingFuture[Any]):
    """A pykka future of a message in an actor's inbox.

    ``get`` does not wait for the pool: it takes the actor's turn and serves the inbox. So it has
    the deadline and the cycle detection of any ask, and waits cannot use up the pool.
    """

    def __init__(self, actor: Answering | None = None) -> None:
        super().__init__()
        self._owing = actor  # None: answered, or made by pykka from other futures

    def get(self, *, timeout: float | None = None) -> Any:
        """Return the answer, or raise what the actor raised. ``timeout``: seconds to wait for the
        actor's turn, None for its DEADLINE_SECONDS. Raises AskTimeout, AskCycle."""
        actor = self._owing
        if actor is not None:
            # The message may be in the inbox, or being served by another thread: not after this.
            actor.answer(timeout)
        return super().get(timeout=timeout)

    def set(self, value: Any | None = None) -> None:
        """Set the answer."""
        super().set(value)
        self._owing = None

    def set_exception(self, exc_info: Any | None = None) -> None:
        """Set what the actor raised."""
        super().set_exception(exc_info)
        self._owing = None

    def settle(self, exc_info: ExcInfo) -> None:
        """Set what was raised, unless the answer was set before."""
        try:
            self.set_exception(exc_info)
        except queue.Full:
            pass
