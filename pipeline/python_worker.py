"""Spark's Python workers: processes that run one task, or plan one read, after the other."""

from __future__ import annotations

import gc
import sys
from functools import cache

from octavo.files.kernels.freed_memory import keep_freed

_DAEMON = "pyspark.daemon"
"""The program that workers are forked from."""


@cache
def settle() -> None:
    """Spare a worker needless work, before it opens anything: the garbage collector need not look
    at what it has loaded by now, and the memory of one batch is kept for the next.

    Spark has the collector look at all objects of a worker after each task. With those of PySpark,
    PyArrow and NumPy that takes 30 to 60 ms, as long as a task of 16 MB itself. It did so after the
    tasks before this one, too, so there is little garbage now. In any other process this does
    nothing.
    """
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _DAEMON:
        gc.freeze()
        keep_freed()
