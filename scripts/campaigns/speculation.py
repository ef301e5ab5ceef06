"""Copies of slow tasks that Spark itself starts: loads, streams and work on a closed store.

Each case starts a Spark of two executors, on two addresses of this machine, since Spark starts a
copy of a task only where no attempt of it runs yet. One task of each job is slow, for no set time:
attempts wait for what others have done, in one of these ways

    stalled     the first attempt stands still within its work; the copy counts
    woken       the same, but it goes on as soon as the job is over, until Spark ends it
    overtaken   the first attempt has done its work but not said so; the copy counts
    too late    the copy has done its work but not said so; the first attempt counts
    both        the first attempt goes on as the copy says that it is done

A job must give what it gives without copies, and nothing may be left of attempts that do not count,
except of one that is woken after the end: its files are swept by age.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from whole_store import NEVER_MS, rolled

import octavo
import octavo.pipeline
from octavo.files.door.disk import RealDisk
from octavo.pipeline import offline, offline_journal

CASE_SECONDS = 1800
ROOT = Path(__file__).resolve().parent.parent.parent
WAYS = ("stalled", "woken", "overtaken", "too late", "both")
WORKS = ("load", "stream", "compact", "rebuild", "merge")
JOBS_A_CASE = 12
ROWS = 20_000
KEYS = ROWS - 999
PLAIN = (f"cast('k' || id % {KEYS} as binary) key", "cast('v' || id as binary) value")
MIXED = (
    PLAIN[0],
    f"cast('b' || id % {KEYS} % 3 as binary) bucket",
    "if(id % 7 = 3, null, cast('v' || id as binary)) value",
    "if(id % 5 = 1, cast('m' || id as binary), null) metadata",
    f"if(id % 11 = 5, timestamp_millis({NEVER_MS}), null) expires_at",
    "-id turn",
)
"""Rows of every kind: puts of three buckets, some with metadata or an expiry, and deletes."""
SLOW = 1
"""The slow partition, which gets a copy. There are others, since a copy is made once some are
done."""
WAIT_SECONDS = 600.0
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.network.timeout": "3600s",
    "spark.python.authenticate.socketTimeout": "3600s",
    "spark.python.task.killTimeout": "100ms",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.2",
    "spark.speculation.efficiency.enabled": "false",
}


def case(seed: int, number: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="octavo-copies-") as work:
        done = subprocess.run(
            [sys.executable, __file__, work, f"{seed} {number}"],
            env=environment(), capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not told:
        raise AssertionError(f"{done.stdout[-1000:]}\n{done.stderr[-4000:]}")
    return {str(name): int(count) for name, count in json.loads(told[-1]).items()}


def environment() -> dict[str, str]:
    """The environment of this file as a program: it and its tasks find the tests' modules."""
    paths = [str(ROOT / "tests" / folder) for folder in ("model", "pipeline")]
    return os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, sys.path)]),
    }


# ---------------------------------------------------------------- a Spark of two addresses


def session(work: Path) -> Any:
    """Spark's own master and two workers within the driver's process; each starts an executor."""
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = os.pathsep.join(path for path in sys.path[1:] if path)
    configuration = {**CONFIGURATION, "spark.executorEnv.PYTHONPATH": paths}
    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(configuration.items())))
    java, gateway = SparkContext._jvm, SparkContext._gateway
    assert java is not None
    assert gateway is not None
    told = java.org.apache.spark.SparkConf()
    for name in ("spark.master.rest.enabled", "spark.ui.enabled", "spark.worker.ui.enabled"):
        told.set(name, "false")
    for name in ("spark.master.ui.port", "spark.worker.ui.port"):
        told.set(name, "0")
    deploy = java.org.apache.spark.deploy
    started = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, told)
    master = f"spark://127.0.0.1:{started._1().address().port()}"
    masters = gateway.new_array(java.java.lang.String, 1)
    masters[0] = master
    nothing = getattr(getattr(java.scala, "None$"), "MODULE$")
    for number in (1, 2):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{number}", 0, 0, 1, 600, masters, str(work / f"worker{number}"),
            java.scala.Some(number), told, nothing,
        )  # fmt: skip
    builder = SparkSession.builder.master(master).appName("octavo")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# ---------------------------------------------------------------- what the tasks do


def slow_attempt() -> tuple[str, int] | None:
    """(stage, attempt) where the slow task runs; None in another."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.partitionId() != SLOW:
        return None
    return f"{context.stageId()}", int(context.attemptNumber())


def mark(marks: str, name: str) -> None:
    Path(marks, name).touch()


def wait(marks: str, name: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not Path(marks, name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody said {name}")
        time.sleep(0.01)


def stall(way: str, marks: str) -> None:
    """Stand still within a task's work, if this is the attempt that should."""
    found = slow_attempt()
    if found is not None and found[1] == 0 and way in ("stalled", "woken"):
        wait(marks, "over")


def slowly(work: Callable[[], Any], way: str, marks: str) -> Any:
    """What a task does, as slowly as this way says."""
    found = slow_attempt()
    if found is None:
        return work()
    stage, number = found
    mark(marks, f"{stage} begun {number}")
    done = work()
    mark(marks, f"{stage} done {number}")
    if number == 0:
        wait(marks, "over" if way == "overtaken" else f"{stage} done 1")
    elif way == "too late":
        wait(marks, "over")
    return done


def slow_format(way: str, marks: str) -> type:
    """A data source whose writers are slow; its name is ``octavo-slow``."""
    from octavo.pipeline.source import DefaultSource
    from octavo.pipeline.writing import BulkWriter, StreamSink

    def stalling(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        stall(way, marks)

    class SlowWriter(BulkWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return slowly(partial(super().write, stalling(iterator)), way, marks)

    class SlowSink(StreamSink):
        def write(self, iterator: Iterator[Any]) -> Any:
            return slowly(partial(super().write, stalling(iterator)), way, marks)

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "octavo-slow"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            made = super().writer(schema, overwrite)
            return SlowWriter(made.options, made.folder)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return SlowSink(super().streamWriter(schema, overwrite).options)

    return Source


class SlowDisk(RealDisk):
    """Stands still with a file just made."""

    def __init__(self, way: str, marks: str) -> None:
        super().__init__()
        self._told = way, marks

    def create(self, path: str) -> Any:
        made = super().create(path)
        stall(*self._told)
        return made


class SlowRun(offline.Run):
    """Tasks of a closed store on Spark."""

    parallelism = 3

    def __init__(self, spark: Any, way: str, marks: str) -> None:
        self._spark, self._way, self._marks = spark, way, marks

    def __call__(self, work: Any, tasks: Any) -> Any:
        way, marks = self._way, self._marks

        def slow(task: Any) -> Any:
            return slowly(partial(work, task), way, marks)

        return offline.on_spark(self._spark)(slow, tasks)


# ---------------------------------------------------------------- the jobs


def loaded(kind: str) -> dict[tuple[bytes, bytes], tuple[bytes, bytes, int | None]]:
    """What a load of this kind comes to. Of a key's two rows the first has the higher turn."""
    rows: dict[tuple[bytes, bytes], tuple[bytes, bytes, int | None]] = {}
    for number in range(ROWS) if kind in ("plain", "last") else reversed(range(ROWS)):
        key, value = b"k%d" % (number % KEYS), b"v%d" % number
        if kind == "plain":
            rows[b"", key] = value, b"", None
            continue
        place = b"b%d" % (number % KEYS % 3), key
        metadata = b"m%d" % number if number % 5 == 1 else b""
        rows.pop(place, None)
        if number % 7 != 3:
            rows[place] = value, metadata, NEVER_MS if number % 11 == 5 else None
    return rows


class Jobs:
    """The jobs of a case, and what must come of them."""

    def __init__(self, spark: Any, work: Path, rng: random.Random) -> None:
        from random_stores import fill
        from whole_store import flush, opened

        self._spark, self._work = spark, work
        self._cut_short: dict[Path, set[str]] = {}  # by the close of a look: of its own merges
        self._kept = work / "kept"
        with opened(self._kept, compact_every_seconds=None, roll_count=1500) as store:
            fill(store, rng, 8000)
            for number in range(1000):
                store.put(b"i%d" % (number % 300), b"x", index={"f": number % 7})
            flush(store)
            rolled(store)
            flush(store)
        self._want = self._state(self._kept)
        self._rng = rng
        self._loaded: dict[Path, Any] = {}

    def _state(self, path: Path) -> Any:
        from random_stores import held

        with octavo.open(path, compact_every_seconds=None) as store, store.snapshot() as snap:
            assert store.verify().ok
            return held(snap), sorted(map(repr, store.bucket("").index("f").range()))

    def run(self, number: int, what: str, way: str) -> Callable[[], None]:
        """Do a job and check what came of it. Returns what checks it again when Spark is gone."""
        path, marks = self._work / f"{number} {what}", self._work / f"{number} marks"
        marks.mkdir()
        {"load": self._load, "stream": self._stream}.get(what, partial(self._closed, what))(
            path, way, str(marks)
        )
        copies = [name for name in os.listdir(marks) if name.endswith("begun 1")]
        assert copies, "Spark began no copy"
        if way == "woken":
            mark(str(marks), "over")
        else:
            self._look(path, what)
        return partial(self._look, path, what, late=way == "woken")

    def _load(self, path: Path, way: str, marks: str) -> None:
        """Plain puts, or rows of every kind of which the last, the first or that of the highest
        turn counts."""
        self._spark.dataSource.register(slow_format(way, marks))
        kind = self._rng.choice(("plain", "last", "first", "turn"))
        print(f"  {kind}", file=sys.stderr, flush=True)
        rows = self._spark.range(0, ROWS, 1, 4).selectExpr(*(PLAIN if kind == "plain" else MIXED))
        options = {"jobId": "j"}
        if kind in ("first", "turn"):  # all of a key in one task
            rows = rows.repartition(4, "bucket", "key")
            options |= {"orderColumn": "turn"} if kind == "turn" else {"duplicates": "first"}
        if kind == "first":
            rows = rows.sortWithinPartitions(rows.turn.desc())
        if kind != "turn":
            rows = rows.drop("turn")
        rows.write.format("octavo-slow").mode("append").options(**options).save(str(path))
        self._loaded[path] = loaded(kind)

    def _stream(self, path: Path, way: str, marks: str) -> None:
        """The kept store's changes, of one batch."""
        self._spark.dataSource.register(slow_format(way, marks))
        feed = self._spark.readStream.format("octavo").options(
            readChangeFeed="true", splitBytes="256k"
        )
        sink = feed.load(str(self._kept)).writeStream.format("octavo-slow")
        sink = sink.option("checkpointLocation", f"{marks}/checkpoint")
        query = sink.trigger(availableNow=True).start(str(path))
        query.awaitTermination()

    def _closed(self, what: str, path: Path, way: str, marks: str) -> None:
        shutil.copytree(self._kept, path)
        disk, run = partial(SlowDisk, way, marks), SlowRun(self._spark, way, marks)
        if what == "compact":
            offline_journal.compacted(disk, str(path), run)
        elif what == "rebuild":
            offline._rebuild(disk, str(path), run, merge=True)
        else:
            offline._merge(disk, str(path), run)

    def _look(self, path: Path, what: str, *, late: bool = False) -> None:
        left = self._left(path) - self._cut_short.get(path, set())
        assert late or not left, f"{path}: {left} are left"
        if what == "load":
            with octavo.open(path, compact_every_seconds=None) as store:
                assert store.verify().ok
                held = {
                    (name, key): (value, head.metadata, head.expires_at)
                    for name in store.buckets()
                    for (key, value), (_, head) in zip(
                        store.bucket(name).items(), store.bucket(name).heads(), strict=True
                    )
                }
                assert held == self._loaded[path]
                assert store.last_sqn == ROWS
        elif what == "stream":
            with (
                octavo.open(path, compact_every_seconds=None) as store,
                octavo.open(self._kept, compact_every_seconds=None) as kept,
            ):
                assert store.verify().ok
                assert list(octavo.compare(kept, store, by="value")) == []
        else:
            assert self._state(path) == self._want
        self._cut_short[path] = self._left(path)

    def _left(self, path: Path) -> set[str]:
        """Files that neither manifest names, before the store is opened."""
        from octavo.manifest import pinning

        found = pinning.read_manifests(RealDisk(), str(path))
        named = {file.name for level in found.ledger.levels for file in level}
        named |= {entry.name for entry in found.journal.entries}
        there = [file for half in ("journal", "ledger") for file in (path / half).iterdir()]
        there += list((path / "staging").rglob("*")) if (path / "staging").exists() else []
        return {
            str(file.relative_to(path))
            for file in there
            if file.is_file() and file.name not in named and file.suffix != ".log"
        }


def main(work: Path, seed: str) -> None:
    offline.STRETCH_SQNS, offline.RANGE_ROWS = 2000, 600
    offline_journal.RUN_BYTES = 400 << 10
    rng = random.Random(seed)
    every = [(what, way) for what in WORKS for way in WAYS]
    chosen = rng.sample(every, JOBS_A_CASE)
    spark = session(work)
    jobs = Jobs(spark, work, rng)
    again = []
    for number, (what, way) in enumerate(chosen):
        began = time.monotonic()
        print(f"{what}, {way}", file=sys.stderr, flush=True)
        again.append(jobs.run(number, what, way))
        print(f"  {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    spark.stop()
    for look in again:
        look()
    print(json.dumps({"copies": len(again)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
