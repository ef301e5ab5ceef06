"""Steps that no Ctrl-C may cut in two.

CPython runs a signal's handler in the main thread, between any two steps of it, and most handlers
raise. Where one step makes a change durable and the next makes it known, that would leave a store
in memory that is not the one on disk. Such steps stand in ``with unbroken:``; meanwhile handlers
are put off, and run at its end. Other threads are never interrupted, and pay nothing.

What can take long (a merge, the copying of a value) must not stand in one. A message in an inbox
is such a step, too, or the thread that serves it could lose it; but a method that is marked as
``interruptible`` is not: it is served again, from its beginning.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from threading import get_ident as _get_ident
from types import FrameType
from typing import Any, TypeVar

from octavo.files.disk import Disk, FileLock

Method = TypeVar("Method", bound=Callable[..., object])

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
"""Those that programs have handlers for."""


class Unbroken(ContextDecorator):
    """A context, or a decorator of a function that is one step. May be nested. Some 30 us in the
    main thread, nothing to speak of in others."""

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[signal.Signals, Any] = {}
        self._came: dict[int, FrameType | None] = {}

    def __enter__(self) -> None:
        if _get_ident() != threading.main_thread().ident:
            return
        if self._depth == 0:
            self._put_off()
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        if _get_ident() != threading.main_thread().ident:
            return
        self._depth -= 1
        if self._depth == 0:
            handlers, came = self._handlers, self._came
            self._restore()
            for number, frame in came.items():
                handlers[signal.Signals(number)](number, frame)

    def _put_off(self) -> None:
        self._handlers, self._came = {}, {}
        try:
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):  # not the system's own: those run no Python
                    self._handlers[number] = handler
                    signal.signal(number, self._later)
        except BaseException:
            self._restore()
            raise

    def _later(self, number: int, frame: FrameType | None) -> None:
        self._came[number] = frame

    def _restore(self) -> None:
        left = list(self._handlers.items())
        try:
            while left:
                signal.signal(*left.pop())
        except BaseException:  # of a handler that stands again already
            while left:
                signal.signal(*left.pop())
            raise


unbroken = Unbroken()

_interruptible: set[Callable[..., object]] = set()


def interruptible(method: Method) -> Method:
    """Mark a method that may take long, and may be begun again after it was cut short anywhere."""
    _interruptible.add(method)
    return method


def may_be_cut_short(method: Callable[..., object]) -> bool:
    """Whether the method was marked as interruptible."""
    return method in _interruptible


def locked(disk: Disk, path: str) -> FileLock:
    """``disk.lock(path)``; an interrupt leaves no descriptor behind that has the lock, and no
    owner. Put off meanwhile, which is moments, or seconds where a killed owner's worker is left."""
    with unbroken:
        return disk.lock(path)
