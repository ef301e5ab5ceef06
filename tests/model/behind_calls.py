"""A signal behind each call of C that some code makes, one after the other."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def heard_by(handler: Handler, number: int = signal.SIGUSR1) -> Iterator[None]:
    """Within it this is the signal's handler."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def behind_each_call(action: Callable[[], object], counts: Callable[[FrameType, str], bool]) -> int:
    """The action again and again, until SIGUSR1 came, in this thread, behind each of its calls of C
    that count. How many those are. ``counts``: told the frame that calls, and the name of what."""
    left = 0

    def look(frame: FrameType, event: str, called: Any) -> None:
        nonlocal left
        if event == "c_return" and left and counts(frame, called.__name__):
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGUSR1)

    number = 0
    while left == 0:
        number += 1
        left = number
        sys.setprofile(look)
        try:
            action()
        finally:
            sys.setprofile(None)
    return number - 1
