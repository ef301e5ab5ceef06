"""The thread of ``sync=seconds``, which bounds how much a power cut can lose."""

from __future__ import annotations

import threading
import time

from octavo.actors.inker import Inker
from octavo.actors.turns.interpreter import begin
from octavo.files.errors import AskTimeout, OctavoError
from octavo.files.messages import messages_of

log = messages_of("octavo.sync")

_PAUSE_SECONDS = 0.2


class IntervalSync:
    """Makes durable what was written, every ``seconds``. Its thread sleeps, or is in fsync."""

    def __init__(self, inker: Inker, seconds: float) -> None:
        """Start the thread. Raises StorageFull if none can be started."""
        self._inker = inker
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octavo-sync", daemon=True)
        begin(self._thread)

    def _run(self) -> None:
        while True:
            try:
                # A Ctrl-C may have closed the store without stop() being called.
                if self._stopped.wait(self._seconds) or self._inker.is_stopped:
                    return
                self._inker.make_durable(self._inker.last_sqn)
            except MemoryError:  # no sync failed; not logged, since that takes memory, too
                time.sleep(min(self._seconds, _PAUSE_SECONDS))
            except AskTimeout as slow:  # no sync failed: the next interval's may succeed
                log.warning("%s: the interval's sync takes long: %s", self._inker.directory, slow)
            except OctavoError as error:
                # The next put or sync meets the same failure and raises it to its caller.
                log.error("%s: the interval's sync failed: %s", self._inker.directory, error)
                return

    def stop(self) -> None:
        """End the thread. Waits for an fsync under way."""
        self._stopped.set()
        self._thread.join()
