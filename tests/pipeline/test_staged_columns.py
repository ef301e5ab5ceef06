"""Batches as operations: columns that say nothing of any row are left out, others count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from staged_rows import StagedRow, rows_of

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover import staged_writer
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal.record_batch import Operations
from octavo.files.wall_clock import YEAR_10000_MS
from octavo.pipeline import staged_columns, writing

KEYS, VALUES = [b"a", b"bb", b"ccc"], [b"1", b"", b"333"]
PLAIN = [StagedRow(b"b", key, value) for key, value in zip(KEYS, VALUES, strict=True)]


NO_TEXT = pa.array([b"put", b"\xffdelete", b"put"]).view(pa.string())
"""What Spark calls a string may be any bytes."""


def staged(columns: dict[str, Any], bucket: bytes = b"b") -> Operations:
    batch = pa.RecordBatch.from_pydict({"key": KEYS, "value": VALUES} | columns)
    return staged_columns.operations(batch, bucket)


@pytest.mark.parametrize(
    "columns",
    [
        {"bucket": [b"b"] * 3},
        {"bucket": ["b"] * 3},
        {"bucket": [b"b"] * 3, "metadata": pa.array([None] * 3, pa.binary())},
        {"bucket": [b"b"] * 3, "expires_at": pa.array([None] * 3, pa.int64())},
        {"bucket": [b"b"] * 3, "expires_at": pa.array([None] * 3, pa.timestamp("us", "UTC"))},
        {"bucket": [b"b"] * 3, "_change_type": ["put"] * 3},
    ],
)
def test_what_says_nothing_is_left_out(columns: dict[str, Any]) -> None:
    found = staged(columns, b"another")
    assert rows_of(found) == PLAIN
    assert [found.which, found.deletes, found.expiries, found.metas] == [None] * 4


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ({"bucket": [b"b", b"c", b"b"]}, [PLAIN[0], PLAIN[1]._replace(bucket=b"c"), PLAIN[2]]),
        (
            {"metadata": [None, b"m", None]},
            [PLAIN[0], PLAIN[1]._replace(metadata=b"m"), PLAIN[2]],
        ),
        ({"expires_at": [7, None, 0]}, [PLAIN[0]._replace(expiry_ms=7), PLAIN[1], PLAIN[2]]),
        (
            {"_change_type": ["put", "delete", "put"]},
            [PLAIN[0], PLAIN[1]._replace(value=None), PLAIN[2]],
        ),
        (
            {"value": [b"1", None, b"333"], "_change_type": ["put", "delete", "put"]},
            [PLAIN[0], PLAIN[1]._replace(value=None), PLAIN[2]],
        ),
        ({"value": [b"1", None, b"333"]}, [PLAIN[0], PLAIN[1]._replace(value=None), PLAIN[2]]),
    ],
)
def test_what_says_something_counts(columns: dict[str, Any], wanted: list[StagedRow]) -> None:
    assert rows_of(staged(columns)) == wanted


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_strings_of_any_kind_are_taken(kind: pa.DataType) -> None:
    names = pa.array([b"b", b"a", b"b"], pa.binary()).cast(kind)
    values = pa.array([b"1", None, b"333"], pa.binary()).cast(kind)
    found = staged({"bucket": names, "value": values, "metadata": values})
    assert rows_of(found) == [
        StagedRow(b"b", b"a", b"1", 0, b"1"),
        StagedRow(b"a", b"bb", None),
        StagedRow(b"b", b"ccc", b"333", 0, b"333"),
    ]


def test_what_is_deleted_has_nothing_else() -> None:
    found = staged(
        {
            "_change_type": ["delete", "put", "delete"],
            "expires_at": [7, 8, None],
            "metadata": [b"m", b"n", None],
        }
    )
    assert rows_of(found) == [
        StagedRow(b"b", b"a", None),
        StagedRow(b"b", b"bb", b"", 8, b"n"),
        StagedRow(b"b", b"ccc", None),
    ]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": [b"a", None, b"c"]}, "column 'key': row 1 is null"),
        ({"key": [b"a", b"b", b""]}, "column 'key': row 2 is empty"),
        ({"bucket": [b"a", b"b", None]}, "column 'bucket': row 2 is null"),
        ({"_change_type": ["put", "delete", "merge"]}, "row 2 is 'merge', not put or delete"),
        ({"_change_type": ["put", None, "merge"]}, "row 1 is None, not put or delete"),
        ({"_change_type": NO_TEXT}, r"row 1 is .*xffdelete', not put or delete"),
        ({"_change_type": NO_TEXT.cast(pa.large_string())}, r"row 1 is .*xffdelete', not put"),
        (
            {"value": [b"1", None, None], "_change_type": ["put", "delete", "put"]},
            "column 'value': row 2 is null, but it is a put",
        ),
        ({"expires_at": [5, -3, 1]}, "column 'expires_at': row 1 is before 1970"),
        ({"expires_at": [5, 6, YEAR_10000_MS]}, "row 2 is beyond the year 9999: 253402300800000"),
        ({"expires_at": [5, 1_767_225_600, 1]}, "row 1 looks like seconds: 1767225600"),
        (
            {"expires_at": pa.array([None, 999, 1000], pa.timestamp("us", "UTC"))},
            "row 1 is before 1970: 0",
        ),
    ],
)
def test_the_row_that_cannot_be_is_named(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(octavo.Misuse, match=told):
        staged(columns)


def test_without_values_there_are_only_deletes() -> None:
    """A feed that was read by a schema without them has puts, too."""
    kinds = ["delete", "delete", "put"]
    batch = pa.RecordBatch.from_pydict({"key": KEYS, "_change_type": kinds})
    assert [row.value for row in rows_of(staged_columns.operations(batch[:2], b"b"))] == [None] * 2
    with pytest.raises(octavo.Misuse, match="no column 'value', and row 2 is a put"):
        staged_columns.operations(batch, b"b")


def test_a_part_of_a_batch_is_taken() -> None:
    batch = pa.RecordBatch.from_pydict({"bucket": [b"x", b"b", b"b"], "key": KEYS, "value": VALUES})
    assert rows_of(staged_columns.operations(batch[1:], b"")) == PLAIN[1:]


LOAD = """
import sys
import pyarrow as pa
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.pipeline import staged_columns

kind = pa.binary()
offsets = pa.py_buffer(bytes((0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0)))
column = pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(b"ab")])
batch = pa.RecordBatch.from_arrays([column, column], ["key", "value"])
writer = StagedWriter(RealDisk(), sys.argv[1], "job", "attempt", now_ms=1)
writer.add(staged_columns.operations(batch, b""))
print(writer.finish().count, "pandas" in sys.modules)
"""


def test_a_load_without_nulls_loads_no_pandas(tmp_path: Path) -> None:
    """Arrow does, 0.2 s of each worker's, to look whether it is a frame that it is given."""
    words = [sys.executable, "-c", LOAD, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


@pytest.mark.parametrize(
    "kind", ["array<int>", "interval year to month", "interval month", "string collate UTF8_LCASE"]
)
def test_a_column_that_has_no_order_orders_nothing(kind: str) -> None:
    fields = [("key", "binary"), ("value", "binary"), ("at", kind)]
    with pytest.raises(octavo.Misuse, match=f"orderColumn='at' is of type {kind}: not ordered"):
        staged_columns.check_schema(fields, "at")


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_not_a_number_comes_last_as_spark_has_it(kind: pa.DataType) -> None:
    at = pa.array([float("nan"), None, 2.0, float("inf"), float("nan")], kind)
    keys = [b"nan", b"null", b"two", b"inf", b"nan again"]
    given = pa.RecordBatch.from_pydict({"key": keys, "value": keys, "at": at})
    made = writing.write_options({"path": "/s", "orderColumn": "at"})
    (found,) = writing._ordered(iter([given]), made)
    assert found["key"].to_pylist() == [b"null", b"two", b"inf", b"nan", b"nan again"]


@pytest.mark.parametrize("options", [{"orderColumn": "at"}, {"duplicates": "first"}])
def test_rows_that_are_ordered_by_task_come_in_batches_that_a_writer_can_take(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_ORDERED_ROWS", 2)
    given = [
        pa.RecordBatch.from_pydict({"key": KEYS, "value": VALUES, "at": [9, None, 7]}),
        pa.RecordBatch.from_pydict({"key": [b"z", b"y"], "value": [b"", b""], "at": [8, 1]}),
    ]
    made = writing.write_options({"path": "/s", **options})
    found = [
        row.key
        for batch in writing._ordered(iter(given), made)
        for row in rows_of(staged_columns.operations(batch, b""))
    ]
    by_time = [b"bb", b"y", b"ccc", b"z", b"a"]
    assert found == (by_time if "orderColumn" in options else [b"y", b"z", *reversed(KEYS)])


@pytest.mark.parametrize("names", [[b"\xff"] * 3, [b"\xff", b"b", b"\xff"]])
def test_a_bucket_that_spark_calls_a_string_may_be_any_bytes(names: list[bytes]) -> None:
    found = staged({"bucket": pa.array(names, pa.binary()).view(pa.string())})
    assert [row.bucket for row in rows_of(found)] == names


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": [b"a", b"k" * 70_000, b"c"]}, r"row 1, key b'k{40}' of 70000 bytes: .* 64 KiB of"),
        ({"key": [b"a", b"b", b"k" * 65_536]}, "row 2, .* of key and bucket's name together"),
        ({"metadata": [b"", b"", b"m" * ((1 << 20) + 1)]}, "row 2, key b'ccc' .* metadata of"),
        ({"value": [b"", b"v" * 2001, b""]}, "row 1, key b'bb' .* a value of 2000 bytes"),
    ],
)
def test_the_row_that_is_too_long_is_named(
    columns: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_writer, "MAX_VALUE_BYTES", 2000)
    writer = StagedWriter(RealDisk(), str(tmp_path), "j", "a", now_ms=1)
    with pytest.raises(octavo.Misuse, match=told):
        writer.add(staged(columns))


def test_a_key_that_is_empty_is_staged_by_no_way(tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match="row 1 is empty"):
        staged({"key": [b"a", b"", b"c"]})
    writer = StagedWriter(RealDisk(), str(tmp_path), "j", "a", now_ms=1)
    with pytest.raises(octavo.Misuse, match=r"row 1, key b'' of 0 bytes: .* at least a byte"):
        writer.put_many(b"", [b"a", b""], [b"1", b"2"])
