"""Ctrl-C at a random moment of something that is done over and over, as the system sends it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn


class CtrlC:
    """A context. ``during`` raises KeyboardInterrupt in what it calls, exactly once."""

    def __init__(self, seed: int) -> None:
        print("seed", seed)
        self._moments = random.Random(seed)
        self._armed = False

    def __enter__(self) -> CtrlC:
        self._earlier = signal.signal(signal.SIGALRM, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._earlier)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False  # a timer may have been set again just before this
            raise KeyboardInterrupt

    def during(
        self, action: Callable[[], object], shortest: float, longest: float, calls: int
    ) -> None:
        """Call ``action`` until it was interrupted, which is tried after ``shortest`` to
        ``longest`` seconds or at the latest after ``calls`` calls, and again at once where the
        interrupt met a callback of the interpreter, which swallows it."""
        try:
            self._call(action, shortest, longest, calls)
        except KeyboardInterrupt:
            return

    def _call(
        self, action: Callable[[], object], shortest: float, longest: float, calls: int
    ) -> NoReturn:
        """Apart, since from CPython 3.13 on a loop may leave the ``try`` around it unheard."""
        while True:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._moments.uniform(shortest, longest))
            for _ in range(calls):
                action()
                if not self._armed:
                    break
