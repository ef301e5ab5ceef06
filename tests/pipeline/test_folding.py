"""Folds on Spark, against folds in the store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import SEED, flush, opened

import octavo
from octavo import pipeline


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


def test_a_frame_of_a_snapshot(spark: Any, store: octavo.Store) -> None:
    with store.snapshot() as snap:
        frame = snap.df(spark, ["key", "sqn"], bucket="b")
        same = snap.df(spark, ["key", "sqn"], bucket=b"b", keyStart=b"", checksums=True)
        want = {key: head.sqn for key, head in snap.bucket("b").heads()}
    store.bucket("b").put("later", "x")
    for each in (frame, same):
        assert {bytes(row.key): row.sqn for row in each.collect()} == want != {}
