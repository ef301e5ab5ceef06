"""Batches whose further columns say nothing of any row are staged like batches without them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from octavo.files.staged_writer import StagedRow
from octavo.pipeline import staged_columns

KEYS, VALUES = [b"a", b"bb", b"ccc"], [b"1", b"", b"333"]
PLAIN = [StagedRow(b"b", key, value) for key, value in zip(KEYS, VALUES, strict=True)]


class Told:
    """Stands for a writer: what it was told, and by which calls."""

    def __init__(self) -> None:
        self.rows: list[StagedRow] = []
        self.calls: set[str] = set()

    def add(self, row: StagedRow) -> None:
        self.calls.add("add")
        self.rows.append(row)

    def put_columns(self, bucket: bytes, keys: Any, values: Any) -> None:
        self.calls.add("put_columns")
        for key, value in zip(strings(keys), strings(values), strict=True):
            self.rows.append(StagedRow(bucket, key, value))


def strings(column: Any) -> list[bytes]:
    ends = column.offsets.tolist()
    whole = column.blob.tobytes()
    return [whole[low:high] for low, high in pairwise(ends)]


def staged(columns: dict[str, Any], bucket: bytes = b"b") -> Told:
    told = Told()
    batch = pa.RecordBatch.from_pydict({"key": KEYS, "value": VALUES} | columns)
    staged_columns.stage(told, batch, bucket)  # type: ignore[arg-type]
    return told


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
    told = staged(columns, b"another")
    assert told.rows == PLAIN
    assert told.calls == {"put_columns"}


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
            {"value": [b"1", None, b"333"], "_change_type": ["put"] * 3},
            PLAIN,  # of a put without a value
        ),
        ({"value": [b"1", None, b"333"]}, [PLAIN[0], PLAIN[1]._replace(value=None), PLAIN[2]]),
    ],
)
def test_what_says_something_counts(columns: dict[str, Any], wanted: list[StagedRow]) -> None:
    told = staged(columns)
    assert told.rows == wanted
    assert told.calls == {"add"}


def test_a_part_of_a_batch_is_taken() -> None:
    told = Told()
    batch = pa.RecordBatch.from_pydict({"bucket": [b"x", b"b", b"b"], "key": KEYS, "value": VALUES})
    staged_columns.stage(told, batch[1:], b"")  # type: ignore[arg-type]
    assert told.rows == PLAIN[1:]
