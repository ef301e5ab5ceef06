"""Locks whose ``with`` no Ctrl-C leaves taken.

CPython looks for a Ctrl-C after each call of C. Up to 3.13 a ``with`` takes a lock of ``threading``
in a step of its own, which is no such call. From 3.14 on it calls ``__enter__`` like any function:
a Ctrl-C that comes there leaves the lock taken for ever, since the block has not begun.

So from 3.14 on ``__enter__`` is a Python function, after whose end CPython does not look. It takes
the lock in a step of a ``for``, after which it does not either. The end must be a call of C, for
there is a look at the first step of a Python function: ``__exit__`` is the lock's own.
"""

from __future__ import annotations

import sys
import threading
from itertools import repeat
from typing import Any, cast

_LOOKS_ON_ENTERING = sys.version_info >= (3, 14)


class Taken:
    """A lock that no Ctrl-C at the beginning of a ``with`` leaves taken. All else is the lock's."""

    __slots__ = ("__exit__", "_lock", "_taking")

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._taking = map(lock.acquire, repeat(True))
        self.__exit__ = lock.__exit__

    def __enter__(self) -> object:
        for taken in self._taking:
            return taken
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def new_lock() -> threading.Lock:
    """As threading.Lock."""
    lock = threading.Lock()
    return cast(threading.Lock, Taken(lock)) if _LOOKS_ON_ENTERING else lock


def new_rlock() -> threading.RLock:
    """As threading.RLock: the thread that has it may take it again."""
    lock = threading.RLock()
    return cast("threading.RLock", Taken(lock) if _LOOKS_ON_ENTERING else lock)
