"""A head-only store through the data source: keys of two parts, values that are in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import octavo
from octavo.pipeline import fold


def test_rows_ranges_and_counts(spark: Any, tmp_path: Path) -> None:
    want = []
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        for number in range(300):
            key, sub_key = b"k\x00%02d" % (number % 30), b"s%d\x00" % number
            with store.head_batch() as batch:
                batch.put(b"b", key, b"v%d" % number, sub_key=sub_key)
            want.append((b"b", key, sub_key, b"v%d" % number))

        def read(**options: str) -> list[Any]:
            return list(spark.read.format("octavo").options(**options).load(store.path).collect())

        rows = read()
        assert sorted(
            (bytes(r.bucket), bytes(r.key), bytes(r.sub_key), bytes(r.value)) for r in rows
        ) == sorted(want)
        assert {row.size for row in rows} == {2, 3, 4}
        ends = {"keyStartHex": b"k\x0005".hex(), "keyEndHex": b"k\x0007".hex()}
        found = read(columns="key,sub_key", bucket="b", **ends)
        assert {bytes(row.key) for row in found} == {b"k\x0005", b"k\x0006"}
        assert len(found) == 20
        assert len(read(columns="key", prefix="k\x00", splitBytes="1k")) == 300


def test_a_fold_is_given_keys_and_sub_keys_as_they_were_written(spark: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        with store.head_batch() as batch:
            batch.put(b"b", b"k\x00", b"one", sub_key=b"\x00s")
            batch.put(b"b", b"k\x00", b"")
        made = store.snapshot().publish()

    def told(what: Any) -> list[Any]:
        return fold(
            made, lambda rows, *row: [*rows, row], lambda a, b: a + b, [], what, spark=spark
        )

    keys = [(b"b", (b"k\x00", b"")), (b"b", (b"k\x00", b"\x00s"))]
    assert told("objects") == [(*keys[0], b""), (*keys[1], b"one")]
    heads = told("heads")
    assert [row[:2] for row in heads] == keys
    assert [(row[2].sqn, row[2].size, row[2].metadata) for row in heads] == [
        (2, 0, b""),
        (1, 3, b""),
    ]
