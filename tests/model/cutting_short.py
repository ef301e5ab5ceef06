"""Ctrl-C at a chosen step of a call."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType


def cut_short(call: Callable[[], object], at: int) -> tuple[bool, int]:
    """Have a Ctrl-C come at the so many-th of those steps at which CPython looks for signals: the
    beginnings of functions, and what follows calls of C. Whether the call was cut short by it, and
    how many steps it took. Those of logging do not count: it would be left with its lock taken."""
    steps = 0

    def look(frame: FrameType, event: str, _told: object) -> None:
        nonlocal steps
        if event in ("call", "c_return") and frame.f_globals.get("__name__") != "logging":
            steps += 1
            if steps == at:
                signal.raise_signal(signal.SIGINT)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        return True, steps
    finally:
        sys.setprofile(before)
    return False, steps
