"""Watches the inboxes of open stores: one thread per process, asleep except for a listing now and
then.

A store without an inbox costs one stat a look. Requests are served on this thread, which mostly
waits for the disk meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from octavo.actors.keeping.backup import BackedUp, backup
from octavo.actors.keeping.ingest import ingest
from octavo.actors.turns.interpreter import begin
from octavo.files.argument_checks import shown, to_whole
from octavo.files.errors import AskTimeout, Closed, Misuse, OctavoError
from octavo.files.handover import inbox
from octavo.files.handover.inbox import INBOX
from octavo.files.locks import new_lock
from octavo.files.messages import messages_of
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest.consumers import checked_name

if TYPE_CHECKING:
    from octavo.actors.opening.startup import Running

log = messages_of("octavo.inbox")

LOOK_SECONDS = 0.2
_MOST_LEFT_OUT = 50
"""Looks that are skipped at most after one that failed: 10 s."""


def serve(running: Running, now_ms: int, stuck: set[str] | None = None) -> int:
    """Answer every request in the store's inbox; returns how many there were. ``stuck``: see
    ``waiting`` in files/handover/inbox.py."""
    names = inbox.waiting(running.disk, running.path, now_ms, stuck)
    for name in names:
        try:
            _serve(running, name)
        except Closed:
            return 0  # the store's next opener answers
    return len(names)


def _serve(running: Running, name: str) -> None:
    """Do what a request asks for, and answer it, unless nobody waits for it any more."""
    disk, path = running.disk, running.path
    held = False
    try:
        asked = inbox.read(disk, path, name)
        if asked is None:
            return
        held = bool(asked.get(inbox.HELD))  # False if an earlier release, without locks, asks
        take = partial(inbox.take, disk, path, name) if held else None
        waits = not held or inbox.is_held(disk, path, name)
        answer = _answer(running, asked, take) if waits else {}
    except (Closed, MemoryError):
        raise  # there may be memory at the next look
    except Exception as error:  # noqa: BLE001 - no request ends the watch over all stores
        log.warning("%s/%s/%s: %s", path, INBOX, name, error)
        answer = {"error": type(error).__name__, "message": str(error)}
    if held and not inbox.is_held(disk, path, name):
        inbox.forget(disk, path, name)
        log.warning("%s/%s/%s is dropped: nobody waits for it any more", path, INBOX, name)
    else:
        inbox.write(disk, path, name.removesuffix(inbox.REQUEST) + inbox.ANSWER, answer)


def _answer(
    running: Running, asked: dict[str, Any], wanted: Callable[[], bool] | None
) -> dict[str, object]:
    if "job" not in asked and wanted is not None and not wanted():
        raise AskTimeout("nobody waits for it any more")
    if "consumer" in asked:
        return {"position": acknowledge(running, asked["consumer"], asked["sqn"])}
    if "backup" in asked:
        if wanted is None:  # or whoever made the store's files could have others written
            raise Misuse("a backup is made for who waits for it, and has its request locked")
        return asdict(_backed_up(running, asked["backup"], asked["ledger"]))
    done = ingest(
        running,
        asked["job"],
        asked["attempts"],
        stream=asked["stream"],
        batch=asked["batch"],
        wanted=wanted,
    )
    return {"first_sqn": done.first_sqn, "last_sqn": done.last_sqn, "repeated": done.repeated}


def _backed_up(running: Running, path: object, ledger: object) -> BackedUp:
    """Make a backup by links alone: other requests would have to wait while files are copied."""
    if not isinstance(path, str) or not os.path.isabs(path) or not isinstance(ledger, bool):
        raise Misuse(
            f"path={shown(path)}, ledger={shown(ledger)}: a backup is asked for by an absolute "
            "path, and with its ledger or not"
        )
    return backup(running, path, ledger=ledger, copy=False)


def acknowledge(running: Running, name: str, sqn: int) -> int:
    """Note that a durable consumer of the feed, which is made if there is none, no longer needs
    anything at or below ``sqn``; returns its position. Raises as Consumers.begin, and Misuse."""
    consumers = running.inker_clerk.actor.consumers
    newest = running.inker.actor.last_sqn
    sqn = to_whole("sqn", sqn, f"are sequence numbers up to the newest, {newest}", 0, newest)
    with consumers.lock:  # the owner's own threads acknowledge, too
        found = consumers.position(checked_name(name))
        if found is None:
            inker = running.inker.actor
            consumers.begin(name, sqn, lambda: inker.manifest.horizon)
        elif found < sqn:
            consumers.move(name, sqn)
    return max(found or 0, sqn)


class InboxWatch:
    """The watched stores of this process, and the thread that watches them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all stores: for a forked child, which does not own them. Their owner answers."""
        self._stores: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._lock = new_lock()
        self._thread: threading.Thread | None = None

    def add(self, running: Running) -> Watched:
        """Watch this store until it is closed. Starts the thread if there is none; raises
        StorageFull if it cannot be started."""
        watched = Watched(running)
        with self._lock:
            self._stores.add(watched)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="octavo-inbox", daemon=True)
                begin(self._thread)
        return watched

    def _run(self) -> None:
        there = True
        while there:
            time.sleep(LOOK_SECONDS)
            try:
                there = self._looked()
            except MemoryError:
                pass  # there may be memory at the next look

    def _looked(self) -> bool:
        """Look into the inbox of every watched store. Returns whether there is any."""
        with self._lock:
            stores = list(self._stores)
            if not stores:
                self._thread = None
        for watched in stores:
            watched.look()
        return bool(stores)


class Watched:
    """One store under watch."""

    def __init__(self, running: Running) -> None:
        self._running: Running | None = running
        self._turn = new_lock()
        self._stuck: set[str] = set()
        self._failures = self._left_out = 0
        self._said = ""

    def look(self) -> None:
        """Serve what is in the inbox. An error is logged, once while it stays the same, and a later
        look tries again, after ever more skipped ones."""
        with self._turn:
            running = self._running
            if running is None:
                return
            if self._left_out:
                self._left_out -= 1
                return
            try:
                serve(running, wall_clock_ms(), self._stuck)
            except (OctavoError, OSError, RuntimeError, MemoryError) as error:
                self._failures += 1
                self._left_out = min(1 << min(self._failures, 16), _MOST_LEFT_OUT)
                if str(error) != self._said:
                    log.warning("%s: the inbox cannot be served: %s", running.path, error)
                self._said = str(error)
            else:
                self._failures, self._said = 0, ""

    def stop(self) -> None:
        """Stop looking, after waiting for a look under way. Not after a fork: its lock may be
        taken."""
        with self._turn:
            self._running = None


WATCH = InboxWatch()
os.register_at_fork(after_in_child=WATCH.reset)
