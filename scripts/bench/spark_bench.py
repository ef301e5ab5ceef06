"""Compares Octavo and Parquet through Spark, in one session, over the same rows: reading, grouping,
writing; and measures what folds cost a store that is being written to.

    python scripts/bench/spark_bench.py [--scale 1.0] [--runs 5] [--part PART ...] [DIRECTORY]

The two take turns, along with floors. For reads, the floor is a source that yields ready-made
batches: what Spark itself takes. For a bulk load, it is a task that sorts the keys, writes them and
the values to one file with checksums, syncs it, and does nothing else. For folds beside a writer,
it is the same query of as many rows in Parquet, and of ready-made batches: what any job, and any
source in Python, takes from the writer on those processors. A turn begins when all that was written
before is on disk, and what it wrote is removed at its end, so no turn pays for another's. Parquet's
write syncs nothing; how long it takes until its files are synced is reported, too.

Reports medians and, for each task, the median of its ratios to others in the same turns: by time,
and by CPU time, which a busy machine changes less. Needs octavo[spark] and Java. Scale 1 is 4 M
rows of 100 B and 400 k of 1 KiB: some 4 GB of disk, and with three runs some 3 minutes a part.
"""

from __future__ import annotations

import argparse
import collections
import glob
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
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
from spark_turns import Cost, Task, make_nice, seconds_of_processors, session, sync, tell, turns
from workload import directory
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo.pipeline.java import need_java
from octavo.pipeline.partitions import split_of
from octavo.pipeline.python_worker import settle

SHAPES = {"100 B": (4_000_000, 84), "1 KiB": (400_000, 1008)}
BESIDE = {"local[2]": (2, 0), "local[1]": (1, 0), "local[2] at nice 10": (2, 10)}
"""Folds beside a writer: threads of Spark, and its niceness."""


def pairs(rows: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys of 16 digits in random order, and values that do not compress."""
    rng = random.Random(20261121)
    numbers = list(range(rows))
    rng.shuffle(numbers)
    blob = rng.randbytes(1 << 20)
    for number in numbers:
        at = number * 37 % (len(blob) - size)
        yield b"%016d" % number, blob[at : at + size]


class Prebuilt(DataSourceReader):  # type: ignore[misc]  # mypy skips PySpark
    """Yields the batches of an Arrow file, in tasks as large as Octavo's: what Spark costs."""

    def __init__(self, path: str, rows: int) -> None:
        self.path, self.rows = path, rows

    def partitions(self) -> list[Any]:
        with pa.memory_map(self.path) as file:
            count, size = pa.ipc.open_file(file).num_record_batches, file.size()
        parts = max(round(size / split_of(size, self.rows)), 1)
        edges = [count * part // parts for part in range(parts + 1)]
        return [InputPartition(each) for each in itertools.pairwise(edges)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        settle()
        reader = pa.ipc.open_file(pa.memory_map(self.path))
        return (reader.get_batch(number) for number in range(*partition.value))


class Taken(DataSourceArrowWriter):  # type: ignore[misc]
    """Takes the batches and, given a directory, loads them as cheaply as can be: values as they
    come, then the keys in their order and where each one's value is; checksums, one sync."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
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
    """The numbers of an array's rows of bytes, sorted by the rows: these are compared as words,
    without words that are the same in all rows. Rows have a length that eight divides."""
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
        return Prebuilt(self.options["path"], int(self.options["rows"]))

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
    frame = spark.read.format("floor").option("ddl", ddl).option("rows", table.num_rows)
    return frame.load(path)


def read_all(frame: Any) -> Callable[[], None]:
    """Every row of every column, to nowhere."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def measured(spark: Any, where: str, name: str, rows: int, size: int, runs: int) -> None:
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
    loaded, again = f"{path}-loaded", f"{parquet}-again"

    def load() -> None:
        rows_to_write.write.format("octavo").mode("append").save(loaded)

    def taken(directory: str) -> Callable[[], None]:
        return lambda: rows_to_write.write.format("floor").mode("append").save(directory)

    def write_parquet() -> None:
        rows_to_write.write.parquet(again)

    def write_and_sync_parquet() -> None:
        write_parquet()
        for file in (*glob.iglob(f"{again}/*.parquet"), again):
            sync(file)

    group = "substring(hex(key), 29, 2) as g"

    def grouped(frame: Any) -> Callable[[], object]:  # of what Spark need read: Parquet's chooses
        return lambda: frame.selectExpr(group).groupBy("g").count().collect()

    whole, write, fit = "Parquet: all", "Parquet: write", "floor: keys sorted, written, synced"
    tasks = {
        whole: Task(read_all(theirs)),
        "floor: all": Task(read_all(floor_all), (whole,)),
        "Octavo: all": Task(read_all(columns), (whole, "floor: all")),
        "Octavo: all, checksums=false": Task(read_all(unchecked), (whole, "floor: all")),
        "floor: key, sqn": Task(read_all(floor_keys), (whole,)),
        "Octavo: key, sqn": Task(read_all(keys), (whole, "floor: key, sqn")),
        "Parquet: groupBy": Task(grouped(theirs)),
        "floor: groupBy": Task(grouped(floor_keys_alone), ("Parquet: groupBy",)),
        "Octavo: groupBy": Task(grouped(keys_alone), ("Parquet: groupBy", "floor: groupBy")),
        write: Task(write_parquet, (), again),
        f"{write}, then synced": Task(write_and_sync_parquet, (write,), again),
        "floor: batches thrown away": Task(taken(""), (write,)),
        fit: Task(taken(where), (write,)),
        "Octavo: bulk load": Task(load, (write, f"{write}, then synced", fit), loaded),
    }
    tell(f"{name} x {rows:,}", tasks, turns(runs, tasks))


# ------------------------------------------------------------------ folds beside a writer


def write_on(path: str) -> None:
    """Put one key after the other until nobody listens; print how many there are, every 50 ms."""
    value = random.Random(1).randbytes(84)
    with octavo.open(path) as store:
        told = time.perf_counter()
        for number in itertools.count(1):
            store.put(b"%016d" % number, value)
            if number % 64 == 0 and time.perf_counter() - told > 0.05:
                told = time.perf_counter()
                print(f"{told} {number}", flush=True)


class Writer:
    """Another process that puts all the time."""

    def __init__(self, path: str) -> None:
        command = [sys.executable, __file__, "--writer", path]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._seen: list[tuple[float, int]] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            at, count = line.split()
            self._seen.append((float(at), int(count)))

    def rate_beside(self, query: Callable[[], object], seconds: float) -> float:
        """Puts a second while a query runs again and again for so long."""
        began, until = len(self._seen), time.perf_counter() + seconds
        while time.perf_counter() < until:
            query()
        (first, before), *_, (last, after) = self._seen[began:]
        return (after - before) / (last - first)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join()


def beside_writer(spark: Any, name: str, where: str, seconds: float, runs: int, nice: int) -> None:
    """Folds of a store that another process writes to at full rate: that one's rate with and
    without them, and with the same query of as many rows in Parquet, and of batches that are there
    already."""
    make_nice(nice)
    path, parquet = f"{where}/{name}", f"{where}/state.parquet"
    store = spark.read.format("octavo").option("columns", "key,sqn")
    frames: dict[str, Callable[[], Any]] = {
        "folds": lambda: store.load(path),
        "reads of Parquet": lambda: spark.read.parquet(parquet),
        "reads of batches": lambda: batches,
    }
    took: dict[str, list[Cost]] = {what: [] for what in frames}
    lost: dict[str, list[float]] = {what: [] for what in frames}
    alone = []

    def query(what: str) -> None:
        began, before = time.perf_counter(), seconds_of_processors(writer.process.pid)
        count, last = frames[what]().selectExpr("count(key)", "max(sqn)").collect()[0]
        if count != last:
            raise SystemExit(f"{what}: at sqn {last} there were {count} rows")
        used = seconds_of_processors(writer.process.pid) - before
        took[what].append(Cost(time.perf_counter() - began, used))

    writer = Writer(path)
    try:
        time.sleep(seconds)  # nothing to wait for: the store is to have some rows
        query("folds")  # which starts Spark's workers
        took["folds"].clear()
        for _ in range(runs):
            alone.append(writer.rate_beside(lambda: time.sleep(0.05), seconds))
            for what, found in lost.items():
                if what == "reads of Parquet":
                    store.load(path).write.mode("overwrite").parquet(parquet)
                    batches = floor(spark, parquet, ["key", "sqn"])
                rate = writer.rate_beside(partial(query, what), seconds)
                found.append(1 - rate / alone[-1])
    finally:
        writer.end()
    print(f"{name}: puts a second alone {statistics.median(alone):,.0f}")
    for what, found in lost.items():
        each, used = map(statistics.median, zip(*took[what], strict=True))
        share = statistics.median(found)
        print(
            f"  beside {len(took[what])} {what} one after the other {share:.0%} less ("
            f"{min(found):.0%} to {max(found):.0%}); one takes {each:.2f} s, {used:.2f} s of CPU, "
            f"and costs what {share * each:.2f} s of writing bring"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=directory, nargs="?", help="where stores are made")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parts = [*SHAPES, *BESIDE]
    parser.add_argument("--part", choices=parts, action="append", help="of all these, only")
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.writer:
        write_on(given.writer)
        return
    need_java()
    chosen = [part for part in parts if part in (given.part or parts)]  # those at nice come last
    with tempfile.TemporaryDirectory(dir=given.directory) as where:
        for part in chosen:
            threads, nice = BESIDE.get(part, (2, 0))
            spark = session(threads)
            spark.dataSource.register(Floor)
            if part in SHAPES:
                rows, size = SHAPES[part]
                measured(spark, where, part, int(rows * given.scale), size, given.runs)
            else:
                seconds = max(6 * given.scale, 3.0)
                beside_writer(spark, part, where, seconds, given.runs, nice)
            spark.stop()


if __name__ == "__main__":
    main()
