"""The end of an open store: its actors stop in order, or a forked child lets go of its copy."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pykka import ActorRegistry

from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.ledger_file import LedgerFile
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
    """Raise AskCycle in a turn of this very thread: a signal's handler in the midst of a put, say.
    The put may go on behind it, so until then it must have its store."""
    me = get_ident()
    if any(ref.actor.holder == me for ref in _actors(running)):
        raise AskCycle(
            "a signal handler called close() in the middle of a call of its own thread, which has"
            " to end first; nothing was closed: raise SystemExit in the handler, or set a flag"
            " there, and close the store where that leads"
        )


def stop(running: Running) -> None:
    """Shut down: nothing acknowledged is lost, and the next start is quick. Idempotent by its
    caller. The lock is released whatever happens."""
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
    """After a ``stop`` that was interrupted, or never came to be: nobody writes any more, and
    whoever opens the store next can. As after a kill, it finds what was acknowledged. Another
    Ctrl-C is heard at its end: jobs at hand are cut short, but for those of threads."""
    bookie, inker = running.bookie.actor, running.inker.actor
    bookie.closed = inker.closing = True
    bookie.active = inker.active = None
    closed_at_once(running.runner, running.inker_clerk.actor.runner)
    running.inker_clerk.actor.consumers.close()
    _end(running)


def closed_at_once(*runners: JobRunner) -> None:
    """Cut the jobs at hand short, where worker processes do them, and close."""
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
    """The actors of a closed store refer to each other, so they stay until Python's collector looks
    at the oldest objects. That may be after many other stores were opened and closed."""
    bookie = running.bookie.actor
    bookie.cache.clear()
    bookie.kept_scans.forget()


def _actors(running: Running) -> tuple[Ref[Any], ...]:
    """In the order in which they stop."""
    return (running.inker_clerk, running.clerk, running.bookie, running.penciller, running.inker)


def ended(refs: Iterable[Ref[Any]], open_files: OpenFiles) -> None:
    """Stop these actors, and those of the store's files, with what they have open; files that wait
    to be deleted are swept at the next start. Waits for a turn that hangs, as with the disk,
    however long that takes: behind this the store is unlocked, and what such a turn goes on to do
    by names would be done to the next owner's files."""
    for ref in refs:
        ref.stop(timeout=inf)
        if isinstance(ref.actor, (Inker, Penciller)):
            ref.actor.change_log.close()
    open_files.closed = True  # who still reads is told so, and opens nothing again
    for left in ActorRegistry.get_all():
        file = getattr(left, "actor", None)  # None: of the program itself
        if isinstance(file, (JournalFile, LedgerFile)) and file.open_files is open_files:
            left.stop(timeout=inf)  # first: it may be about to be sealed
            with suppress(IllegalEvent):  # not begun yet: it has nothing open
                file.close()


def forked(running: Running) -> None:
    """This process is a forked child: its copy of the store refuses everything.

    Takes no lock (another thread may have held it when the fork came) and closes no descriptor
    that the parent shares in effect: only the child's lock, which is the parent's, is left alone.
    """
    bookie, inker = running.bookie.actor, running.inker.actor
    bookie.closed = True
    bookie.active = None
    inker.closing = True
    inker.failed = Closed(
        "this process was forked from the store's owner: open the store here, with read_only=True "
        "while the owner has it open"
    )
    inker.active = None
    running.runner.forked()
    running.inker_clerk.actor.runner.forked()
