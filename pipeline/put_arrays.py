"""Puts of a journal file as Arrow arrays, in journal order, by array kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

import numpy as np
import pyarrow as pa

from octavo.files.journal.record import PUT, Record
from octavo.files.journal.record_columns import RecordColumns
from octavo.files.kernels.arrow import binary_array, numbers, refuse_large_value, room
from octavo.files.kernels.byte_strings import Ints, cuts, gather
from octavo.pipeline.arrow_rows import BATCH_BYTES, BATCH_ROWS, LATEST_MS, MOMENTS, fitting, moments
from octavo.pipeline.read_options import CHANGE_DDL, DDL
from octavo.pipeline.value_views import Views, together

_FEW_LENGTHS = 64
_STORED = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "timestamp": MOMENTS}
_KINDS = {**DDL, **CHANGE_DDL}
_OF_RECORD: dict[str, Callable[[Record], Any]] = {
    "_change_type": lambda row: "put" if row.kind == PUT else "delete",
    "_commit_sqn": lambda row: row.sqn,
    "_commit_timestamp": lambda row: _micros(row.time_ms),
    "sqn": lambda row: row.sqn,
    "size": lambda row: row.size,
    "written_at": lambda row: _micros(row.time_ms) or None,
    "bucket": lambda row: row.bucket,
    "key": lambda row: row.key,
    "value": lambda row: row.value if row.kind == PUT else None,
    "metadata": lambda row: row.metadata or None,
    "expires_at": lambda row: _micros(row.expiry_ms) or None,
}


def _micros(ms: int) -> int:
    return min(ms, LATEST_MS) * 1000


def of_records(rows: Sequence[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Records, one by one, as a batch of exactly this schema. Raises Misuse as ``PutArrays``."""
    if "value" in schema.names:
        for row in rows:
            refuse_large_value(len(row.value), row.bucket, row.key)
    return fitting(
        [
            pa.array([_OF_RECORD[name](row) for row in rows], _STORED[_KINDS[name]])
            for name in schema.names
        ],
        schema,
    )


class PutArrays:
    """Makes record batches of columns of records, whose fields have the names that rows of a state
    or of a change have."""

    def __init__(self, mapped: mmap | bytes, sqns: Ints, record: Callable[[int], Record]) -> None:
        """``sqns``: of the records that the columns' row numbers count; ``record`` reads one by its
        sqn with all care."""
        self._mapped = mapped
        self._raw = np.frombuffer(mapped, dtype=np.uint8)
        self._sqns = sqns
        self._record = record

    def batches(self, columns: RecordColumns, schema: pa.Schema) -> list[pa.RecordBatch]:
        """Batches of exactly this schema, none of too many rows or bytes. Raises Misuse for a type
        that does not fit, or a value that is too large for Arrow."""
        out = []
        sizes = np.where(columns.raw_bytes >= 0, columns.raw_bytes, columns.value_bytes)
        if len(sizes) and "value" in schema.names:
            self._refuse_large(columns, sizes)
        # What is compressed may be far larger than it was stored.
        for low, high in cuts(sizes, BATCH_ROWS, BATCH_BYTES):
            part = columns.between(low, high)
            out.append(fitting([self._column(part, name) for name in schema.names], schema))
        return out

    def _refuse_large(self, columns: RecordColumns, sizes: Ints) -> None:
        row = int(sizes.argmax())
        bucket, key = (
            self._raw[at[row] : at[row] + lengths[row]].tobytes()
            for at, lengths in (
                (columns.buckets_at, columns.bucket_bytes),
                (columns.keys_at, columns.key_bytes),
            )
        )
        refuse_large_value(int(sizes[row]), bucket, key)

    def _column(self, columns: RecordColumns, name: str) -> pa.Array:
        count = len(columns.rows)
        if name == "bucket":
            return self._strings(columns, columns.buckets_at, columns.bucket_bytes)
        if name == "key":
            return self._strings(columns, columns.keys_at, columns.key_bytes)
        if name == "_change_type":
            return pa.repeat("put", count)
        if name in ("sqn", "_commit_sqn"):
            return numbers(pa.int64(), self._sqns[columns.rows])
        if name == "size":
            packed = columns.raw_bytes >= 0
            return numbers(pa.int64(), np.where(packed, columns.raw_bytes, columns.value_bytes))
        if name == "metadata":
            if not columns.meta_bytes.any():
                return pa.nulls(count, pa.binary())
            found = gather(self._raw, columns.metas_at, columns.meta_bytes)
            return binary_array(found, empty_is_null=True)
        if name == "_commit_timestamp":
            return moments(columns.times, count, zero_is_null=False)
        if name == "written_at":
            return moments(columns.times, count)
        if name == "expires_at":
            return moments(columns.expiries if columns.expiries.any() else None, count)
        return self._values(columns)

    def _strings(self, columns: RecordColumns, at: Ints, lengths: Ints) -> pa.Array:
        return binary_array(columns.strings(self._raw, at, lengths, room))

    def _values(self, columns: RecordColumns) -> pa.Array:
        lengths = columns.value_bytes
        if columns.apart:
            return self._strings(columns, columns.values_at, lengths)
        packed = columns.raw_bytes >= 0
        if packed.all():
            found = together(self._mapped, columns.values_at, lengths, columns.raw_bytes)
            if found is not None:
                return binary_array(found)
        top = int(lengths.max())
        few = top < 1 << 16 and np.count_nonzero(np.bincount(lengths)) <= _FEW_LENGTHS
        if few and not packed.any():
            return self._strings(columns, columns.values_at, lengths)
        made = Views(len(lengths))
        plain = np.flatnonzero(~packed)
        made.add(self._mapped, plain, columns.values_at[plain], lengths[plain])
        rows = np.flatnonzero(packed)
        if len(rows):
            sqns = self._sqns[columns.rows]
            made.add_packed(
                self._mapped, rows, columns.values_at[rows], lengths[rows],
                columns.raw_bytes[rows], lambda row: self._record(int(sqns[row])).value,
            )  # fmt: skip
        return made.array()
