"""One Spark session for the whole run: starting one takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.files.errors import Misuse
from octavo.pipeline.java import need_java
from octavo.pipeline.session import of_version

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    # Where the processor is somebody else's for long, nobody is given up for that.
    "spark.network.timeout": "3600s",
    "spark.python.authenticate.socketTimeout": "3600s",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session of two threads; a task may fail three times. Fails, and says what to
    install, where Spark cannot run: these tests are never skipped."""
    try:
        need_java()
        import pyspark
        from pyspark.sql import SparkSession
    except (Misuse, ImportError) as wrong:
        pytest.fail(f"{wrong}; pip install 'octavo[spark]'", pytrace=False)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    configuration = {**CONFIGURATION, **of_version(pyspark.__version__)}
    builder = SparkSession.builder.master("local[2,4]").appName("octavo")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
