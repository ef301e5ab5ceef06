"""A call of a store within which another thread makes a whole call, or the first part of one, at
any of the points at which CPython may change threads."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from known_calls import STANDARD, Known, Step, releases, some
from known_heads import HEADS, KnownHeads
from known_store import KnownStore
from one_thread import one_thread
from switch_points import SwitchPoints

import octavo
from octavo import read_only

WAIT_SECONDS = 0.02
"""For the other thread: if it waits for what the call has, it goes on beside that."""
END_SECONDS = 60.0
CLOSES = "closes"


class _Other:
    """The other thread: it makes one call, and may stop for a moment after so many steps of it."""

    def __init__(self, on: KnownStore, does: Step, stops_after: int) -> None:
        self._on, self._does, self._stops_after = on, does, stops_after
        self.steps = 0
        """Calls, and returns, so far."""
        self._goes_on, self._stands = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.stopped = ""
        """Where."""
        self.wrong = ""

    def begin(self) -> None:
        """Return as it has ended, or stands still, or waits for something."""
        self._thread.start()
        self._stands.wait(WAIT_SECONDS)

    def end(self) -> None:
        self._goes_on.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                self.wrong = "the other thread waits for ever"

    def _work(self) -> None:
        sys.setprofile(self._look)
        try:
            self._does(self._on)
        except octavo.Busy:
            pass
        except BaseException:  # noqa: BLE001 (told by the judge)
            self.wrong = traceback.format_exc()
        finally:
            sys.setprofile(None)
            self._stands.set()

    def _look(self, frame: FrameType, event: str, _told: object) -> None:
        self.steps += 1
        if self.steps == self._stops_after:
            self.stopped = f"{event}, {frame.f_code.co_qualname}:{frame.f_lineno}"
            self._stands.set()
            self._goes_on.wait(WAIT_SECONDS)


class Switched:
    """A store whose calls are interrupted so, one by one."""

    def __init__(self, on: KnownStore, known: Known) -> None:
        self.on, self.known = on, known
        self._calls = known.calls
        self._others: dict[str, Step] = {**known.others, CLOSES: lambda on: on.store.close()}
        self._points = SwitchPoints()
        self._most = dict.fromkeys(self._calls, 8)
        self._steps = 1

    def wrong(self, call: str, other: str, *, stops: bool) -> str:
        """What is wrong, or nothing, where another thread makes this call at some switch point of
        ``call``, and, if it ``stops``, stands still at some step of it until that has ended."""
        on, rng = self.on, self.on.rng
        some(on, self.known.others)
        on.begin()
        at = rng.randint(1, self._most[call])
        beside = _Other(on, self._others[other], rng.randint(1, self._steps) if stops else 0)
        found, answered = None, False
        try:
            with self._points.of_a_call(at, beside.begin):
                found, answered = self._calls[call](on), True
        except octavo.Busy:
            pass
        except octavo.Closed:
            if other != CLOSES:
                raise
        finally:
            beside.end()
        self._come(call, at, beside.steps)
        if other == CLOSES:
            on.open_again()
        wrong = beside.wrong
        if call in self.known.reads and answered and not wrong:
            expected = [self.known.reads[call][1](state) for state in on.states()]
            wrong = "" if found in expected else f"found {found!r}, not one of {expected!r}"
        if not (wrong := wrong or on.end()):
            return ""
        where = f"point {at} ({self._points.where})"
        return f"{call}; {other} at {where}, stopped at {beside.stopped!r}: {wrong}"

    def _come(self, call: str, at: int, steps: int) -> None:
        """How many points a call has depends on where its keys are just now, and on what CPython
        has found out about its steps: it is told only where there are less than was thought."""
        came = bool(self._points.where)
        self._most[call] = max(self._most[call], 2 * at) if came else self._points.passed
        self._steps = steps or self._steps


@contextmanager
def switched_store(home: Path, seed: object, known: Known = STANDARD) -> Iterator[Switched]:
    """A store for such calls, everything of which ``seed`` says but how threads wait."""
    with one_thread(f"switched {seed}") as pool, pytest.MonkeyPatch.context() as patch:
        make = KnownHeads if known is HEADS else KnownStore
        on = make(home, pool, random.Random(f"switched {seed}"))
        patch.setattr(read_only, "wall_clock_ms", lambda: on.now_ms)
        yield Switched(on, known)
        releases(on)
        on.let_go()
        on.store.close()
