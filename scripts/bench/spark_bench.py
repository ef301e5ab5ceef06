"""Octavo and Parquet through Spark, same session, rows and machine: reading, grouping, writing;
and what folds cost a store that is being written to.

    python scripts/bench/spark_bench.py [--scale 1.0] [--runs 5] [DIRECTORY]

The two take turns, and beside them floors: for reads a source that yields batches which are there
already, so what Spark itself takes; for a bulk load a task that sorts the keys, and writes them and
the values to one file with checksums, synced, and nothing else; for folds beside a writer the same
query of as many rows in Parquet, so what any job on those processors takes from the writer. Medians
are told, and CPU time, which a busy machine changes less. Needs octavo[spark] and Java. 4 M rows of
100 B and 400 k of 1 KiB at scale 1: some 4 GB of disk.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
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

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from workload import directory
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo.pipeline.java import need_java

SHAPES = {"100 B": (4_000_000, 84), "1 KiB": (400_000, 1008)}
PARTS = 4
BESIDE = (("local[2]", 2, 0), ("local[1]", 1, 0), ("local[2] at nice 10", 2, 10))


def pairs(rows: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys of 16 digits in random order, and values that do not compress."""
    rng = random.Random(20261121)
    numbers = list(range(rows))
    rng.shuffle(numbers)
    blob = rng.randbytes(1 << 20)
    for number in numbers:
        at = number * 37 % (len(blob) - size)
        yield b"%016d" % number, blob[at : at + size]


def session(threads: int = 2) -> Any:
    """A session of so many threads, as an application would set it up."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{threads}]").appName("octavo bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def seconds_of_processors(without: int = 0) -> float:
    """What the processes below this one have used, those that ended included; without those from
    one on down."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in below(without).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def below(without: int = 0) -> dict[int, list[str]]:
    """What /proc tells of each process below this one, from its state on; without those from one
    on down."""
    found: dict[int, list[str]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            found[int(name)] = file.read().rpartition(") ")[2].split()

    def is_below(number: int) -> bool:
        while number in found and number not in (os.getpid(), without):
            number = int(found[number][1])
        return number == os.getpid()

    return {each: found[each] for each in found if each != os.getpid() and is_below(each)}


class Prebuilt(DataSourceReader):  # type: ignore[misc]  # mypy skips PySpark
    """Yields the batches of an Arrow file: what Spark alone costs."""

    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> list[Any]:
        with pa.memory_map(self.path) as file:
            count = pa.ipc.open_file(file).num_record_batches
        edges = [count * part // PARTS for part in range(PARTS + 1)]
        return [InputPartition(each) for each in itertools.pairwise(edges)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        reader = pa.ipc.open_file(pa.memory_map(self.path))
        return (reader.get_batch(number) for number in range(*partition.value))


class Taken(DataSourceArrowWriter):  # type: ignore[misc]
    """Takes the batches and, given a directory, loads them as cheaply as can be: values as they
    come, then the keys in their order and where each one's value is; checksums, one sync."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self.directory:
            collections.deque(iterator, maxlen=0)
            return WriterCommitMessage()
        with tempfile.NamedTemporaryFile(dir=self.directory, buffering=0) as file:
            sums, keys, rows = [], [], 0
            for batch in iterator:
                rows += batch.num_rows
                _, _, found = batch.column("key").buffers()
                keys.append(np.frombuffer(found, np.uint8).copy())  # the batch's memory goes
                _, ends, values = batch.column("value").buffers()
                for buffer in (ends, values):
                    file.write(buffer)
                    sums.append(xxh3(buffer))
            if rows:
                strings = np.concatenate(keys).reshape(rows, -1)
                order = sorted_rows(strings)
                for column in (strings.view(f"V{strings.shape[1]}")[order], order):
                    file.write(column.data)
                    sums.append(xxh3(column))
            file.write(np.array(sums, np.uint64).data)
            os.fdatasync(file.fileno())
        return WriterCommitMessage()


def sorted_rows(strings: Any) -> Any:
    """Numbers of the rows of an array of bytes in their order: as words, without those that are the
    same in all rows. The rows have a length that eight divides."""
    words = strings.view(">u8").astype(np.uint64)
    words = words[:, (words != words[0]).any(axis=0)]
    return np.argsort(words[:, 0]) if words.shape[1] == 1 else np.lexsort(words.T[::-1])


class Floor(DataSource):  # type: ignore[misc]
    """A data source that has nothing to do."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return str(self.options["ddl"])

    def reader(self, schema: Any) -> DataSourceReader:
        return Prebuilt(self.options["path"])

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Taken(self.options.get("path", ""))


def floor(spark: Any, parquet: str, columns: list[str]) -> Any:
    """A frame of these columns of a Parquet file, as batches of 4 MiB that are there already."""
    import pyarrow.parquet as pq

    kinds = {"key": pa.binary(), "sqn": pa.int64(), "value": pa.binary()}
    table = pq.read_table(parquet, columns=columns)
    fields = [pa.field(name, kinds[name], nullable=False) for name in columns]
    table = table.cast(pa.schema(fields)).combine_chunks()
    rows = min(max(table.num_rows * (4 << 20) // table.nbytes, 1), 1 << 15)
    path = f"{parquet}-{len(columns)}.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=rows)
    types = {"sqn": "bigint"}
    ddl = ", ".join(f"{name} {types.get(name, 'binary')} NOT NULL" for name in columns)
    return spark.read.format("floor").option("ddl", ddl).load(path)


def read_all(frame: Any) -> Callable[[], None]:
    """Every row of every column, to nowhere."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def turns(runs: int, tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each, in turns, after one turn that does not count."""
    took: dict[str, list[float]] = {name: [] for name in tasks}
    used: dict[str, list[float]] = {name: [] for name in tasks}
    for run in range(runs + 1):
        for name, task in tasks.items():
            began, before = time.perf_counter(), seconds_of_processors()
            task()
            if run:
                took[name].append(time.perf_counter() - began)
                used[name].append(seconds_of_processors() - before)
    for name, found in used.items():
        print(f"  {name:35} {statistics.median(found):7.2f} s of CPU in Spark and its workers")
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
    keys_alone = ours.option("columns", "key").load(path)
    columns.write.mode("overwrite").parquet(parquet)
    theirs = spark.read.parquet(parquet)
    floor_all = floor(spark, parquet, ["key", "sqn", "value"])
    floor_keys = floor(spark, parquet, ["key", "sqn"])
    floor_keys_alone = floor(spark, parquet, ["key"])
    rows_to_write = theirs.select("key", "value")

    def load() -> None:
        loaded = f"{path}-loaded"
        rows_to_write.write.format("octavo").mode("append").save(loaded)
        shutil.rmtree(loaded)

    def taken(directory: str) -> Callable[[], None]:
        return lambda: rows_to_write.write.format("floor").mode("append").save(directory)

    def write_parquet() -> None:
        rows_to_write.write.mode("overwrite").parquet(f"{parquet}-again")

    group = "substring(hex(key), 29, 2) as g"

    def grouped(frame: Any) -> Callable[[], object]:  # of what Spark need read: Parquet's chooses
        return lambda: frame.selectExpr(group).groupBy("g").count().collect()

    return turns(
        runs,
        {
            "Parquet: all": read_all(theirs),
            "floor: all": read_all(floor_all),
            "Octavo: all": read_all(columns),
            "Octavo: all, checksums=false": read_all(unchecked),
            "floor: key, sqn": read_all(floor_keys),
            "Octavo: key, sqn": read_all(keys),
            "Parquet: groupBy": grouped(theirs),
            "floor: groupBy": grouped(floor_keys_alone),
            "Octavo: groupBy": grouped(keys_alone),
            "Parquet: write": write_parquet,
            "floor: batches thrown away": taken(""),
            "floor: keys sorted, written, synced": taken(where),
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


def make_nice(number: int) -> None:
    """Lower the priority of the processes below this one, as if Spark had been started so. Threads
    and workers to come have it from those that make them."""
    for process in below():
        for thread in os.listdir(f"/proc/{process}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), number)


def beside_writer(spark: Any, name: str, where: str, seconds: float, nice: int) -> None:
    """Folds of a store that another process writes to at full rate: its rate with and without, and
    with the same query of as many rows in Parquet."""
    make_nice(nice)
    path, parquet = f"{where}/{name}", f"{where}/state.parquet"
    command = [sys.executable, __file__, "--writer", path]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen: list[tuple[float, int]] = []

    def listen() -> None:
        for line in writer.stdout or ():
            at, count = line.split()
            seen.append((float(at), int(count)))

    listener = threading.Thread(target=listen)
    listener.start()
    store = spark.read.format("octavo").option("columns", "key,sqn")
    took: dict[str, list[tuple[float, float]]] = {"folds": [], "reads of Parquet": []}

    def query(what: str) -> None:
        began, before = time.perf_counter(), seconds_of_processors(writer.pid)
        frame = store.load(path) if what == "folds" else spark.read.parquet(parquet)
        count, last = frame.selectExpr("count(key)", "max(sqn)").collect()[0]
        if count != last:
            raise SystemExit(f"{what}: at sqn {last} there were {count} rows")
        used = seconds_of_processors(writer.pid) - before
        took[what].append((time.perf_counter() - began, used))

    rates: dict[str, list[float]] = {"alone": [], **{what: [] for what in took}}
    try:
        time.sleep(seconds)  # nothing to wait for: the store is to have some rows
        query("folds")  # which starts Spark's workers
        took["folds"].clear()
        for _ in range(3):
            for what, found in rates.items():
                if what == "reads of Parquet":
                    store.load(path).write.mode("overwrite").parquet(parquet)
                began, until = len(seen), time.perf_counter() + seconds
                while time.perf_counter() < until:
                    if what == "alone":
                        time.sleep(0.05)
                    else:
                        query(what)
                part = seen[began:]
                found.append((part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0]))
    finally:
        writer.kill()
        writer.wait()
        listener.join()
    alone = statistics.median(rates["alone"])
    print(f"{name}: puts a second alone {alone:,.0f}")
    for what, runs in took.items():
        beside = statistics.median(rates[what])
        lost, (each, used) = 1 - beside / alone, map(statistics.median, zip(*runs, strict=True))
        print(
            f"  beside {len(runs)} {what} one after the other {beside:,.0f}: {lost:.0%} less; one "
            f"takes {each:.2f} s, {used:.2f} s of CPU, and costs what {lost * each:.2f} s of "
            "writing bring"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=directory, nargs="?", help="where stores are made")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.writer:
        write_on(given.writer)
        return
    need_java()
    spark = session()
    spark.dataSource.register(Floor)
    with tempfile.TemporaryDirectory(dir=given.directory) as where:
        for name, (rows, size) in SHAPES.items():
            count = int(rows * given.scale)
            found = measured(spark, where, name, count, size, given.runs)
            written = ("bulk load", "batches thrown away", "keys sorted, written, synced")
            bases = {"groupBy": "Parquet: groupBy", **dict.fromkeys(written, "Parquet: write")}
            floors = {"bulk load": "keys sorted, written, synced", "all, checksums=false": "all"}
            for task, seconds in found.items():
                who, _, what = task.partition(": ")
                base = bases.get(what, "Parquet: all")
                ratio = seconds / found[task if task in bases.values() else base]
                line = f"{name} x {count:,}: {task:35} {seconds:7.3f} s {ratio:6.2f} of Parquet"
                if who == "Octavo":
                    least = found[f"floor: {floors.get(what, what)}"]
                    line += f", {seconds / least:5.2f} of its floor's {least:.3f} s"
                print(line)
        for name, threads, nice in BESIDE:
            spark.stop()
            spark = session(threads)
            beside_writer(spark, name, where, max(10 * given.scale, 3.0), nice)
        spark.stop()


if __name__ == "__main__":
    main()
