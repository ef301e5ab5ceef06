"""Folds on Spark, against folds in the store."""

from __future__ import annotations

import errno
import logging
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simdisk import SimDisk
from whole_store import SEED, flush, opened, rolled

import octavo
from octavo import pipeline
from octavo.pipeline import (
    folding,
    frames,
    snapshot_choice,
    snapshot_files,
    spark_tasks,
)
from octavo.pipeline.source import DefaultSource


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe") as store:
        rng = random.Random(SEED)
        print(f"OCTAVO_SEED={SEED}")
        for number in range(900):
            bucket = store.bucket(rng.choice([b"", b"b"]))
            key = b"k%03d" % rng.randrange(200)
            if rng.random() < 0.2:
                bucket.delete(key)
            else:
                bucket.put(key, b"%d" % number, index={"tens": [number // 10]})
            if number % 400 == 399:
                flush(store)
        yield store


def test_objects(spark: Any, store: octavo.Store) -> None:
    def seq(state: list[Any], bucket: bytes, key: bytes, value: int) -> list[Any]:
        return [*state, (bucket, key, value)]

    with store.snapshot() as snap:
        found = pipeline.fold(
            snap, seq, lambda a, b: a + b, [], spark=spark, decode=int, split_bytes=5000
        )
        names = list(snap.buckets())
        assert found == [(n, k, int(v)) for n in names for k, v in snap.bucket(n).items()]
    assert store.published() == []


def test_heads_of_a_range(spark: Any, store: octavo.Store) -> None:
    made = store.snapshot().publish()
    found = pipeline.fold(
        made, lambda n, bucket, key, head: n + head.sqn, lambda a, b: a + b, 0, "heads",
        spark=spark, bucket=b"b", start=b"k050", end=b"k150",
    )  # fmt: skip
    assert found == sum(head.sqn for _, head in store.bucket("b").heads("k050", "k150"))
    assert len(store.published()) == 1


def test_index_entries_that_are_valid(spark: Any, store: octavo.Store) -> None:
    found = pipeline.fold(
        store.path, lambda n, bucket, field, term, key: [*n, (term, key)], lambda a, b: a + b, [],
        "index", bucket=b"b",
    )  # fmt: skip
    bucket = store.bucket("b")
    want = sorted((int(value) // 10, key) for key, value in bucket.items())
    assert sorted(found) == want
    assert store.published() == []


def test_nothing_gives_zero_and_what_is_checked(spark: Any, store: octavo.Store) -> None:
    def seq(state: int, *row: object) -> int:
        return state + 1

    assert pipeline.fold(Path(store.path), seq, int.__add__, 7, bucket=b"none") == 7
    with pytest.raises(octavo.Misuse, match="what='values'"):
        pipeline.fold(store.path, seq, int.__add__, 0, "values")  # type: ignore[arg-type]
    with pytest.raises(octavo.Misuse, match="only a bucket"):
        pipeline.fold(store.path, seq, int.__add__, 0, "index", prefix=b"a")
    with pytest.raises(octavo.Misuse, match="bucket is of type str: allowed are bytes"):
        pipeline.fold(store.path, seq, int.__add__, 0, bucket="b")  # type: ignore[arg-type]
    with pytest.raises(octavo.Misuse, match="snapshot=5"):
        pipeline.fold(5, seq, int.__add__, 0)
    with pytest.raises(octavo.Misuse, match="tag='person'"):
        pipeline.fold(store.path, seq, int.__add__, 0, tag="person")


def test_the_frame_of_a_snapshot_is_of_no_other_one(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.snapshot().publish("one")
        with (
            store.snapshot() as snap,
            pytest.raises(octavo.Misuse, match="snapshot='one': the frame is of this snapshot"),
        ):
            snap.df(spark, snapshot="one")


def test_one_name_is_no_list_of_columns(spark: Any, store: octavo.Store) -> None:
    with store.snapshot() as snap, pytest.raises(octavo.Misuse, match="columns='key': allowed is"):
        snap.df(spark, columns="key")
    assert store.published() == []


def test_a_second_session_of_a_process_has_frames_of_snapshots(
    spark: Any, store: octavo.Store
) -> None:
    from pyspark.sql import SparkSession

    class Elsewhere(DefaultSource):
        """One that Spark does not find by itself, as where Octavo comes by ``--py-files``."""

        @classmethod
        def name(cls) -> str:
            return "octavo-of-this-test"

    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "7")
    spark.createDataFrame([], "n int")  # makes it this thread's active session
    for session in (spark, other, spark, other):
        frames.known_to(session, Elsewhere)
        frame = session.read.format("octavo-of-this-test").load(store.path)
        assert frame.where("bucket = X'62'").count() == len(store.bucket("b")) > 0
        active = SparkSession.getActiveSession()
        assert active is not None
        assert active.conf.get("spark.sql.shuffle.partitions") == "4"  # that of ``spark``


def test_a_frame_of_a_snapshot(spark: Any, store: octavo.Store) -> None:
    with store.snapshot() as snap:
        frame = snap.df(spark, ["key", "sqn"], bucket="b")
        same = snap.df(spark, ["key", "sqn"], bucket=b"b", keyStart=b"", checksums=True)
        want = {key: head.sqn for key, head in snap.bucket("b").heads()}
    store.bucket("b").put("later", "x")
    for each in (frame, same):
        assert {bytes(row.key): row.sqn for row in each.collect()} == want != {}


class Machine:
    """A disk with a store, of which copies can be made; folds have their tasks here, in which no
    call fails."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        with opened("/s", self.disk, compact_every_seconds=None) as store:
            for number in range(60):
                store.put(b"k%d" % (number % 20), b"%d" % number)
            rolled(store)
            flush(store)
        self.whole = self.disk

    def begin_anew(self) -> SimDisk:
        self.disk = self.whole.after_crash("all", SEED)
        return self.disk

    def tasks(self, spark: object, work: Callable[[Any], int], parts: list[Any]) -> list[int]:
        fails, self.disk.at_call = self.disk.at_call, None
        found = [work(part) for part in parts]
        self.disk.at_call = fails
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    for module in (folding, snapshot_choice, snapshot_files):
        monkeypatch.setattr(module, "RealDisk", lambda: made.disk)
    monkeypatch.setattr(spark_tasks, "results", made.tasks)
    monkeypatch.setattr(spark_tasks, "session_of", lambda spark: spark)
    return made


def counted() -> int:
    return pipeline.fold("/s", lambda n, bucket, key, value: n + 1, int.__add__, 0)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, (octavo.StorageFull, octavo.StorageFailed)),  # of a failed fsync
        (errno.EMFILE, octavo.StorageFull),
        (errno.EIO, octavo.StorageFailed),
    ],
)
def test_whatever_call_of_the_driver_fails_an_error_of_ours_says_so(
    machine: Machine, code: int, told: type[Exception]
) -> None:
    for nth in range(1, 300):
        calls = [0]

        def fails(operation: str, nth: int = nth, calls: list[int] = calls) -> Any:
            calls[0] += 1
            return (code, None) if calls[0] == nth else None

        machine.begin_anew().at_call = fails
        try:
            assert counted() == 20
        except told as error:
            print(nth, error)
        if calls[0] < nth:
            break
    assert calls[0] < nth  # every call failed once


def test_a_fold_whose_snapshot_cannot_be_removed_gives_what_it_came_to(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.disk.fail("rmdir", 1, errno.EIO)
    with caplog.at_level(logging.WARNING, "octavo.published"):
        assert counted() == 20
    assert f"cannot be removed: [Errno {errno.EIO}] {os.strerror(errno.EIO)}" in caplog.text
