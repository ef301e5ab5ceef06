"""A program that tests start: Spark that follows a store, by two streams, and reads it meanwhile.

    python followed_spark.py REQUEST

The stream "sink" goes into a second store, "log" by foreachBatch to files: of each batch what was
told. Where compaction took away what a stream was to read, it begins anew, with a new checkpoint
and target. What it says on standard output is a JSON list each line

    ["up"]                    Spark is there
    ["begun", stream, generation]
    ["batch", number]         one of the log's
    ["failed", stream, why]   and is begun again
    ["gap", stream, why]      the same, but from the beginning
    ["read", kind]            a read of a range, or of a snapshot, which is in a file
    ["refused", kind, why]    such a read failed
    ["loaded", job]           keys were written into the store that is followed
    ["drained"]               on request, a line of standard input: both have come to the end
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from followed_owner import say
from followed_reads import Reads, generation, kept, row
from followed_steps import Change

from octavo.pipeline.source import DefaultSource

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.network.timeout": "3600s",
    "spark.python.authenticate.socketTimeout": "3600s",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def lines_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame, as they come."""
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


def changes_of(frame: Any) -> list[tuple[int, bytes, bytes, int]]:
    """Rows of a feed."""
    columns = ("_commit_sqn", "_change_type", "bucket", "key", "value", "metadata")
    return [row(**line) for line in lines_of(frame.select(*columns))]


def end_with_java() -> None:
    """Without Spark's Java nothing can be done any more."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    try:
        gateway.proc.wait(1)
    except subprocess.TimeoutExpired:
        return
    os._exit(1)


class Following:
    """Both streams, each on a thread of its own."""

    def __init__(self, spark: Any, request: dict[str, Any]) -> None:
        self.spark, self.request = spark, request
        self.work = Path(request["work"])
        self.stop, self.drain = threading.Event(), threading.Event()
        self.batch = threading.Event()
        """Set whenever a batch is done."""
        self.running: dict[str, Any] = {}

    def start(self, name: str, number: int, now: bool) -> Any:
        options = self.request[name]
        feed = self.spark.readStream.format("octavo").option("readChangeFeed", True)
        if "consumerId" in options:
            options = options | {"consumerId": f"{name}.{number}"}
        frame = feed.options(**options).load(self.request["source"])
        place = self.work / f"{name}.{number}"
        writer = frame.writeStream.option("checkpointLocation", f"{place}.checkpoint")
        writer = writer.trigger(availableNow=True) if now else writer
        say("begun", name, number)
        if name == "sink":
            return writer.format("octavo").start(f"{place}.target")
        folder = Path(f"{place}.batches")
        folder.mkdir(exist_ok=True)

        def take(batch: Any, id: int) -> None:
            attempt = len(list(folder.glob(f"{id}.*.rows")))
            kept(folder / f"{id}.{attempt}.rows", changes_of(batch))
            say("batch", id)
            self.batch.set()

        return writer.foreachBatch(take).start()

    def follow(self, name: str) -> None:
        # A thread of its own has none, and without one Spark finds no source that is registered.
        self.spark._jvm.SparkSession.setActiveSession(self.spark._jsparkSession)
        number = generation(self.work, name)
        while True:
            last = self.drain.is_set()
            try:
                query = self.start(name, number, last or self.request["now"])
                self.running[name] = query
                if self.drain.is_set() and not last:
                    query.stop()
                query.awaitTermination()
            except Exception as wrong:  # noqa: BLE001 - who started this judges it
                end_with_java()
                why = str(wrong)
                gap = "HistoryCompacted" in why
                say("gap" if gap else "failed", name, why)
                if gap:
                    number = generation(self.work, name, fresh=True)
                continue
            finally:
                self.batch.set()
            if last:
                return

    def listen(self) -> None:
        sys.stdin.readline()
        self.stop.set()
        self.batch.set()

    def end(self) -> None:
        """Have the streams come to the end of what there is by now."""
        self.drain.set()
        for query in list(self.running.values()):
            query.stop()


class SparkReads(Reads):
    """The same by Spark."""

    def __init__(self, spark: Any, request: dict[str, Any]) -> None:
        super().__init__(request)
        self.spark = spark

    def failed(self) -> None:
        end_with_java()

    def changes(self, options: dict[str, Any]) -> list[Any]:
        feed = self.spark.read.format("octavo").option("readChangeFeed", True)
        return changes_of(feed.options(**options).load(self.path))

    def rows(self, made: Any, columns: list[str]) -> list[dict[str, Any]]:
        options = {"snapshot": made.id, "columns": ",".join(columns), "splitBytes": "500k"}
        reader = self.spark.read.format("octavo").options(**options)
        return lines_of(reader.load(self.path).select(*columns))

    def write(self, changes: list[Change], job: str) -> None:
        rows = [(change.key, change.value) for change in changes]
        frame = self.spark.createDataFrame(rows, "key binary, value binary").repartition(2)
        frame.write.format("octavo").mode("append").option("jobId", job).save(self.path)


def home_of(pyspark: str, work: Path) -> Path:
    """Spark's programs as they are, and a place for its executors' logs that goes with the case."""
    home = work / "spark"
    home.mkdir(exist_ok=True)
    for entry in os.scandir(pyspark):
        if entry.name != "work" and not (home / entry.name).exists():
            (home / entry.name).symlink_to(entry.path)
    return home


def session(master: str, work: Path) -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    from octavo.pipeline.session import of_version

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_HOME"] = str(home_of(os.path.dirname(pyspark.__file__), work))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    configuration = CONFIGURATION | of_version(pyspark.__version__)
    configuration["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    builder = SparkSession.builder.master(master).appName("octavo")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.dataSource.register(DefaultSource)
    return made


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = session(request["master"], Path(request["work"]))
    say("up")
    following, reads = Following(spark, request), SparkReads(spark, request)
    names = () if request["heads"] else ("sink", "log")
    threads = [threading.Thread(target=following.follow, args=(name,)) for name in names]
    for thread in (*threads, threading.Thread(target=following.listen, daemon=True)):
        thread.start()
    while not following.stop.is_set():
        if names:
            following.batch.wait()
        following.batch.clear()
        reads.one()
    following.end()
    for thread in threads:
        thread.join()
    spark.stop()
    say("drained")


if __name__ == "__main__":
    main()
