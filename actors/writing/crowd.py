"""Has threads that write without a break take it by turns for milliseconds, not for one write each.

Two threads that meet at every few writes hand the turn and the interpreter lock to and fro, which
takes five times as long as the writes. So a thread that finds the turn taken again and again leaves
it to the others, for about as long as CPython lets one of several computing threads keep the
interpreter lock. A thread that writes now and then never does so, nor one that waits for an fsync
after each write; and a thread that stays away looks every few milliseconds whether others do write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_MEETINGS = 16
_APART = 16
"""A thread is in a crowd if, averaged over _MEETINGS waits, at most _APART writes of all threads,
and as many again for each waiting thread, lie between two of its waits. (Measured: 20 if two
threads write all the time, 40 if four do.)"""
_LASTS_SECONDS = 0.1
"""For so long after it stayed away, a single wait is enough to send a thread away again."""
_STEPS = 5
_STEP_SECONDS = 0.001
"""Multiplied by the number of threads away, or they would come back in ever shorter intervals."""
_MOST_AWAY = 4
_FEW = 16
"""Fewer writes than this in a step are not worth staying away for."""


class _Own(threading.local):
    """What one thread knows. No ``__init__``: each thread would run it at its first use, and a
    finalizer that puts meanwhile would find no attributes here."""

    first = 0
    """How many writes there had been ``meetings`` waits of this thread ago."""
    meetings = 0
    until = 0.0
    """Up to this moment of the clock, one wait is enough to stay away."""


class Crowd:
    """Decides when a thread that finds the turn taken stays away for some milliseconds."""

    def __init__(
        self,
        writes: Callable[[], int],
        away: set[int],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``writes``: tells how many writes there were so far. ``away``: a set for the idents of
        threads that stay away, empty at first and shared by all of them."""
        self._writes, self._away, self._sleep, self._clock = writes, away, sleep, clock
        self._own = _Own()

    def meet(self, waiting: int) -> None:
        """Stay away for some milliseconds in a crowd; else return at once. To be called when the
        turn was not free, before waiting for it as ``waiting`` other threads do."""
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
        """Forget this thread's waits: it waits for something else, so others can write."""
        self._own.meetings, self._own.until = 0, 0.0
