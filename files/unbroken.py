"""Steps that no Ctrl-C may cut in two.

CPython runs a signal's handler in the main thread, between any two steps of it, and most handlers
raise. Where one step makes a change durable and the next makes it known, that would leave a store
in memory that is not the one on disk. Such steps stand in ``with unbroken:``; meanwhile handlers
are put off, and run at its end. Other threads are never interrupted, and pay nothing.

What can take long (a merge, the copying of a value) must not stand in one. A message in an inbox
is such a step, too, or the thread that serves it could lose it; but a method that is marked as
``interruptible`` (actors/turns/messages.py) is not: it is served again, from its beginning.
"""

from __future__ import annotations

import signal
import threading
from contextlib import ContextDecorator
from threading import get_ident as _get_ident
from types import FrameType
from typing import Any

_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGVTALRM,
    signal.SIGPROF,
)
"""The signals that programs have handlers for."""


class Unbroken(ContextDecorator):
    """A context, or a decorator of a function that is one step. May be nested. Some 30 us in the
    main thread, nothing to speak of in others."""

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Any] = {}
        """The handlers that were put off last: they are set again, unless that was broken off."""
        self._came: dict[int, FrameType | None] = {}
        self._deaf = 0
        """Ident of a thread that only ``threading`` takes for the main one: it runs no handlers."""

    def __enter__(self) -> None:
        if not self._hears():
            return
        self._depth += 1
        if self._depth == 1:
            try:
                self._put_off()
            except BaseException as error:
                self._depth = 0
                if isinstance(error, ValueError) and self._none_may_be_set():
                    self._deaf = _get_ident()
                    return
                self._restore()
                raise

    def __exit__(self, *raised: object) -> None:
        if not self._hears():
            return
        self._depth -= 1
        if self._depth == 0:
            handlers, came = self._handlers, self._came
            try:
                self._restore()
            finally:
                _run(handlers, came)

    def _hears(self) -> bool:
        me = _get_ident()
        return me == threading.main_thread().ident and me != self._deaf

    def _none_may_be_set(self) -> bool:
        """Whether this thread may not set a handler at all: in an interpreter beside the first one,
        or where a program that embeds Python had another thread import ``threading`` first."""
        for number, handler in self._handlers.items():
            try:
                signal.signal(number, handler)
            except ValueError:
                continue
            return False
        self._handlers.clear()
        return True

    def _put_off(self) -> None:
        self._came = {}
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler == self._later:
                continue  # its handler was not set again the last time, and is still known
            if callable(handler):  # not the system's own: those run no Python
                self._handlers[number] = handler
                signal.signal(number, self._later)
            else:
                self._handlers.pop(number, None)

    def _later(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._came[number] = frame
        else:  # this is still set though no step is under way: see _restore
            handler = self._handlers[number]
            signal.signal(number, handler)
            handler(number, frame)

    def _restore(self) -> None:
        """Set every handler again. One that is set already may run and raise in the midst of this:
        the others are set nevertheless; and if that is broken off as well, a signal still finds its
        handler by ``_later``."""
        left = list(self._handlers.items())
        try:
            for number, handler in reversed(left.copy()):
                signal.signal(number, handler)  # which first runs the handlers of what has come
                left.pop()
        except BaseException:
            while left:
                signal.signal(*left.pop())
            raise


def _run(handlers: dict[int, Any], came: dict[int, FrameType | None]) -> None:
    """Run the handlers of all signals that came, first come first; even if one raises, the rest."""
    for number in list(came):
        frame = came.pop(number)
        try:
            handlers[number](number, frame)
        except BaseException:
            _run(handlers, came)
            raise


unbroken = Unbroken()


def need_room(calls: int) -> None:
    """Raise RecursionError where the stack has no room for so many more calls within each other. It
    is called before a step that this error must not cut in two either."""
    if calls:
        need_room(calls - 1)
