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
    """Before a worker opens anything: what it has loaded by now stays, and the collector need not
    look at it again; and the memory of one batch is kept for the next.

    Spark has all objects of a worker looked at after each task: 30 to 60 ms, with what PySpark,
    PyArrow and NumPy are, where a task of 16 MB takes as long itself. It does so after the tasks
    before this one, too, so what is garbage now is little. Nothing is done in another process.
    """
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _DAEMON:
        gc.freeze()
        keep_freed()
