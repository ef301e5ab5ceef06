"""Group commit: one fsync serves every caller who waits, outside any turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from octavo.actors.latency import Latency
from octavo.files.errors import AskTimeout, StorageFailed
from octavo.files.locks import new_lock
from octavo.files.unbroken import need_room

if TYPE_CHECKING:
    from threading import Lock

_LOOK_SECONDS = 1.0
_LONGEST_GATHER_SECONDS = 0.001
_ROOM = 12
"""Nested calls of Python functions that a sync needs, and some to spare."""


class GroupCommit:
    """How far one file is durable. Its writer sets ``appended`` in its turn, after the write and
    before it tells anyone of the position; callers wait here, in no turn. Thread-safe.

    The first caller to wait leads: it notes how far the file has been appended, syncs, and serves
    all up to there; callers that come meanwhile wait for the next sync. Served callers are soon
    back with another write: the next leader gives them a moment, or half of them would miss each
    sync. A failed sync is never retried: the pages may be gone, yet the next one would succeed.

    Nobody waits in a Condition: a Ctrl-C in its ``wait`` can end that without the lock, and the
    ``with`` around it would then release another thread's. Under the lock nothing is called or
    made that Python's collector counts, so no signal's handler or finalizer runs there.
    """

    def __init__(
        self, sync: Callable[[], None], latency: Latency | None = None, appended: int = 0
    ) -> None:
        self.appended = appended
        """Position behind the last byte written (exclusive end); a plain store by the writer."""
        self.durable = 0
        """Position up to which (exclusive end) the file is known to be durable."""
        self.syncs = 0
        """How many syncs were tried."""
        self.latency = latency
        """Where their duration is recorded."""
        self._sync = sync
        self.failure: BaseException | None = None
        """What failed, if nothing can become durable any more."""
        self._lock = new_lock()
        self._leader = 0
        """Ident of the thread that syncs, or is about to; 0: none does."""
        self._waiting: list[Lock] = []
        """Locks, one for each caller that waits for the leader's sync; released as that ends."""
        self._gathering: Lock | None = None
        """Released once as many callers have come as the leader waits for."""
        self._target = 0
        """The position up to which the current or last sync goes."""
        self._served = 0
        """How many callers that sync serves."""
        self._late = 0
        """How many callers have come so far for the sync after it."""
        self._crowd = 0
        """Callers of both kinds when the last sync ended."""
        self._gather_seconds = 0.0
        """How long to wait for as many again: a quarter of what that sync took, 1 ms at most."""

    @property
    def failed(self) -> StorageFailed | None:
        """The error to raise since a sync failed; None while syncs succeed. A new one each time,
        or every raise would lengthen the same traceback."""
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

        Takes the time of two fsyncs at most. ``timeout`` (seconds) bounds the wait for other
        callers' fsyncs, not for one's own, which cannot be cut short. Raises StorageFailed (always,
        once a sync failed), AskTimeout.
        """
        if self.durable >= position and self.failure is None:
            return
        need_room(_ROOM)  # a RecursionError within a sync could be taken for a failed fsync
        me = get_ident()
        within = self._leader == me  # this is a signal's handler within its own thread's sync
        try:
            # All in the try: an interrupt must not leave this thread the leader.
            self._count(position)
            self._follow(me, position, timeout)
            if self._leader == me and self.durable < position and self.failure is None:
                self._lead(position)
        finally:
            if self._leader == me and not within:
                self._leader = 0
                none: list[Lock] = []
                with self._lock:
                    waiting, self._waiting = self._waiting, none
                for ended in waiting:
                    ended.release()
        if (failed := self.failed) is not None:
            raise failed

    def _count(self, position: int) -> None:
        """Count a caller, and wake the leader if it waits for no more of them."""
        gathering = None
        with self._lock:
            if position <= self._target:
                self._served += 1
            else:
                self._late += 1
                if self._late >= self._crowd:
                    gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.release()

    def _follow(self, me: int, position: int, timeout: float) -> None:
        """Wait until this thread leads, or the file is durable up to ``position`` or failed. Raises
        AskTimeout."""
        deadline = time.monotonic() + timeout
        while (ended := self._enter(me, position)) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise AskTimeout(f"position {position}: no fsync ended within {timeout:g} s")
            # Look now and then anyway: a leader may be interrupted before it releases this.
            ended.acquire(timeout=min(left, _LOOK_SECONDS))

    def _enter(self, me: int, position: int) -> Lock | None:
        """Become the leader if there is none. Returns a lock to wait for, which the leader releases
        as its sync ends; None if this thread leads, or there is nothing to wait for."""
        ended = new_lock()
        ended.acquire()
        alone = [ended]
        with self._lock:
            if self.durable >= position or self.failure is not None:
                return None
            if self._leader in (0, me):
                self._leader = me
                self._gathering = ended if self._late < self._crowd else None
                return None
            self._waiting += alone
        return ended

    def _lead(self, position: int) -> None:
        """Sync, for all callers that have come by now or come soon."""
        if (gathering := self._gathering) is not None:
            gathering.acquire(timeout=self._gather_seconds)
        with self._lock:
            self._gathering = None
            # A caller's position is written, even if ``appended`` does not say so yet.
            target = self._target = position if position > self.appended else self.appended
            self._served, self._late = self._late, 0
        self.syncs += 1
        began = time.perf_counter_ns()
        try:
            self._sync()
        except OSError as error:
            if error.errno is not None:
                self.failure = error  # first of all, before an interrupt could come
            elif self.failure is None:
                raise  # an error of a signal's handler, such as TimeoutError
        except StorageFailed as error:
            self.failure = error
        except Exception:
            if self.failure is None:
                raise  # no fsync failed, or JournalFile._sync would have set ``failure``
        else:
            self.durable = max(self.durable, target)
        took = time.perf_counter_ns() - began
        self._crowd = self._served + self._late
        self._gather_seconds = min(took / 4e9, _LONGEST_GATHER_SECONDS)
        if self.latency is not None:
            self.latency.record(took)


NOT_WRITTEN = GroupCommit(lambda: None)
"""Shared by all files that are not written, where nobody waits: one for each would take 0.4 KB."""
