"""Reading a store with Spark beside Spark reading the same rows from Parquet.

    python scripts/bench/spark_bench.py [--scale 1.0] [--runs 5] [DIRECTORY]

The same session, rows and machine; the two take turns, medians are told. Needs octavo[spark] and
Java. 4 M rows of 100 B and 400 k of 1 KiB at scale 1: some 2 GB of disk.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import octavo
from octavo.pipeline.java import need_java

SHAPES = {"100 B": (4_000_000, 84), "1 KiB": (400_000, 1008)}


def pairs(rows: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys of 16 digits in random order, and values that do not compress."""
    rng = random.Random(20261121)
    numbers = list(range(rows))
    rng.shuffle(numbers)
    blob = rng.randbytes(1 << 20)
    for number in numbers:
        at = number * 37 % (len(blob) - size)
        yield b"%016d" % number, blob[at : at + size]


def session() -> Any:
    """A session of two threads, as an application would set it up."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("octavo bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read_all(frame: Any) -> Callable[[], None]:
    """Every row of every column, to nowhere."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def turns(runs: int, tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each, in turns, after one turn that does not count."""
    took: dict[str, list[float]] = {name: [] for name in tasks}
    for run in range(runs + 1):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            if run:
                took[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in took.items()}


def measured(
    spark: Any, where: str, name: str, rows: int, size: int, runs: int
) -> dict[str, float]:
    """All tasks on one shape of rows."""
    path, parquet = f"{where}/{rows}", f"{where}/{rows}.parquet"
    store = octavo.open(path)
    store.put_many(pairs(rows, size))
    with store.snapshot() as snap:
        began = time.perf_counter()
        made = snap.publish(lease_seconds=86_400)
        print(f"{name}: published in {time.perf_counter() - began:.2f} s")
    store.close()
    ours = spark.read.format("octavo").option("snapshot", made.id)
    columns = ours.option("columns", "key,sqn,value").load(path)
    unchecked = ours.option("columns", "key,sqn,value").option("checksums", "false").load(path)
    keys = ours.option("columns", "key,sqn").load(path)
    columns.write.mode("overwrite").parquet(parquet)
    theirs = spark.read.parquet(parquet)
    group = "substring(hex(key), 29, 2) as g"

    def grouped(frame: Any) -> Callable[[], object]:
        return lambda: frame.selectExpr(group, "sqn").groupBy("g").count().collect()

    return turns(
        runs,
        {
            "Parquet: all": read_all(theirs),
            "Octavo: all": read_all(columns),
            "Octavo: all, checksums=false": read_all(unchecked),
            "Octavo: key, sqn": read_all(keys),
            "Parquet: groupBy": grouped(theirs),
            "Octavo: groupBy": grouped(keys),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    need_java()
    spark = session()
    with tempfile.TemporaryDirectory(dir=given.directory) as where:
        for name, (rows, size) in SHAPES.items():
            count = int(rows * given.scale)
            found = measured(spark, where, name, count, size, given.runs)
            base = {"all": found["Parquet: all"], "groupBy": found["Parquet: groupBy"]}
            for task, seconds in found.items():
                ratio = seconds / base["groupBy" if "groupBy" in task else "all"]
                print(f"{name} x {count:,}: {task:32} {seconds:7.3f} s {ratio:6.2f} of Parquet")
    spark.stop()


if __name__ == "__main__":
    main()
