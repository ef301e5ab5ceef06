"""A change feed's record batches are what its records say, one by one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from whole_store import flush, opened, rolled, settle

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.journal import record
from octavo.files.ledger import ledger_key
from octavo.pipeline import change_arrays
from octavo.pipeline.feed_files import JournalLook, records
from octavo.pipeline.feed_files import opened as opened_part

SEED = int(os.environ.get("OCTAVO_SEED", "20261123"))
TAGS = {"note": octavo.Tag()}
SCHEMA = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_commit_sqn", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
        ("bucket", pa.binary()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("metadata", pa.binary()),
        ("expires_at", pa.timestamp("us", tz="UTC")),
    ]
)


def work(store: octavo.Store, rng: random.Random, steps: int) -> None:
    """Writes of every kind, in stretches of like ones and mixed."""
    buckets = [store, store.bucket("docs"), store.bucket("notes", tag="note")]
    for _ in range(steps):
        bucket, kind = rng.choice(buckets), rng.randrange(7)
        for _ in range(rng.choice([1, 3, 40])):
            key = b"k%03d" % rng.randrange(60)
            value = rng.choice([b"", b"v" * rng.randrange(50), rng.randbytes(9), b"z" * 4000])
            if kind == 0:
                bucket.delete(key)
            elif kind == 1:
                bucket.put(key, value, metadata=b"of " + key, ttl=rng.choice([1e6, None]))
            elif kind == 2:
                bucket.put(key, value, index={"field": rng.randrange(9)})
            elif kind == 3:
                with store.batch() as batch:
                    for n in range(rng.randrange(1, 5)):
                        batch.put("docs", b"b%d" % n, value, metadata=rng.choice([b"", b"m"]))
                    batch.delete("", key)
            else:
                bucket.put(key, bytes(20) if kind < 6 else value)


def row_of(found: record.Record) -> dict[str, Any]:
    put = found.kind == record.PUT
    return {
        "_change_type": "put" if put else "delete", "_commit_sqn": found.sqn,
        "_commit_timestamp": found.time_ms * 1000, "bucket": found.bucket, "key": found.key,
        "value": found.value if put else None, "metadata": found.metadata or None,
        "expires_at": found.expiry_ms * 1000 or None,
    }  # fmt: skip


def rows_one_by_one(path: str, tag: int, split: int) -> list[dict[str, Any]]:
    look = JournalLook(RealDisk(), path)
    return [
        row_of(found)
        for part in look.parts(0, look.newest(), split)
        for found in records(RealDisk(), path, part, look.horizon)
        if found.tag == tag and found.kind in (record.PUT, record.DELETE)
    ]


def batches_of(path: str, tag: int, split: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    look = JournalLook(RealDisk(), path)
    for part in look.parts(0, look.newest(), split):
        for file in opened_part(RealDisk(), path, part, look.horizon):
            yield from change_arrays.change_arrays(file, tag, schema)


def rows_of(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        assert batch.schema == schema
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        ]
        found += pa.RecordBatch.from_arrays(columns, names=schema.names).to_pylist()
    return found


@pytest.mark.parametrize("rows", [1, 7, 8192])
@pytest.mark.parametrize("seed", range(3))
def test_they_are_what_the_records_say(
    tmp_path: Path, seed: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED + seed)
    print(f"OCTAVO_SEED={SEED}")
    monkeypatch.setattr(change_arrays, "_ROWS", rows)
    options = {"tags": TAGS, "strategies": {"note": "retain"}, "roll_count": 256}
    with opened(tmp_path / "s", **options) as store:
        for stage in range(3):
            work(store, rng, 25)
            if stage == 1:
                flush(store)
                settle(store)
                store.compact()
            numbers = store._running.identity.tags
            for tag in (ledger_key.STANDARD, numbers.number("note")):
                split = rng.choice([1, 3000, 1 << 30])
                expected = rows_one_by_one(store.path, tag, split)
                assert rows_of(batches_of(store.path, tag, split, SCHEMA), SCHEMA) == expected
                some = pa.schema([SCHEMA.field("key"), SCHEMA.field("_commit_sqn")])
                assert rows_of(batches_of(store.path, tag, split, some), some) == [
                    {"key": row["key"], "_commit_sqn": row["_commit_sqn"]} for row in expected
                ]


def test_values_that_are_much_larger_than_they_are_stored_come_in_several_batches(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(12):
            store.put(b"%d" % number, bytes(1 << 20))
            store.delete(b"%d" % number)
        tag = ledger_key.STANDARD
        batches = list(batches_of(store.path, tag, 1 << 30, SCHEMA))
        assert len(batches) > 2
        assert all(batch.nbytes <= 5 << 20 for batch in batches)
        assert rows_of(iter(batches), SCHEMA) == rows_one_by_one(store.path, tag, 1 << 30)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_changed_byte_is_told_and_never_other_rows(tmp_path: Path, deletes: bool) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(6):
            store.put(b"k%d" % number, b"v" * 20, metadata=b"m" if number > 3 else b"")
            if deletes and number == 2:
                store.delete(b"k0")
        rolled(store)
        settle(store)
        path = store.path
    (file,) = (tmp_path / "s" / "journal").glob("0000000000000001-*.cdb")
    whole = file.read_bytes()
    tag = ledger_key.STANDARD
    expected = rows_one_by_one(path, tag, 1 << 30)
    look = JournalLook(RealDisk(), path)
    (part, *_) = look.parts(0, look.newest(), 1 << 30)
    for place in range(part.start, part.end):
        wrong = bytearray(whole)
        wrong[place] ^= 0x10
        file.write_bytes(wrong)
        with pytest.raises((octavo.Corruption, octavo.UnsupportedFormat)):
            rows_of(batches_of(path, tag, 1 << 30, SCHEMA), SCHEMA)
    file.write_bytes(whole)
    assert rows_of(batches_of(path, tag, 1 << 30, SCHEMA), SCHEMA) == expected
