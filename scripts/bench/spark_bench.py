"""Octavo and Parquet through Spark, same session, rows and machine: reading, grouping, writing;
and what folds cost a store that is being written to.

    python scripts/bench/spark_bench.py [--scale 1.0] [--runs 5] [DIRECTORY]

The two take turns, medians are told. Needs octavo[spark] and Java. 4 M rows of 100 B and 400 k of
1 KiB at scale 1: some 3 GB of disk.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
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
    rows_to_write = theirs.select("key", "value")

    def load() -> None:
        loaded = f"{path}-loaded"
        rows_to_write.write.format("octavo").mode("append").save(loaded)
        shutil.rmtree(loaded)

    def write_parquet() -> None:
        rows_to_write.write.mode("overwrite").parquet(f"{parquet}-again")

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
            "Parquet: write": write_parquet,
            "Octavo: bulk load": load,
        },
    )


# ------------------------------------------------------------------ folds beside a writer


def write_on(path: str) -> None:
    """Put one key after the other until nobody listens; tell how many there are, every 50 ms."""
    value = random.Random(1).randbytes(84)
    with octavo.open(path) as store:
        told = time.perf_counter()
        for number in itertools.count(1):
            store.put(b"%016d" % number, value)
            if number % 64 == 0 and time.perf_counter() - told > 0.05:
                told = time.perf_counter()
                print(f"{told} {number}", flush=True)


def beside_writer(spark: Any, where: str, seconds: float) -> None:
    """Folds of a store that another process writes to at full rate: its rate with and without."""
    path = f"{where}/written"
    command = [sys.executable, __file__, "--writer", path]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen: list[tuple[float, int]] = []

    def listen() -> None:
        for line in writer.stdout or ():
            at, count = line.split()
            seen.append((float(at), int(count)))

    listener = threading.Thread(target=listen)
    listener.start()
    folds = 0
    rates: dict[str, list[float]] = {"alone": [], "beside folds": []}
    try:
        time.sleep(seconds)  # nothing to wait for: the store is to have some rows
        for _ in range(3):
            for what, found in rates.items():
                began, until = len(seen), time.perf_counter() + seconds
                while time.perf_counter() < until:
                    if what == "alone":
                        time.sleep(0.05)
                        continue
                    frame = spark.read.format("octavo").option("columns", "key,sqn").load(path)
                    count, last = frame.selectExpr("count(key)", "max(sqn)").collect()[0]
                    if count != last:
                        raise SystemExit(f"a fold at sqn {last} gave {count} rows")
                    folds += 1
                part = seen[began:]
                found.append((part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0]))
    finally:
        writer.kill()
        writer.wait()
        listener.join()
    alone, beside = (statistics.median(found) for found in rates.values())
    print(
        f"puts a second alone {alone:,.0f}, beside {folds} folds, each of the state at its sqn, "
        f"{beside:,.0f}: {1 - beside / alone:.0%} less"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.writer:
        write_on(given.writer)
        return
    need_java()
    spark = session()
    with tempfile.TemporaryDirectory(dir=given.directory) as where:
        for name, (rows, size) in SHAPES.items():
            count = int(rows * given.scale)
            found = measured(spark, where, name, count, size, given.runs)
            bases = {"groupBy": "Parquet: groupBy", "bulk load": "Parquet: write"}
            for task, seconds in found.items():
                base = bases.get(task.partition(": ")[2], "Parquet: all")
                ratio = seconds / found[task if task in bases.values() else base]
                print(f"{name} x {count:,}: {task:32} {seconds:7.3f} s {ratio:6.2f} of Parquet")
        beside_writer(spark, where, max(10 * given.scale, 3.0))
    spark.stop()


if __name__ == "__main__":
    main()
