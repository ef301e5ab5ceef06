"""The points of a call at which CPython may go on with another thread, one by one.

It changes threads only where it looks whether there is anything else to do: as a function begins,
after calls of C, as loops jump back. There it also does what ``Py_AddPendingCall`` was handed, on
the main thread; and what hands itself over again each time is done at each such point.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

_AT_A_POINT = 32
"""CPython does as many at each, while there are any."""
_PENDING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

only_where_they_are_seen = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="from 3.13 on CPython does not do them at each point"
)


class SwitchPoints:
    """Of one call at a time, on the main thread."""

    def __init__(self) -> None:
        self.passed = 0
        """Points that the call came to, up to that at which something was done."""
        self.where = ""
        """The line at which something was done."""
        self._at, self._do = 0, _nothing
        self._calls, self._looks = 0, False
        self._look = _PENDING(self._on_look)  # kept: C has it
        self._add = ctypes.pythonapi.Py_AddPendingCall
        self._add.argtypes = [_PENDING, ctypes.c_void_p]

    @contextmanager
    def of_a_call(self, at: int = 0, do: Callable[[], None] | None = None) -> Iterator[None]:
        """Within it something is done at point ``at``, the first of which is 1; 0: nowhere."""
        self._at, self._do = at, do or _nothing
        self.passed, self.where, self._calls, self._looks = 0, "", 0, True
        self._add(self._look, None)
        try:
            yield
        finally:
            self._looks = False
            _nothing()  # as it begins the last look is done, which needs this object

    def _on_look(self, _told: object) -> int:
        if not self._looks:
            return 0
        self._calls += 1
        if self._calls % _AT_A_POINT == 0:
            self.passed += 1
            if self.passed == self._at:
                code = (frame := sys._getframe(1)).f_code
                self.where = f"{code.co_qualname}, {code.co_filename}:{frame.f_lineno}"
                self._looks = False
                self._do()
                return 0
        self._add(self._look, None)
        return 0


def _nothing() -> None:
    pass
