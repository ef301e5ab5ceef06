"""Spark and Arrow over published snapshots: sources, folds, bulk load, change feed.

What executors run reads sealed files through files/ and manifest/ only; no actor lives there.
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
