"""The time of day, as everything that can be given another clock takes it: in whole milliseconds
since 1970, from a function without arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    """The system's clock. It can go back."""
    return time.time_ns() // 1_000_000


def in_ns(clock_ms: Callable[[], int]) -> Callable[[], int]:
    """The same clock in nanoseconds, for who asks it with every put: the system's then costs no
    call of Python's.
    """
    if clock_ms is wall_clock_ms:
        return time.time_ns
    return lambda: clock_ms() * 1_000_000
