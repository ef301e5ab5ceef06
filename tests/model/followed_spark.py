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
import pickle
import random
import secrets
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from followed_steps import LOADED, digest, loaded_row
from followed_owner import say

from octavo.files.disk import RealDisk
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import pinning
from octavo.pipeline.feed_files import JournalLook
from octavo.pipeline.source import DefaultSource

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.network.timeout": "3600s",
    "spark.python.authenticate.socketTimeout": "3600s",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
LEASE_MS = 3_600_000
LOADED_ROWS = 40


def kept(where: Path, made: Any) -> None:
    """Written as a whole or not at all."""
    half = where.with_name(f"{where.name}.{secrets.token_hex(4)}.half")
    half.write_bytes(pickle.dumps(made))
    os.rename(half, where)


def changes_of(frame: Any) -> list[tuple[int, bytes, bytes, int]]:
    """Rows of a feed, as they come."""
    table = frame.select(
        "_commit_sqn", "_change_type", "bucket", "key", "value", "metadata"
    ).toArrow()
    return [
        (sqn, bucket, key, 0 if kind == "delete" else digest(value, meta))
        for sqn, kind, bucket, key, value, meta in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        )
    ]


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
        self.drain = threading.Event()
        self.batch = threading.Event()
        """Set whenever a batch is done."""
        self.running: dict[str, Any] = {}

    def generation(self, name: str, *, fresh: bool = False) -> int:
        there = len(list(self.work.glob(f"{name}.*.checkpoint")))
        if fresh or not there:
            (self.work / f"{name}.{there}.checkpoint").mkdir()
            there += 1
        return there - 1

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
        # A thread of Python's own has none, and without one Spark finds no source that is registered.
        self.spark._jvm.SparkSession.setActiveSession(self.spark._jsparkSession)
        number = self.generation(name)
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
                why = str(wrong)[-6000:]
                gap = "HistoryCompacted" in why
                say("gap" if gap else "failed", name, why)
                if gap:
                    number = self.generation(name, fresh=True)
                continue
            finally:
                self.batch.set()
            if last:
                return

    def end(self) -> None:
        sys.stdin.readline()
        self.drain.set()
        self.batch.set()
        for query in list(self.running.values()):
            query.stop()


class Reads:
    """What else is done with the store meanwhile."""

    def __init__(self, spark: Any, request: dict[str, Any]) -> None:
        self.spark, self.path = spark, request["source"]
        self.work = Path(request["work"]) / "reads"
        self.work.mkdir(exist_ok=True)
        self.rng = random.Random(request["luck"])
        self.heads = request["heads"]

    def one(self) -> None:
        kinds = ("snapshot",) if self.heads else ("range", "range", "snapshot", "load")
        kind = self.rng.choice(kinds)
        name = secrets.token_hex(6)
        try:
            if kind == "load":
                self.load(name)
                say("loaded", name)
                return
            kept(self.work / f"{name}.{kind}", getattr(self, kind)())
            say("read", kind)
        except Exception as wrong:  # noqa: BLE001 - who started this judges it
            end_with_java()
            say("refused", kind, f"{type(wrong).__name__}: {wrong}"[-6000:])

    def range(self) -> Any:
        look = JournalLook(RealDisk(), self.path)
        newest = look.newest()
        if not newest:
            return 0, 0, []
        last = self.rng.randint(1, newest)
        first = max(1, self.rng.choice((last - 500, last - 20_000, look.horizon + 1)))
        feed = self.spark.read.format("octavo").option("readChangeFeed", True)
        feed = feed.options(startingSqn=first, endingSqn=max(first, last), splitBytes="200k")
        return first - 1, max(first, last), changes_of(feed.load(self.path))

    def snapshot(self) -> Any:
        made = pinning.pin(RealDisk(), self.path, LEASE_MS, wall_clock_ms())
        columns = ["bucket", "key", "sqn", "value", *(["sub_key"] if self.heads else ["metadata"])]
        reader = self.spark.read.format("octavo").options(
            snapshot=made.id, columns=",".join(columns), splitBytes="500k"
        )
        table = reader.load(self.path).select(*columns).toArrow()
        rows = [
            (bucket, key, sqn, digest(value, b"" if self.heads else more))
            for bucket, key, sqn, value, more in zip(
                *(column.to_pylist() for column in table.columns), strict=True
            )
        ]
        return made.sqn, rows

    def load(self, job: str) -> None:
        keys = [LOADED + b"%s/%d" % (job.encode(), n) for n in range(LOADED_ROWS)]
        rows = [(change.key, change.value) for change in map(loaded_row, keys)]
        frame = self.spark.createDataFrame(rows, "key binary, value binary").repartition(2)
        frame.write.format("octavo").mode("append").option("jobId", job).save(self.path)


def session(master: str) -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    from octavo.pipeline.session import of_version

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
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
    spark = session(request["master"])
    say("up")
    following, reads = Following(spark, request), Reads(spark, request)
    names = () if request["heads"] else ("sink", "log")
    threads = [threading.Thread(target=following.follow, args=(name,)) for name in names]
    for thread in (*threads, threading.Thread(target=following.end, daemon=True)):
        thread.start()
    while not following.drain.is_set():
        if names:
            following.batch.wait()
        following.batch.clear()
        reads.one()
    for thread in threads:
        thread.join()
    spark.stop()
    say("drained")


if __name__ == "__main__":
    main()
