"""Group commit: one fsync serves every caller who waits, outside any turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from octavo.files.errors import AskTimeout, StorageFailed


class GroupCommit:
    """How far one file is durable. The writer sets ``appended`` in its turn; callers wait here.

    The first to wait leads: it notes how far the file was appended, syncs, and serves all up to
    there; who comes meanwhile waits for the next. A failed sync is never tried again.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self.appended = 0
        self.durable = 0
        self.syncs = 0
        self.failed: StorageFailed | None = None
        self._sync = sync
        self._changed = threading.Condition(threading.Lock())
        self._leading = False

    def wait_durable(self, position: int, timeout: float) -> None:
        """Return when the file is durable up to ``position`` (exclusive end, bytes).

        At most two fsyncs' time. Raises StorageFailed (for ever, once a sync failed), AskTimeout.
        """
        if self.durable >= position and self.failed is None:
            return
        with self._changed:
            deadline = None
            while self._leading:
                if self.durable >= position or self.failed is not None:
                    break
                now = time.monotonic()
                deadline = now + timeout if deadline is None else deadline
                if now >= deadline or not self._changed.wait(deadline - now):
                    raise AskTimeout(f"no fsync ended within {timeout:g} s")
            if self.failed is not None:
                raise self.failed
            if self.durable >= position:
                return
            self._leading = True
        self._lead()

    def _lead(self) -> None:
        target = self.appended
        reached = self.durable  # an interrupted leader has made nothing sure, and broken nothing
        try:
            self._sync()
            reached = target
        except OSError as error:
            # The pages may be gone, and the next fsync would say that all is well.
            self.failed = StorageFailed(f"fsync failed: {error}; close the store and reopen it")
            raise self.failed from error
        finally:
            with self._changed:
                self._leading = False
                self.syncs += 1
                self.durable = max(self.durable, reached)
                self._changed.notify_all()
