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
"""Python functions within one another that a sync calls, and some to spare."""


class GroupCommit:
    """How far one file is durable. Its writer sets ``appended`` in its turn, after the write and
    before it tells anyone of the position; callers wait here, in no turn. Thread-safe.

    The first to wait leads: it notes how far the file was appended, syncs, and serves all up to
    there; who comes meanwhile waits for the next. Whoever was served is soon back with another
    write: the next leader gives them a moment, or half of them would miss each sync. A failed
    sync is never tried again: the pages may be gone, and the next would say that all is well.

    Nobody waits in a Condition: a Ctrl-C in its ``wait`` can end that without the lock, and the
    ``with`` around it then lets go of another thread's. Under the lock nothing is called or made
    that Python's collector counts, so that no signal's handler runs there, nor a finalizer.
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
        self._leader = 0
        """Ident of the thread that syncs, or is about to; 0: none does."""
        self._waiting: list[Lock] = []
        """To be released as its sync ends: one for each who waits for that."""
        self._gathering: Lock | None = None
        """To be released once as many came as the leader waits for."""
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
        me = get_ident()
        within = self._leader == me  # a signal's handler, in the midst of a sync of its own thread
        try:
            # In the try: whoever interrupts this thread must not leave it leading.
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
        """Somebody came: whom the leader waits for, or not."""
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
        """Wait until this thread leads or this position is decided."""
        deadline = time.monotonic() + timeout
        while (ended := self._enter(me, position)) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise AskTimeout(f"position {position}: no fsync ended within {timeout:g} s")
            # Now and then unasked: a leader may be interrupted before it says that it is done.
            ended.acquire(timeout=min(left, _LOOK_SECONDS))

    def _enter(self, me: int, position: int) -> Lock | None:
        """What the leader releases as its sync ends. None: this thread leads, or the position is
        decided."""
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
        """Sync, for all who came by now, or come soon."""
        if (gathering := self._gathering) is not None:
            gathering.acquire(timeout=self._gather_seconds)
        with self._lock:
            self._gathering = None
            # Whoever knows of a position knows that it was written.
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
                raise  # of a signal's handler, such as TimeoutError
        except StorageFailed as error:
            self.failure = error
        except Exception:
            if self.failure is None:
                raise  # no fsync failed, or it would be known: see JournalFile._sync
        else:
            self.durable = max(self.durable, target)
        took = time.perf_counter_ns() - began
        self._crowd = self._served + self._late
        self._gather_seconds = min(took / 4e9, _LONGEST_GATHER_SECONDS)
        if self.latency is not None:
            self.latency.record(took)


NOT_WRITTEN = GroupCommit(lambda: None)
"""Of files that are not written: nobody waits for them, and one for each takes 0.4 KB."""
