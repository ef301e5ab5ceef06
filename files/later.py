"""Loads modules when they are first used, and then whole.

A Ctrl-C in the midst of an import may leave an extension half loaded for as long as the process
lives; and between two steps of CPython's own the lock that all imports take stays taken, so that
the next import of any other thread waits for ever. A stack that ends in the midst of an import
leaves an extension half loaded, too. And a child that is forked in the midst of another thread's
import would wait for the lock of that module for ever. So what Octavo loads within a call it loads
by this, or by an import statement in ``with unbroken, loading:`` (tests/test_house.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from octavo.files.locks import new_rlock
from octavo.files.unbroken import need_room, unbroken

_ROOM = 150
"""More calls within each other than loading NumPy takes (103)."""

loading = new_rlock()
"""Held while something is loaded: a fork waits until what another thread loads is there."""
os.register_at_fork(
    before=loading.acquire, after_in_parent=loading.release, after_in_child=loading.release
)


class Later:
    """Stands for a module; takes each attribute over when it is first asked for."""

    def __init__(
        self, name: str, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """``around``: the context in which it is loaded."""
        self.__name__ = name
        self._around = around

    def __getattr__(self, attribute: str) -> Any:
        need_room(_ROOM)
        with unbroken, loading, self._around():  # so that it is loaded whole
            module = import_module(self.__name__)
        found = getattr(module, attribute)
        self.__dict__[attribute] = found
        return found
