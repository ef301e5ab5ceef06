"""What Octavo needs of the interpreter that runs it."""

from __future__ import annotations

import sys

from octavo.files.errors import Misuse


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
