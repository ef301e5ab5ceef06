"""Octavo on Spark: the data source ``octavo``, folds, bulk load, change feed, closed stores.

``fold`` folds over a snapshot by many tasks; ``rebuild``, ``merge`` and ``compact`` do the
background work of a closed store by many. What executors run reads sealed files through files/ and
manifest/ only; no actor lives there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from octavo.files.later import loading
from octavo.files.unbroken import unbroken

__all__ = ["compact", "fold", "merge", "rebuild"]

_WHERE = {
    "compact": "offline_journal", "fold": "folding", "merge": "offline", "rebuild": "offline",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Lazy: most of this room needs pyspark.
    if name not in _WHERE:
        raise AttributeError(f"module 'octavo.pipeline' has no attribute {name!r}")
    with unbroken, loading:
        return getattr(import_module(f"octavo.pipeline.{_WHERE[name]}"), name)
