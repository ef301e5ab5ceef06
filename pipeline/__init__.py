"""Spark and Arrow over published snapshots: sources, folds, bulk load, change feed.

What executors run reads sealed files through files/ and manifest/ only; no actor lives there.
"""

from __future__ import annotations

from typing import Any

from octavo.files.later import loading
from octavo.files.unbroken import unbroken

__all__ = ["compact", "fold", "merge", "rebuild"]


def __getattr__(name: str) -> Any:
    # Lazy: most of this room needs pyspark.
    if name == "fold":
        with unbroken, loading:
            from octavo.pipeline.folding import fold
        return fold
    if name in ("merge", "rebuild"):
        with unbroken, loading:
            from octavo.pipeline import offline
        return getattr(offline, name)
    if name == "compact":
        with unbroken, loading:
            from octavo.pipeline.offline_journal import compact
        return compact
    raise AttributeError(f"module 'octavo.pipeline' has no attribute {name!r}")
