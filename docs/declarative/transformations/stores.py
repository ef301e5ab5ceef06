"""A snapshot of one store as a view, and its changes into another store."""

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

INTO = os.path.abspath(os.environ["OCTAVO_INTO"])
spark = SparkSession.getActiveSession()


@dp.materialized_view
def files() -> Any:
    """Every key of the store, its size and its group, as of this run."""
    reader = spark.read.format("octavo").option("bucket", "").option("columns", "key,size,metadata")
    return reader.load(f"{INTO}/store")


dp.create_sink("mirror", "octavo", {"path": f"{INTO}/mirror"})


@dp.append_flow(target="mirror")
def changes() -> Any:
    """What changed since the last run; in the first one, all that is there."""
    reader = spark.readStream.format("octavo").option("readChangeFeed", True)
    return reader.load(f"{INTO}/store")
