"""What a machine cannot run is said in pytest's summary, each time; it never passes in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotRun(UserWarning):
    """A part of a test that this machine cannot run, and why."""


def or_say_so(what: str, make: Callable[[], T], lacking: type[Exception]) -> T | None:
    """What ``make`` makes; None where it raises ``lacking``, and the summary says what is not
    run."""
    try:
        return make()
    except lacking as why:
        warnings.warn(NotRun(f"NOT RUN: {what} ({why})"), stacklevel=2)
        return None
