"""Group commit: one fsync serves every caller who waits, outside any turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from octavo.actors.latency import Latency
from octavo.files.errors import AskTimeout, StorageFailed
from octavo.files.locks import new_lock
from octavo.files.unbroken import need_room

_LOOK_SECONDS = 1.0
_LONGEST_GATHER_SECONDS = 0.001
_ROOM = 12
"""Python functions within one another that a sync calls, and some to spare."""


class GroupCommit:
    """How far one file is durable. Its writer sets ``appended`` in its turn, after the write and
    before it tells anyone of the position; callers wait here, in no turn. Thread-safe.

    The first to wait leads: it notes how far the file was appended, syncs, and serves all up to
    there; who comes meanwhile waits for the next. Whoever was served is soon back with another
    write: the next leader gives them a moment, or half of them would miss each sync. A failed
    sync is never tried again: the pages may be gone, and the next would say that all is well.
    """

    def __init__(
        self, sync: Callable[[], None], latency: Latency | None = None, appended: int = 0
    ) -> None:
        self.appended = appended
        """Position behind the last byte written (exclusive end); a plain store by the writer."""
        self.durable = 0
        """Position up to which (exclusive end) the file is known to be durable."""
        self.syncs = 0
        """Syncs that were tried."""
        self.latency = latency
        """Where their duration is recorded."""
        self._sync = sync
        self.failure: BaseException | None = None
        """Why nothing is durable any more."""
        self._lock = new_lock()
        self._ended = threading.Condition(self._lock)
        self._came = threading.Condition(self._lock)
        self._leading = False
        self._followers = 0
        """Who waits for the leader."""
        self._target = 0
        """How far the last sync goes, or went."""
        self._served = 0
        """Callers whom it serves."""
        self._late = 0
        """Callers whom the next one will, as far as they came."""
        self._crowd = 0
        """Callers of both kinds when the last sync ended."""
        self._gather_seconds = 0.0
        """How long to wait for as many again: a quarter of what that sync took, or 1 ms."""

    @property
    def failed(self) -> StorageFailed | None:
        """Why nothing is durable any more; None while syncs succeed. A new error each time, or
        every raise would lengthen one traceback."""
        failure = self.failure
        if failure is None:
            return None
        if isinstance(failure, StorageFailed):
            failed = StorageFailed(*failure.args)
        else:
            failed = StorageFailed(f"fsync failed: {failure}; close the store and reopen it")
        failed.__cause__ = failure
        return failed

    def wait_durable(self, position: int, timeout: float) -> None:
        """Return when the file is durable up to ``position`` (exclusive end, bytes).

        At most the time of two fsyncs; ``timeout`` (seconds) bounds the wait for other callers'
        fsyncs, not one's own, which cannot be cut short. Raises StorageFailed (for ever, once a
        sync failed), AskTimeout.
        """
        if self.durable >= position and self.failure is None:
            return
        need_room(_ROOM)  # a RecursionError within a sync could stand for one that failed
        leading = False
        reached = 0
        try:
            # In the try: whoever interrupts this thread must not leave it leading.
            with self._lock:
                self._count(position)
                if self._leading:
                    self._follow(position, timeout)
                if self.failure is None and self.durable < position:
                    leading = self._leading = True
                    if self._late < self._crowd:
                        self._came.wait(self._gather_seconds)
                    # Whoever knows of a position knows that it was written.
                    target = self._target = max(self.appended, position)
                    self._served, self._late = self._late, 0
            if leading:
                self.syncs += 1
                began = time.perf_counter_ns()
                try:
                    self._sync()
                except OSError as error:
                    if error.errno is not None:
                        self.failure = error  # first of all, before an interrupt could come
                    elif self.failure is None:
                        raise  # of a signal's handler, such as TimeoutError
                except StorageFailed as error:
                    self.failure = error
                except Exception:
                    if self.failure is None:
                        raise  # no fsync failed, or it would be known: see JournalFile._sync
                else:
                    reached = target
                took = time.perf_counter_ns() - began
                self._crowd = self._served + self._late
                self._gather_seconds = min(took / 4e9, _LONGEST_GATHER_SECONDS)
                if self.latency is not None:
                    self.latency.record(took)
        finally:
            if leading:
                if reached > self.durable:
                    self.durable = reached
                self._leading = False
                if self._followers:
                    with self._lock:
                        self._ended.notify_all()
        if (failed := self.failed) is not None:
            raise failed

    def _count(self, position: int) -> None:
        """Somebody came, under the lock: whom the leader waits for, or not."""
        if position <= self._target:
            self._served += 1
            return
        self._late += 1
        if self._late == self._crowd:
            self._came.notify()

    def _follow(self, position: int, timeout: float) -> None:
        """Wait, under the lock, until nobody leads or this position is decided."""
        deadline = time.monotonic() + timeout
        self._followers += 1
        try:
            while True:
                if not self._leading or self.durable >= position or self.failure is not None:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AskTimeout(f"position {position}: no fsync ended within {timeout:g} s")
                # Now and then unasked: a leader may be interrupted before it says that it is done.
                self._ended.wait(min(left, _LOOK_SECONDS))
        finally:
            self._followers -= 1


NOT_WRITTEN = GroupCommit(lambda: None)
"""Of files that are not written: nobody waits for them, and one for each takes 2.3 KB."""
