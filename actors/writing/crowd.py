"""Threads that write without a break take longer turns: milliseconds, not one write each.

Where two meet in every few writes, they hand the turn and the interpreter lock to and fro, which
takes five times as long as the writes. So who finds the turn taken again and again leaves it to the
others for about as long as CPython leaves the interpreter lock to one of several threads that
compute. Who writes now and then never waits so, nor does who waits for an fsync after each write;
and who waits looks every few milliseconds whether others do write meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_MEETINGS = 16
_APART = 16
"""So many writes of all threads, and as many again for each that waits, lie at most between two
waits of one thread, on average of so many waits, where those are no accident. (Measured: 20 where
two threads write all the time, 40 where four do.)"""
_LASTS_SECONDS = 0.1
"""From then on one wait is enough, until there was none for so long."""
_STEPS = 5
_STEP_SECONDS = 0.001
"""Times the threads that are away, or those would be back in ever shorter intervals."""
_MOST_AWAY = 4
_FEW = 16
"""Writes in a step that are not worth waiting for."""


class _Own(threading.local):
    """What one thread knows. No ``__init__``, which each thread would run at its first use, and in
    the midst of which a finalizer that puts would find nothing here."""

    first = 0
    """Writes there were when this thread had to wait, ``meetings`` waits ago."""
    meetings = 0
    until = 0.0


class Crowd:
    """What each thread knows of those that it meets."""

    def __init__(
        self,
        writes: Callable[[], int],
        away: set[int],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``writes``: how many there were so far. ``away``: the threads that stay away; empty, and
        the same for all."""
        self._writes, self._away, self._sleep, self._clock = writes, away, sleep, clock
        self._own = _Own()

    def meet(self, waiting: int) -> None:
        """To be called where the turn was not free, before waiting for it, as ``waiting`` threads
        do. Returns at once, or some milliseconds later."""
        if self._is_crowded(self._writes(), waiting):
            me = threading.get_ident()
            try:
                self._away.add(me)
                self._stay_away()
            finally:
                self._away.discard(me)

    def _stay_away(self) -> None:
        for _ in range(_STEPS):
            before = self._writes()
            self._sleep(_STEP_SECONDS * min(len(self._away), _MOST_AWAY))
            if self._writes() - before < _FEW:
                self.rested()
                return
        self._own.until = self._clock() + _LASTS_SECONDS

    def _is_crowded(self, writes: int, waiting: int) -> bool:
        own = self._own
        if self._clock() < own.until:
            return True
        if not own.meetings:
            own.first = writes
        own.meetings += 1
        if own.meetings <= _MEETINGS:
            return False
        own.meetings = 0
        return writes - own.first <= _MEETINGS * _APART * (1 + waiting)

    def rested(self) -> None:
        """This thread waits for something else, so others can write meanwhile."""
        self._own.meetings, self._own.until = 0, 0.0
