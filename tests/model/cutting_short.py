"""Ctrl-C at a chosen step of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable


def cut_short(step: Callable[[], object], at: int) -> bool:
    """Ctrl-C behind the so many-th call, where CPython looks for signals; whether it came."""
    left = at

    def look(_frame: object, event: str, _told: object) -> None:
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        step()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False
