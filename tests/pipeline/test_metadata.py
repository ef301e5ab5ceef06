"""What a store is made of, as tables of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from whole_store import flush, opened

import octavo
from octavo.pipeline.metadata import TABLES, DefaultSource


def test_tables_tell_what_the_store_is_made_of(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "störe") as store:
        for number in range(600):
            store.put(b"k%03d" % (number % 300), b"12345")
        flush(store)
        made = store.snapshot().publish("nightly")

        def table(name: str) -> list[Any]:
            reader = spark.read.format("octavo-metadata").option("table", name)
            return list(reader.load(store.path).collect())

        (row,) = table("snapshots")
        assert (row.id, row.name, row.sqn, row["keys"], row.bytes, row.expired) == (
            made.id, "nightly", 600, 300, 1500, False,
        )  # fmt: skip
        files = table("files")
        ledger = store._running.penciller.actor.manifest
        names = [entry.name for level in ledger.levels for entry in level]
        assert [row.name for row in files if row.half == "ledger"] == names
        assert sum(row.rows for row in table("levels")) == sum(
            row.rows for row in files if row.half == "ledger"
        )
        journal = table("journal")
        assert sum(row.live_records for row in journal) == 300
        assert sum(row.live_value_bytes for row in journal) == 1500
        assert journal[0].garbage_percent > 50
        with pytest.raises(Exception, match="table='other'"):
            table("other")
        assert [each.id for each in store.published()] == [made.id]


def test_the_journal_of_a_head_only_store_says_what_is_live(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only", compact_every_seconds=None) as store:
        for value in (b"1", b"12345"):
            with store.head_batch() as batch:
                for number in range(50):
                    batch.put(b"", b"k%d" % number, value, sub_key=b"s")
        (row,) = TABLES["journal"][1](str(store.path))
    assert row[3:4] + row[5:] == (100, 50, 250, 50.0)


@pytest.mark.parametrize("table", list(TABLES))
def test_where_there_is_no_store_that_is_told(tmp_path: Path, table: str) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("nowhere", "file", "."):
        source = DefaultSource({"path": str(tmp_path / name), "table": table})
        with pytest.raises(octavo.Misuse, match="there is no store at"):
            source.reader(StructType([]))


def test_a_schema_of_the_users_picks_columns_by_their_names(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        made = store.snapshot().publish("nightly")
        reader = spark.read.format("octavo-metadata").schema("name string, ID string")
        (row,) = reader.load(store.path).collect()
        assert (row.name, row.ID) == ("nightly", made.id)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [StructField("size", LongType())],
        [StructField("sqn", IntegerType())],
        [StructField("ids", StringType())],
        [StructField("name", StringType(), False)],
    ],
    ids=str,
)
def test_a_schema_that_does_not_fit_is_told(tmp_path: Path, fields: list[StructField]) -> None:
    with opened(tmp_path / "s") as store:
        source = DefaultSource({"path": store.path})
        with pytest.raises(octavo.Misuse, match=r"table snapshots has the columns id string, name"):
            source.reader(StructType(fields))
