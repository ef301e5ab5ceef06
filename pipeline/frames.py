"""DataFrames of published snapshots: what ``snap.df(spark)`` gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.files.errors import Misuse
from octavo.files.later import loading
from octavo.files.unbroken import unbroken
from octavo.pipeline.session import without_spark


def frame(
    spark: Any, store_path: str, id: str, columns: Sequence[str] | None, options: dict[str, Any]
) -> Any:
    """A DataFrame of a published snapshot; ``options`` as the data source takes them, but bytes may
    be given as they are. Raises Misuse if Spark is missing."""
    try:
        with unbroken, loading:
            from octavo.pipeline.source import DefaultSource
    except ImportError as wrong:
        raise without_spark(wrong) from wrong
    if isinstance(columns, str):
        raise Misuse(f"columns={columns!r:.80}: allowed is a list of names")
    for name, given in options.items():
        if name.lower() == "snapshot":
            raise Misuse(f"{name}={given!r:.80}: the frame is of this snapshot")
    known_to(spark, DefaultSource)
    reader = spark.read.format("octavo").option("snapshot", id)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    for name, given in options.items():
        raw = isinstance(given, bytes)
        reader = reader.option(f"{name}Hex" if raw else name, given.hex() if raw else given)
    return reader.load(store_path)


def known_to(spark: Any, source: Any) -> None:
    """Make a data source known to this session."""
    from pyspark.sql import SparkSession

    try:
        spark.dataSource.register(source)
    except Exception as error:  # Spark's
        active = SparkSession.getActiveSession()
        if active is None or "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
        # Spark (4.3) looks in the thread's active session, whichever it then registers in.
        try:
            _make_active(spark)
            spark.dataSource.register(source)
        finally:
            _make_active(active)


def _make_active(spark: Any) -> None:
    """Make a session the one of this thread, as Spark does itself for whoever makes a frame."""
    spark.createDataFrame([], "n int")
