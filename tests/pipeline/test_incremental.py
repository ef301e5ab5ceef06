"""What changed between two published snapshots, against what the two hold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from random_stores import Rows, fill, held, load
from whole_store import SEED, Clock, flush, opened

import octavo
from octavo.files.ledger import ledger_key, live_batches
from octavo.files.ledger.bounds import OBJECTS
from octavo.files.ledger.chosen_rows import Span
from octavo.pipeline.change_rows import change_batches
from octavo.pipeline.partitions import asked_for
from octavo.pipeline.read_options import CHANGE_DDL, parsed
from octavo.pipeline.snapshot_files import SnapshotFiles

_ARROW = {
    "string": pa.string(), "bigint": pa.int64(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in CHANGE_DDL.items()])


@pytest.fixture(autouse=True)
def says_its_seed() -> None:
    print(f"OCTAVO_SEED={SEED}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe 2") as store:
        yield store


def check(changes: list[Any], before: Rows, after: Rows, since: int, upto: int) -> None:
    """The changes are exactly what leads from one state to the other, each key once."""
    found = {(bytes(row["bucket"]), bytes(row["key"])): row for row in changes}
    assert len(found) == len(changes)
    puts = {at: row for at, row in after.items() if row[1] > since}
    gone = before.keys() - after.keys()
    assert {at for at, row in found.items() if row["_change_type"] == "put"} == puts.keys()
    assert {at for at, row in found.items() if row["_change_type"] == "delete"} == gone
    for at, row in found.items():
        assert since < row["_commit_sqn"] <= upto
        if at in puts:
            value, sqn, _, metadata, written_at, expires_at = puts[at]
            assert (bytes(row["value"]), row["_commit_sqn"]) == (value, sqn)
            assert (row["metadata"] and bytes(row["metadata"])) == metadata
            told = row["_commit_timestamp"], row["expires_at"]
            assert [moment and round(moment.timestamp() * 1000) for moment in told] == [
                written_at, expires_at,
            ]  # fmt: skip
        else:
            assert row["value"] is row["metadata"] is row["expires_at"] is None


@pytest.mark.parametrize("number", range(6))
def test_changes_lead_from_one_state_to_the_other(store: octavo.Store, number: int) -> None:
    rng = random.Random(SEED + number)
    fill(store, rng, rng.choice([0, 40, 700]), flushing=0.02)
    first, before = store.snapshot().publish(), held(store.snapshot())
    fill(store, rng, rng.choice([0, 30, 700]), flushing=0.02)
    if number % 2:
        for key in list(store.bucket("b").keys()):
            store.bucket("b").delete(key)
        flush(store)  # merges: marks of deletes go
    second, after = store.snapshot().publish(), held(store.snapshot())
    batches = change_batches(
        SnapshotFiles(second.path), SnapshotFiles(first.path), OBJECTS,
        None, SCHEMA, checksums=True,
    )  # fmt: skip
    rows = pa.Table.from_batches(batches, SCHEMA).to_pylist()
    assert rows or before == after
    check(rows, before, after, first.sqn, second.sqn)


def test_what_expired_between_is_a_delete(tmp_path: Path) -> None:
    clock = Clock(1_000)
    with opened(tmp_path / "s", clock_ms=lambda: int(clock.now)) as store:
        store.put("short", "1", expires_at=5_000)
        store.put("long", "2", expires_at=50_000)
        first = store.snapshot().publish(lease_seconds=1e6)
        clock.now = 6_000
        second = store.snapshot().publish(lease_seconds=1e6)
        files = [
            SnapshotFiles(each.path, clock_ms=lambda: int(clock.now)) for each in (second, first)
        ]
        (batch,) = change_batches(*files, OBJECTS, None, SCHEMA, checksums=True)
        (row,) = batch.to_pylist()
        assert (row["_change_type"], row["key"], row["_commit_sqn"]) == ("delete", b"short", 2)


def test_changes_in_a_bucket_of_a_long_name_come_in_batches_of_some_megabytes(
    store: octavo.Store,
) -> None:
    bucket = store.bucket(b"b" * 60_000)
    bucket.put_many((b"%03d" % n, b"v") for n in range(200))
    first, before = store.snapshot().publish(), held(store.snapshot())
    bucket.put_many((b"%03d" % n, b"w") for n in range(100))
    bucket.delete_many(b"%03d" % n for n in range(100, 200))
    second, after = store.snapshot().publish(), held(store.snapshot())
    batches = list(
        change_batches(
            SnapshotFiles(second.path),
            SnapshotFiles(first.path),
            OBJECTS,
            None,
            SCHEMA,
            checksums=True,
        )
    )
    assert max(batch.nbytes for batch in batches) < 5 << 20
    rows = pa.Table.from_batches(batches, SCHEMA).to_pylist()
    check(rows, before, after, first.sqn, second.sqn)


def test_windows_without_a_chosen_key_have_no_changes(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_batches, "WIDE_WINDOW_ROWS", 4)
    names = [b"%02d" % number for number in range(20)]
    store.put_many((name, b"old") for name in names)
    flush(store)
    first, before = store.snapshot().publish(), held(store.snapshot())
    store.put_many((name, b"new") for name in names[10:])
    flush(store)
    second, after = store.snapshot().publish(), held(store.snapshot())
    files, earlier = SnapshotFiles(second.path), SnapshotFiles(first.path)
    span = Span(b"07", b"13")
    (bound,), chosen = asked_for(files, ledger_key.STANDARD, None, [span], earlier)
    assert chosen is not None
    batches = change_batches(files, earlier, bound, chosen, SCHEMA, checksums=True)
    rows = pa.Table.from_batches(list(batches), SCHEMA).to_pylist()
    ranged = [
        {at: row for at, row in state.items() if b"07" <= at[1] < b"13"}
        for state in (before, after)
    ]
    check(rows, *ranged, first.sqn, second.sqn)
    assert len(rows) == 3


def test_spark_reads_what_changed(spark: Any, store: octavo.Store, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    fill(store, rng, 600)
    first, before = store.snapshot().publish("monday"), held(store.snapshot())
    fill(store, rng, 300)
    second, after = store.snapshot().publish("tuesday"), held(store.snapshot())
    store.put("later", "x")
    options = {"startSnapshot": "monday", "endSnapshot": second.id}
    frame = load(spark, store, splitBytes="10k", **options)
    assert frame.rdd.getNumPartitions() > 2
    check([row.asDict() for row in frame.collect()], before, after, first.sqn, second.sqn)
    # A copy that takes the changes in is as the later one.
    for path, source in ((first.id, {"snapshot": first.id}), (second.id, options)):
        wanted = "bucket,key,value,metadata,expires_at"
        if "startSnapshot" in source:
            wanted += ",_change_type"
        writer = load(spark, store, columns=wanted, **source).write.format("octavo")
        writer.mode("append").option("jobId", path).save(str(tmp_path / "copy"))
    with octavo.open(tmp_path / "copy") as copy, copy.snapshot() as snap:
        found = {at: (row[0], row[3], row[5]) for at, row in held(snap).items()}
        assert found == {at: (row[0], row[3], row[5]) for at, row in after.items()}


def test_changes_up_to_now_and_of_a_range(spark: Any, store: octavo.Store) -> None:
    for number in range(20):
        store.put(b"k%02d" % number, b"old")
    store.snapshot().publish("base")
    for number in range(0, 20, 2):
        store.put(b"k%02d" % number, b"new")
    store.delete(b"k05")
    frame = load(spark, store, startSnapshot="base", keyEnd="k06", columns="key,_change_type")
    assert sorted((bytes(row.key), row._change_type) for row in frame.collect()) == [
        (b"k00", "put"), (b"k02", "put"), (b"k04", "put"), (b"k05", "delete"),
    ]  # fmt: skip


def test_snapshots_in_the_wrong_order_are_told(spark: Any, store: octavo.Store) -> None:
    store.put("a", "1")
    first = store.snapshot().publish()
    store.put("a", "2")
    second = store.snapshot().publish()
    frame = load(spark, store, startSnapshot=second.id, endSnapshot=first.id)
    with pytest.raises(Exception, match="name the earlier one first"):
        frame.collect()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"endSnapshot": "a"}, "endSnapshot goes with startSnapshot"),
        ({"startSnapshot": "a", "columns": "sqn"}, "'sqn': there are _change_type"),
        ({"startSnapshot": "a", "endSnapshot": "b", "snapshot": "c"}, "goes with startSnapshot"),
    ],
)
def test_options_of_an_incremental_read_are_checked(options: dict[str, str], why: str) -> None:
    with pytest.raises(octavo.Misuse, match=why):
        parsed({"path": "/x", **options})
