"""The time of day, in whole milliseconds since 1970 UTC. Whatever can be given another clock takes
it as a function without arguments that returns this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

YEAR_10000_MS = 253_402_300_800_000
"""From this moment on there are no datetimes: those of Python, Arrow and Spark end before it."""
LIKE_SECONDS = range(10**9, 10**10)
"""Numbers that as ms are in early 1970, when nothing expires, and as seconds are in our time."""


def wall_clock_ms() -> int:
    """The system's clock. It can go back."""
    return time.time_ns() // 1_000_000


def ms_of(moment: datetime) -> int:
    """ms UTC of a moment that has a time zone, rounded down. Exact: ``timestamp()``, a float, is
    not for all moments from 2038 on."""
    return (moment - _EPOCH) // _MS


def ms_of_iso(text: str) -> int:
    """ms UTC of a moment, or a date, in ISO 8601; UTC where it names no zone. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return ms_of(found if found.tzinfo is not None else found.replace(tzinfo=UTC))


def moment_of(ms: int) -> datetime:
    """The moment, in UTC. Raises OverflowError beyond the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=ms)


def utc(ms: int) -> str:
    """The moment as the command line and ``timestampAsOf`` take it; as ms beyond those years."""
    try:
        return moment_of(ms).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms"


def in_ns(clock_ms: Callable[[], int]) -> Callable[[], int]:
    """The same clock in nanoseconds, for code that asks it at every put: the system's clock then
    costs no call of a Python function.
    """
    if clock_ms is wall_clock_ms:
        return time.time_ns
    return lambda: clock_ms() * 1_000_000
