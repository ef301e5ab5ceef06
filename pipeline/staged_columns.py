"""Arrow batches of a DataFrame as operations of a job: which columns there may be, and their rules.

key            binary or string, never null, never empty
value          binary or string; null deletes the key
bucket         binary or string; not null. Without the column: the option ``bucket``, or ""
metadata       binary or string; null: none
expires_at     timestamp, or bigint of ms UTC; null: never
_change_type   string: "put" or "delete", as a change feed has it
sqn, written_at, _commit_sqn, _commit_timestamp   ignored: the store gives its own
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from octavo.files.byte_strings import as_list, lengths_of
from octavo.files.errors import Misuse
from octavo.files.rows import ByteColumn
from octavo.files.staged_writer import StagedRow, StagedWriter

_STRINGS = ("binary", "string")
_TIMES = ("timestamp", "bigint")
ALLOWED: dict[str, tuple[str, ...]] = {
    "key": _STRINGS,
    "value": _STRINGS,
    "bucket": _STRINGS,
    "metadata": _STRINGS,
    "expires_at": _TIMES,
    "_change_type": ("string",),
}
IGNORED = ("sqn", "written_at", "_commit_sqn", "_commit_timestamp")
_KINDS = ("put", "delete")


def check_schema(fields: Sequence[tuple[str, str]], order_column: str = "") -> None:
    """Refuse columns (name, Spark's name of its type) that cannot be written. Raises Misuse."""
    there = dict(fields)
    if "key" not in there:
        raise Misuse(f"no column 'key' (there are {', '.join(there) or 'none'}): it is required")
    if "value" not in there and "_change_type" not in there:
        raise Misuse("no column 'value': it is required (null deletes the key)")
    for name, kind in fields:
        allowed = ALLOWED.get(name)
        if allowed is None:
            if name in IGNORED or name == order_column:
                continue
            raise Misuse(
                f"column {name!r}: not one that is stored; allowed are {', '.join(ALLOWED)} "
                f"(and {', '.join(IGNORED)}, which are ignored)"
            )
        if kind not in allowed:
            raise Misuse(f"column {name!r} is of type {kind}; allowed: {' or '.join(allowed)}")
    if order_column and order_column not in there:
        raise Misuse(f"orderColumn={order_column!r}: there is no such column")


def stage(writer: StagedWriter, batch: pa.RecordBatch | pa.Table, bucket: bytes) -> None:
    """Add the rows of a batch whose schema was checked. Raises Misuse, OSError."""
    if not batch.num_rows:
        return
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns, bucket = _needed(columns, bucket)
    if columns.keys() <= {"key", "value", *IGNORED} and "value" in columns:
        found = _byte_column(columns["key"]), _byte_column(columns["value"])
        if found[0] is not None and found[1] is not None and lengths_of(found[0].offsets).all():
            writer.put_columns(bucket, found[0], found[1])
            return
    keys = _strings(columns, "key")
    if None in keys or b"" in keys:
        what = "null" if None in keys else "empty"
        raise Misuse(f"column 'key': row {keys.index(None if what == 'null' else b'')} is {what}")
    values: list[Any] = [None] * len(keys)
    if "value" in columns:
        values = _strings(columns, "value")
    plain = not columns.keys() & {"bucket", "metadata", "expires_at", "_change_type"}
    if plain and None not in values:
        writer.put_many(bucket, keys, values)
        return
    buckets = _strings(columns, "bucket") if "bucket" in columns else [bucket] * len(keys)
    if None in buckets:
        raise Misuse(f"column 'bucket': row {buckets.index(None)} is null")
    metas = _strings(columns, "metadata") if "metadata" in columns else [None] * len(keys)
    expiries = _expiries(columns.get("expires_at"), len(keys))
    kinds = columns["_change_type"].to_pylist() if "_change_type" in columns else None
    for row, key in enumerate(keys):
        value = values[row]
        if kinds is not None:
            if kinds[row] not in _KINDS:
                raise Misuse(
                    f"column '_change_type': row {row} is {kinds[row]!r}, not put or delete"
                )
            value = None if kinds[row] == "delete" else value or b""
        alive = value is not None
        writer.add(
            StagedRow(
                buckets[row],
                key,
                value,
                expiries[row] if alive else 0,
                (metas[row] or b"") if alive else b"",
            )
        )


def _needed(columns: dict[str, Any], bucket: bytes) -> tuple[dict[str, Any], bytes]:
    """The columns without those that say the same of all rows as their absence would, and the
    bucket: what is left is often plain puts, which cost a fifth of others."""
    columns = dict(columns)
    for name in ("metadata", "expires_at"):
        if name in columns and columns[name].null_count == len(columns[name]):
            del columns[name]
    kinds, values = columns.get("_change_type"), columns.get("value")
    whole = values is not None and not values.null_count
    if whole and kinds is not None and _all_are(kinds, "put"):
        del columns["_change_type"]
    buckets = columns.get("bucket")
    if buckets is not None and _all_are(buckets, buckets[0]):
        (bucket,) = _strings({"bucket": buckets[:1]}, "bucket")
        del columns["bucket"]
    return columns, bucket


def _all_are(column: Any, value: Any) -> bool:
    """Whether no row is null and each is this."""
    return not column.null_count and bool(pc.all(pc.equal(column, value)).as_py())


def _byte_column(column: Any) -> ByteColumn | None:
    """A column without a null; None where it is of several pieces or otherwise."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            return None
        column = column.chunk(0)
    small = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if column.null_count or not small:
        return None
    _, offsets, blob = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    raw = np.frombuffer(b"" if blob is None else blob, dtype=np.uint8)
    return ByteColumn(raw, ends.astype(np.int64))


def _strings(columns: dict[str, Any], name: str) -> list[Any]:
    """A column's byte strings; None where it is null."""
    column = columns[name]
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # too large for one chunk
            return [item for chunk in column.chunks for item in _strings({name: chunk}, name)]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    if column.null_count or not pa.types.is_binary(column.type):
        return list(column.to_pylist())
    _, offsets, blob = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    whole = b"" if blob is None else blob.to_pybytes()
    return as_list(whole, ends.astype(np.int64))


def _expiries(column: Any, count: int) -> list[int]:
    if column is None:
        return [0] * count
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False), pa.int64())
    found = pc.fill_null(column, 0).to_pylist()
    if min(found) < 0:
        raise Misuse(f"column 'expires_at': row {found.index(min(found))} is before 1970")
    return list(found)
