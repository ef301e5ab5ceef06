"""What a store is made of, as tables of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, opened


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
