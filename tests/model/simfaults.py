"""What can go wrong on a simulated disk: the power goes, a call fails, a write is short."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

CRASH_POINTS = frozenset(
    {
        "create",
        "reopen",
        "write",
        "pwrite",
        "sync",
        "truncate",
        "rename",
        "link",
        "unlink",
        "rmdir",
        "mkdir",
        "sync_dir",
        "sync_held",
        "sync_file",
        "lock",
    }
)
"""The operations that change something and so are counted in ``SimDisk.ops``; ``sync_held`` is a
``sync_dir`` of a directory that is held open."""
READS = frozenset(
    {
        "hold",
        "map",
        "read",
        "pread",
        "size",
        "exists",
        "links",
        "listdir",
        "free_bytes",
        "check_supported",
    }
)
"""The others: they can be made to fail, but a crash in one is a crash in what follows it."""


Fault = tuple[int, int | None]
"""(errno, None), or (0, how many bytes of a write are taken)."""


class SimCrash(BaseException):
    """The power is off. Not an Exception, so that no error handling of the store survives it."""


class _Failure:
    __slots__ = ("code", "cut", "lasting", "nth")

    def __init__(self, nth: int, code: int, lasting: bool, cut: int | None) -> None:
        self.nth = nth
        self.code = code
        self.lasting = lasting
        self.cut = cut


class Faults:
    """Counts the operations of a disk and lets the chosen ones go wrong."""

    def __init__(self) -> None:
        self.ops = 0
        """Operations so far that were crash points."""
        self.crashed = False
        self.before: Callable[[str], None] | None = None
        """Called with the name of every operation that is a crash point, before it changes
        anything: ``after_crash`` may be asked then."""
        self.at_call: Callable[[str], Fault | None] | None = None
        """Called with the name of every operation, reads too: says what is to go wrong in it."""
        self._crash_at: int | None = None
        self._failures: dict[str, list[_Failure]] = {}
        self._turn = threading.RLock()

    def crash_at(self, number: int) -> None:
        """Operation ``number`` (the first is 1) raises SimCrash and does nothing; so do later ones.

        Reads raise too from then on. ``close`` and ``release`` never do.
        """
        if number <= self.ops:
            raise ValueError(f"operation {number} was done already: {self.ops} were")
        self._crash_at = number

    def fail(self, op_name: str, nth: int, code: int, *, lasting: bool = False) -> None:
        """The ``nth`` call of an operation from now (the first is 1) raises OSError(``code``).

        ``lasting``: so do all later ones, until ``heal``. A failed sync drops what was not
        durable; every other failed operation changes nothing.
        """
        self._arm(op_name, _Failure(nth, code, lasting, None))

    def shorten(self, nth: int, length: int, op_name: str = "write") -> None:
        """The ``nth`` write from now takes only its first ``length`` bytes."""
        self._arm(op_name, _Failure(nth, 0, False, length))

    def heal(self) -> None:
        """Forget every failure that was asked for."""
        with self._turn:
            self._failures.clear()

    def _arm(self, op_name: str, failure: _Failure) -> None:
        if op_name not in CRASH_POINTS and op_name not in READS:
            raise ValueError(f"no operation {op_name!r}")
        if failure.nth < 1:
            raise ValueError(f"nth is {failure.nth}; the next call is 1")
        with self._turn:
            self._failures.setdefault(op_name, []).append(failure)

    def _begin(self, op_name: str, path: str) -> int | None:
        """Enter an operation: raises what was asked for; the length of a short write, or None."""
        if self.crashed:
            raise SimCrash(op_name)
        cut = None
        code = 0
        armed = self._failures.get(op_name, [])
        for failure in armed[:]:
            failure.nth -= 1
            if failure.nth > 0:
                continue
            if not failure.lasting:
                armed.remove(failure)
            if failure.cut is None:
                code = code or failure.code
            else:
                cut = failure.cut
        if self.at_call is not None and (fault := self.at_call(op_name)) is not None:
            code, cut = fault
        if code:
            if op_name in CRASH_POINTS:
                self._step(op_name)
            raise OSError(code, os.strerror(code), path)
        return cut

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """In an ``at_call``: within it other threads may ask for operations."""
        taken = 0
        with suppress(RuntimeError):  # it is not ours any more
            while True:
                self._turn.release()
                taken += 1
        try:
            yield
        finally:
            for _ in range(taken):
                self._turn.acquire()

    def _step(self, op_name: str) -> None:
        """The last moment before something changes."""
        if self.before is not None:
            self.before(op_name)
        if self._crash_at is not None and self.ops + 1 >= self._crash_at:
            self.crashed = True
            raise SimCrash(f"operation {self.ops + 1}: {op_name}")
        self.ops += 1
