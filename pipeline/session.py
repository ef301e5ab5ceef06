"""A Spark session of this machine's processors, for commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octavo.files.door.processors import usable_processors
from octavo.files.errors import Misuse
from octavo.pipeline.java import have_java

CONFIGURATION = {
    "spark.api.mode": "classic",  # which is not the default where pyspark-connect is installed
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(2 * usable_processors()),
}


def of_version(version: str) -> dict[str, str]:
    """What a version of Spark wants set otherwise: before 4.3 streams that are read by Python find
    no worker through a Unix socket."""
    if version.startswith("4.2."):
        return {"spark.python.unix.domain.socket.enabled": "false"}
    return {}


def without_spark(wrong: ImportError) -> Misuse:
    """The error for a Spark that cannot be imported."""
    return Misuse(f"Spark is missing, or older than 4.2 ({wrong}): pip install 'octavo[spark]'")


@contextmanager
def spark_session(master: str, tell: Callable[[str], None]) -> Iterator[Any]:
    """The active session; where there is none, one that ends with the block.

    ``tell`` hears of a Java that is installed. Raises Misuse that says what to install, or
    why Spark does not start.
    """
    try:
        import pyspark
        import pyspark.sql.streaming.datasource  # which is there from 4.2 on
        from pyspark.sql import SparkSession
    except ImportError as wrong:
        raise without_spark(wrong) from None
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if "SPARK_REMOTE" in os.environ:
        raise Misuse(
            f"SPARK_REMOTE={os.environ['SPARK_REMOTE']!r}: this starts a Spark of its own, with a "
            "master, and does not work through Spark Connect; unset SPARK_REMOTE"
        )
    have_java(tell)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    configuration = {**CONFIGURATION, **of_version(pyspark.__version__)}
    builder = SparkSession.builder.master(master).appName("octavo")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as wrong:  # Spark's, or of its bridge to Java
        told = str(wrong).partition("\n")[0]
        raise Misuse(f"Spark cannot be started with master {master!r}: {told}") from wrong
    try:
        yield session
    finally:
        session.stop()
