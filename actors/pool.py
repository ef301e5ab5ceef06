"""A small shared pool of daemon threads that serves the inboxes of actors.

At most MAX_THREADS in a process, whatever the number of actors; made when there is work, gone a few
seconds after the last of it. A forked child begins with an empty pool of its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("octavo.pool")

MAX_THREADS = 4
IDLE_SECONDS = 5.0

Work = Callable[[], None]


class Pool:
    """Runs pieces of work in the order they come, each on any of its threads."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._work: deque[Work] = deque()
        self._wake = threading.Condition(threading.Lock())
        self._threads = 0
        self._idle = 0

    def submit(self, work: Work) -> None:
        """Have ``work`` run soon. It must not raise. Never waits for a thread."""
        with self._wake:
            self._work.append(work)
            if self._idle >= len(self._work) or self._threads >= MAX_THREADS:
                self._wake.notify()
                return
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._serve, name=f"octavo-pool-{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._work:
                    self._idle += 1
                    woken = self._wake.wait(IDLE_SECONDS)
                    self._idle -= 1
                    if not woken and not self._work:
                        self._threads -= 1
                        return
                work = self._work.popleft()
            try:
                work()
            except BaseException:
                log.exception("a piece of background work failed")
            del work

    @property
    def threads(self) -> int:
        """Threads alive now."""
        return self._threads


POOL = Pool()
os.register_at_fork(after_in_child=POOL._reset)
