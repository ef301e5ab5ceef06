"""What Octavo needs of the interpreter that runs it, and of its clock."""

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
    """Raise Misuse in any interpreter but the process's first one. Up to 3.13 the end of another
    ends the process where a thread of it is left, as one of a store's may be for some seconds; and
    a fork in the first one would leave the child with the store's lock."""
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
    """Raise Misuse where threads run without the interpreter lock, as free-threaded CPython has
    them: the shortest paths of reads and writes count on single steps of other threads being whole.
    """
    enabled = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on; before, there is no other
    if enabled is not None and not enabled():
        raise Misuse(
            "this Python runs threads without its interpreter lock (GIL), which Octavo counts on: "
            "start it with PYTHON_GIL=1 in its environment, or with -X gil=1"
        )


def refuse_replaced_threads() -> None:
    """Raise Misuse where other threads were put in the place of Python's after Octavo was imported,
    as gevent and eventlet do: half of it would have locks and thread idents of the other kind."""
    if threading.get_ident is not _get_ident:
        raise Misuse(
            "threads were replaced (monkey-patched, as gevent and eventlet do) after octavo was "
            "imported: do that first of all, before octavo is imported"
        )


def refuse_clock() -> None:
    """Raise Misuse where the time of day is one that no record can have."""
    if wall_clock_ms() < 0:
        raise Misuse("the system's clock is before 1970: set it, and open the store again")


def begin(thread: threading.Thread) -> None:
    """Start a thread that a store cannot do without. Raises StorageFull where none can be."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StorageFull(
            f"no thread can be started ({error}); end some, or raise the limit (ulimit -u, or "
            "pids.max of a container)"
        ) from error
