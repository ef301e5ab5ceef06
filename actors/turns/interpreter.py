"""Refuses interpreters and clocks in which no store can be open, and starts a store's threads."""

from __future__ import annotations

import sys
import threading
from importlib import import_module

from octavo.files.errors import Misuse, StorageFull
from octavo.files.later import loading
from octavo.files.unbroken import unbroken
from octavo.files.wall_clock import wall_clock_ms

_get_ident = threading.get_ident
_INTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


def refuse_unfit() -> None:
    """Raise Misuse where no store can be open in this interpreter."""
    refuse_subinterpreter()
    refuse_free_threads()
    refuse_replaced_threads()
    refuse_clock()


def refuse_subinterpreter() -> None:
    """Raise Misuse in any interpreter but the process's first one. Up to 3.13, the end of another
    one ends the process if it still has a thread, as it may for some seconds after a store; and a
    fork in the first one would leave the child with the store's lock."""
    try:
        with unbroken, loading:
            # One that is not there would be looked for each time.
            known = import_module(_INTERPRETERS)
    except ImportError:  # a build without
        return
    if known.get_current() != known.get_main():
        raise Misuse(
            "this is a subinterpreter, in which no store can be open: open it in the first "
            "interpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL}) or in another process"
        )


def refuse_free_threads() -> None:
    """Raise Misuse if threads run without the interpreter lock, as in free-threaded CPython: the
    shortest paths of reads and writes rely on single steps of other threads being atomic."""
    enabled = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on; older ones always have it
    if enabled is not None and not enabled():
        raise Misuse(
            "this Python runs threads without its interpreter lock (GIL), which Octavo counts on: "
            "start it with PYTHON_GIL=1 in its environment, or with -X gil=1"
        )


def refuse_replaced_threads() -> None:
    """Raise Misuse if Python's threads were replaced after Octavo was imported, as gevent and
    eventlet do: half of Octavo would have locks and thread idents of the other kind."""
    if threading.get_ident is not _get_ident:
        raise Misuse(
            "threads were replaced (monkey-patched, as gevent and eventlet do) after octavo was "
            "imported: do that first of all, before octavo is imported"
        )


def refuse_clock() -> None:
    """Raise Misuse if the clock says a time that no record can have."""
    if wall_clock_ms() < 0:
        raise Misuse("the system's clock is before 1970: set it, and open the store again")


def begin(thread: threading.Thread) -> None:
    """Start a thread that a store cannot do without. Raises StorageFull if it cannot start."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StorageFull(
            f"no thread can be started ({error}); end some, or raise the limit (ulimit -u, or "
            "pids.max of a container)"
        ) from error
