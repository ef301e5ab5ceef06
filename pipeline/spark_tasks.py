"""Tasks of a Spark session: on its context or, through Spark Connect, as a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from octavo.files.errors import Misuse

T = TypeVar("T")
R = TypeVar("R")
_CONNECT = "pyspark.sql.connect."
_PROBE_ROWS = 1 << 16


def session_of(spark: Any) -> Any:
    """The session; where None is given, the active one. Raises Misuse where there is none."""
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
    if spark is None:
        raise Misuse("there is no active Spark session: give one as spark=")
    return spark


def is_remote(spark: Any) -> bool:
    """Whether it is a session of Spark Connect."""
    return type(spark).__module__.startswith(_CONNECT)


def parallelism(spark: Any) -> int:
    """How many tasks run at once, as Spark counts. Through Spark Connect this takes a job."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    numbers = spark.range(_PROBE_ROWS).selectExpr("spark_partition_id() as part")
    return int(numbers.distinct().count())


def results(spark: Any, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """What ``work`` gives for each of ``tasks``, in their order; each is a task of Spark's. Raises
    what one raised, as Spark reports it."""
    if not tasks:
        return []
    if not is_remote(spark):
        return list(spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect())
    from pyspark.serializers import CPickleSerializer  # as a context sends results

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                told = CPickleSerializer().dumps(work(tasks[number]))
                columns = [pa.array([number]), pa.array([told], pa.binary())]
                yield pa.record_batch(columns, ["task", "told"])

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(run, "task bigint, told binary").collect()
    return [CPickleSerializer().loads(bytes(row.told)) for row in sorted(rows)]
