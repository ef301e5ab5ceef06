"""Spark's Python workers: processes that run one task after the other."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def settle() -> None:
    """At the beginning of a task, before it opens anything: what the process has loaded by now
    stays, and the collector need not look at it again.

    Spark has all objects of a worker looked at after each task: 30 to 60 ms, with what PySpark,
    PyArrow and NumPy are, where a task of 16 MB takes as long itself. It does so after the tasks
    before this one, too, so what is garbage now is little.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
