"""What Octavo needs of the interpreter that runs it."""

from __future__ import annotations

import sys
import threading

from octavo.files.errors import Misuse

_get_ident = threading.get_ident


def refuse_unfit() -> None:
    """Raise Misuse where no store can be open in this interpreter."""
    refuse_free_threads()
    refuse_replaced_threads()


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
