"""A program that tests start: a stream into a store, whose Spark is killed behind a commit.

    python killed_sink.py SOURCE TARGET CHECKPOINT

Python that runs ``commit`` of the sink kills, once the store has taken the batch in, the driver's
Java and so everything: Spark never learns that the batch was committed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from octavo.pipeline.source import DefaultSource
from octavo.pipeline.writing import StreamSink, checked


def main(source: str, target: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[1]").appName("killed")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

    class Killed(StreamSink):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
            import signal

            StreamSink.commit(self, messages, batchId)
            os.kill(java, signal.SIGKILL)
            os._exit(1)

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "octavo-killed"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            from octavo.pipeline import commit

            options = checked(self.options, schema)
            commit.made_store(options.path)
            return Killed(options)

    spark.dataSource.register(Source)
    spark.dataSource.register(DefaultSource)
    feed = spark.readStream.format("octavo").option("readChangeFeed", True).load(source)
    writer = feed.writeStream.format("octavo-killed").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(target).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
