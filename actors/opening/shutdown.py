"""Ends an open store: stops its actors in order, or has a forked child let go of its copy."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pykka import ActorRegistry

from octavo.actors.file_actor import FileActor
from octavo.actors.inker import Inker
from octavo.actors.penciller import Penciller
from octavo.files.errors import AskCycle, Closed
from octavo.files.lifecycle import IllegalEvent
from octavo.files.unbroken import unbroken

if TYPE_CHECKING:
    from octavo.actors.open_files import OpenFiles
    from octavo.actors.opening.startup import Running
    from octavo.actors.turns.ref import Ref
    from octavo.actors.worker import JobRunner

_SAVE_FROM_ROWS = 1 << 14


def refuse_in_a_turn(running: Running) -> None:
    """Raise AskCycle if this thread is in a turn of the store, as a signal's handler in the middle
    of a put is. The put goes on after the handler, and needs its store until it ends."""
    me = get_ident()
    if any(ref.actor.holder == me for ref in _actors(running)):
        raise AskCycle(
            "a signal handler called close() in the middle of a call of its own thread, which has"
            " to end first; nothing was closed: raise SystemExit in the handler, or set a flag"
            " there, and close the store where that leads"
        )


def stop(running: Running) -> None:
    """Shut down: nothing acknowledged is lost, and the next start is quick. The caller makes sure
    that it is done once. The lock is released whatever happens."""
    try:
        running.inker_clerk.actor.close()
        running.bookie.actor.close(_SAVE_FROM_ROWS)
        running.runner.close()
    except BaseException:
        abandon(running)
        raise
    _end(running)


@unbroken
def abandon(running: Running) -> None:
    """Give the store up after a ``stop`` that was interrupted, or never came: nothing is written
    any more, and the store can be opened again. As after a kill, the next opening finds all that
    was acknowledged. Cuts current jobs short, except those on threads. A further Ctrl-C is raised
    only at the end."""
    bookie, inker = running.bookie.actor, running.inker.actor
    bookie.closed = inker.closing = True
    bookie.active = inker.active = None
    closed_at_once(running.runner, running.inker_clerk.actor.runner)
    running.inker_clerk.actor.consumers.close()
    _end(running)


def closed_at_once(*runners: JobRunner) -> None:
    """Cut short the jobs that worker processes are running, and close the runners."""
    for runner in runners:
        runner.cut_off()
        runner.close()


def _end(running: Running) -> None:
    try:
        ended(_actors(running), running.open_files)
    finally:
        running.disk.let_go(f"{running.path}/journal")
        running.lock.release()
        _forget_what_was_read(running)


def _forget_what_was_read(running: Running) -> None:
    """Free what was kept for reads. The actors of a closed store refer to each other, so they stay
    until Python's collector looks at the oldest objects, maybe many openings of stores later."""
    bookie = running.bookie.actor
    bookie.cache.clear()
    bookie.kept_scans.forget()


def _actors(running: Running) -> tuple[Ref[Any], ...]:
    """The store's actors, in the order in which they stop."""
    return (running.inker_clerk, running.clerk, running.bookie, running.penciller, running.inker)


def ended(refs: Iterable[Ref[Any]], open_files: OpenFiles) -> None:
    """Stop these actors and those of the store's files, and close what they have open. Files that
    wait to be deleted are swept at the next start. Waits for a turn that hangs, as on a hanging
    disk, however long: after this the store is unlocked, and what such a turn then did by names of
    files would be done to the next owner's."""
    for ref in refs:
        ref.stop(timeout=inf)
        if isinstance(ref.actor, (Inker, Penciller)):
            ref.actor.change_log.close()
    open_files.closed = True  # whoever still reads gets Closed, and opens nothing again
    for left in ActorRegistry.get_all():
        file = getattr(left, "actor", None)  # None: the program's own pykka actor
        if isinstance(file, FileActor) and file.open_files is open_files:
            left.stop(timeout=inf)  # before close(): it may be about to be sealed
            with suppress(IllegalEvent):  # a file that was not begun yet has nothing open
                file.close()


def forked(running: Running) -> None:
    """In a forked child: have its copy of the store refuse everything.

    Takes no lock, as another thread may have held it at the fork. Closes nothing that the parent
    would notice; the store's lock, which is the parent's, is left alone.
    """
    bookie, inker = running.bookie.actor, running.inker.actor
    bookie.closed = True
    bookie.active = None
    inker.closing = True
    inker.failed = Closed(
        "this process was forked from the store's owner: open the store here, with read_only=True "
        "while the owner has it open"
    )
    inker._last = inker.last_sqn
    inker.active = None
    running.runner.forked()
    running.inker_clerk.actor.runner.forked()
