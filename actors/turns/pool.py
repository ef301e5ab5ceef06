"""A small shared pool of daemon threads that serves the inboxes of actors.

A process has at most MAX_THREADS of them, whatever the number of actors. They are started when
there is work, and end IDLE_SECONDS after the last of it. A forked child begins with an empty pool.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from octavo.files.locks import new_lock
from octavo.files.messages import messages_of

log = messages_of("octavo.pool")

MAX_THREADS = 4
IDLE_SECONDS = 5.0

Work = Callable[[], None]


class Pool:
    """Runs pieces of work on its threads, begun in the order they come. Thread-safe."""

    def __init__(
        self, max_threads: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS, name: str = "pool"
    ) -> None:
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._name = f"octavo-{name}"
        self.reset()

    def reset(self) -> None:
        """Forget all work and all threads: for a forked child, where they do not exist."""
        self._work: deque[Work] = deque()
        self._lock = new_lock()
        self._wake = threading.Condition(self._lock)
        self.threads = 0
        """Alive now."""
        self._idle = 0
        self._started = 0

    def submit(self, work: Work) -> None:
        """Have ``work`` run soon; what it raises is logged. Never waits for a thread.

        If no thread can be started (the system is out of them, or the interpreter is shutting
        down), the work waits for the next call that can start one.
        """
        thread = None
        try:
            with self._lock:
                self._work.append(work)
                if self._idle >= len(self._work) or self.threads >= self._max_threads:
                    self._wake.notify()
                    return
                self._started += 1
                thread = self._new_thread()
                self.threads += 1
            thread.start()
        except BaseException as error:
            # An interrupt, too: a thread that will never run must not stay counted.
            if thread is not None and not thread.is_alive():
                with self._lock:
                    self.threads -= 1
            if not isinstance(error, RuntimeError):
                raise
            log.warning("no thread for background work, it waits: %s", error)

    def _new_thread(self) -> threading.Thread:
        name = f"{self._name}-{self._started}"
        return threading.Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:
                log.exception("a piece of background work failed")
            del work  # or an idle thread would keep its actor alive

    def _next(self) -> Work | None:
        """The next piece of work; None if this thread is to end. A thread that has no memory left
        to wait with ends, too, and is no longer counted, so that another can take its place."""
        with self._lock:
            try:
                while not self._work:
                    self._idle += 1
                    try:
                        woken = self._wake.wait(self._idle_seconds)
                    finally:
                        self._idle -= 1
                    if not woken and not self._work:
                        self.threads -= 1
                        return None
                return self._work.popleft()
            except BaseException:
                self.threads -= 1
                raise


POOL = Pool()
os.register_at_fork(after_in_child=POOL.reset)
