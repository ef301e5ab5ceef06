"""Spark jobs that something happens to: workers killed, files compacted away, leases that end.

A reader of its own does it: it reads as the data source does, and between two batches of a task
something happens. Nothing here depends on how long anything takes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from random_stores import COLUMNS, Rows, fill, held, read
from whole_store import SEED, flush, opened, settle

import octavo
from octavo.pipeline.batch_reader import SnapshotReader
from octavo.pipeline.source import DefaultSource


@pytest.fixture(autouse=True)
def says_its_seed() -> None:
    print(f"OCTAVO_SEED={SEED}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe 3") as store:
        yield store


def frame_of(spark: Any, path: str, marks: Path, killing: bool, **options: str) -> Any:
    """A frame of which one task kills its process behind the first batch, once; or all tasks wait
    there until ``go`` is among the marks."""
    marks.mkdir()
    folder = str(marks)

    class Disturbed(SnapshotReader):
        def read(self, partition: Any) -> Any:
            import os
            import signal
            import time

            from octavo.pipeline import snapshot_files

            snapshot_files.LOOK_EVERY_SECONDS = 0.0  # look at the lease before every batch
            for number, batch in enumerate(SnapshotReader.read(self, partition)):
                yield batch
                if number:
                    continue
                if killing:
                    try:
                        os.mkdir(f"{folder}/killed")
                    except FileExistsError:
                        continue
                    os.kill(os.getpid(), signal.SIGKILL)
                os.makedirs(f"{folder}/begun", exist_ok=True)
                deadline = time.monotonic() + 300
                while not os.path.exists(f"{folder}/go"):
                    if time.monotonic() > deadline:
                        raise TimeoutError("nobody said go")
                    time.sleep(0.01)

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "octavo-disturbed"

        def reader(self, schema: Any) -> Any:
            from octavo.pipeline.read_options import parsed

            return Disturbed(parsed(self.options), *self._pin(), schema)

    spark.dataSource.register(Source)
    return spark.read.format("octavo-disturbed").options(**options).load(path)


def meanwhile(marks: Path, disturb: Callable[[], None], job: Callable[[], Any]) -> Any:
    """Run a job; when the first of its tasks has read something, ``disturb``, then let it go on."""
    done = []
    over = threading.Event()

    def look() -> None:
        while not (marks / "begun").exists():
            if over.wait(0.01):
                return
        try:
            disturb()
            done.append("disturbed")
        finally:
            (marks / "go").mkdir()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        return job()
    finally:
        over.set()
        thread.join()
        assert done, "what was to happen meanwhile did not"


def two_batches_a_task(store: octavo.Store) -> Rows:
    """Rows enough for several tasks of several batches each."""
    rng = random.Random(SEED)
    fill(store, rng, 300)
    for number in range(5):
        store.put(b"large %d" % number, rng.randbytes(2 << 20))
    fill(store, rng, 100)
    with store.snapshot() as snap:
        return held(snap)


def test_a_worker_that_is_killed_is_replaced_and_all_rows_come_once(
    spark: Any, store: octavo.Store, tmp_path: Path
) -> None:
    want = two_batches_a_task(store)
    made = store.snapshot().publish()
    marks = tmp_path / "marks"
    frame = frame_of(
        spark, store.path, marks, True, snapshot=made.id, columns=COLUMNS, splitBytes="6m"
    )
    assert read(frame) == want
    assert (marks / "killed").exists()


def test_files_that_are_compacted_and_merged_away_are_read_to_the_end(
    spark: Any, store: octavo.Store, tmp_path: Path
) -> None:
    want = two_batches_a_task(store)
    marks = tmp_path / "marks"
    frame = frame_of(spark, store.path, marks, False, columns=COLUMNS)  # a bare path

    def all_goes() -> None:
        for name in list(store.buckets()):
            for key in list(store.bucket(name).keys()):
                store.bucket(name).delete(key)
        flush(store)
        store.compact()
        settle(store)
        assert list(store.buckets()) == []

    assert meanwhile(marks, all_goes, lambda: read(frame)) == want


def test_a_lease_that_ends_inside_a_task_fails_the_job_and_says_so(
    spark: Any, store: octavo.Store, tmp_path: Path
) -> None:
    two_batches_a_task(store)
    made = store.snapshot().publish()
    marks = tmp_path / "marks"
    frame = frame_of(spark, store.path, marks, False, snapshot=made.id, columns=COLUMNS)
    with pytest.raises(Exception, match=f"SnapshotExpired.*{made.id}"):
        meanwhile(marks, made.release, lambda: read(frame))
