"""Arrow batches of a DataFrame as operations of a job: which columns there may be, and their rules.

key            binary or string, never null, never empty
value          binary or string; null deletes the key (not if _change_type says that it is a put)
bucket         binary or string; not null. Without the column: the option ``bucket``, or ""
metadata       binary or string; null: none
expires_at     timestamp, or bigint of ms UTC; null, and 0 of a bigint: never
_change_type   string: "put" or "delete", as a change feed has it
sqn, size, written_at, _commit_sqn, _commit_timestamp   ignored: the store gives its own
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from octavo.files.errors import Misuse
from octavo.files.journal.record_batch import Operations
from octavo.files.kernels.byte_strings import Ints, Mask, Words, lengths_of
from octavo.files.kernels.columns import ByteColumn
from octavo.files.wall_clock import LIKE_SECONDS, YEAR_10000_MS

_STRINGS = ("binary", "string")
_TIMES = ("timestamp", "bigint")
_PARTS = ("array", "map", "struct", "variant")
_WITHOUT_ORDER = (*_PARTS, "void", "interval year", "interval month")
ALLOWED: dict[str, tuple[str, ...]] = {
    "key": _STRINGS,
    "value": _STRINGS,
    "bucket": _STRINGS,
    "metadata": _STRINGS,
    "expires_at": _TIMES,
    "_change_type": ("string",),
}
IGNORED = ("sqn", "size", "written_at", "_commit_sqn", "_commit_timestamp")
_KINDS = ("put", "delete")


def named(names: Sequence[str]) -> list[str]:
    """Names of columns as they are here, where only their case differs: to Spark that is the same,
    unless spark.sql.caseSensitive says otherwise. An exact name stands for itself."""
    known = {name for name in (*ALLOWED, *IGNORED) if name not in names}
    every = [name.lower() for name in names]
    once = {name for name in known if every.count(name) == 1}
    return [low if low in once else name for name, low in zip(names, every, strict=True)]


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
            hint = f": lit(None).cast({allowed[0]!r})" if kind == "void" else "; cast it"
            if kind == "timestamp_ntz" and allowed is _TIMES:
                hint += " to timestamp_ltz"
            if kind.startswith(_PARTS) and "string" in allowed:
                hint = "; to_json makes a string of it"
            raise Misuse(
                f"column {name!r} is of type {kind}; allowed: {' or '.join(allowed)}{hint}"
            )
    if order_column and order_column not in there:
        raise Misuse(f"orderColumn={order_column!r}: there is no such column")
    kind = there.get(order_column, "")
    if kind.startswith(_WITHOUT_ORDER) or " collate " in kind:  # Arrow, which orders, knows none
        hint = "; cast it to string" if " collate " in kind else ""
        raise Misuse(f"orderColumn={order_column!r} is of type {kind}: not ordered{hint}")


def operations(batch: pa.RecordBatch, bucket: bytes) -> Operations:
    """The rows of a batch whose schema was checked, and that is not empty. Raises Misuse."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns, bucket = _needed(columns, bucket)
    _refuse_nulls(columns["key"], "key")
    keys = _strings(columns["key"])
    lengths = lengths_of(keys.offsets)
    if not lengths.all():
        raise Misuse(f"column 'key': row {int(lengths.argmin())} is empty")
    deletes = _deletes(columns)
    names, which = _buckets(columns["bucket"]) if "bucket" in columns else ([bucket], None)
    expiries = _expiries(columns["expires_at"]) if "expires_at" in columns else None
    if expiries is not None and deletes is not None:
        expiries[deletes] = 0

    def strings(name: str) -> ByteColumn:
        """A column, its nulls and those of what is deleted empty."""
        column = columns[name]
        if deletes is not None:
            column = pc.if_else(pa.array(deletes), pa.scalar(None, column.type), column)
        return _strings(column)

    none = ByteColumn(np.zeros(0, np.uint8), np.zeros(len(lengths) + 1, np.int64))
    return Operations(
        keys=keys,
        values=strings("value") if "value" in columns else none,
        buckets=names,
        which=which,
        deletes=deletes,
        expiries=expiries,
        metas=strings("metadata") if "metadata" in columns else None,
    )


def _needed(columns: dict[str, Any], bucket: bytes) -> tuple[dict[str, Any], bytes]:
    """The columns without those that say no more than their absence would, and the bucket: what is
    left is often plain puts, which cost less than others."""
    columns = dict(columns)
    for name in ("metadata", "expires_at"):
        if name in columns and columns[name].null_count == len(columns[name]):
            del columns[name]
    buckets = columns.get("bucket")
    if buckets is not None and _all_are(buckets, buckets[0]):
        (bucket,) = _names(buckets[:1])
        del columns["bucket"]
    return columns, bucket


def _all_are(column: Any, value: Any) -> bool:
    """Whether no row is null and each is this."""
    return not column.null_count and bool(pc.all(pc.equal(column, value)).as_py())


def _deletes(columns: dict[str, Any]) -> Mask | None:
    """Which rows delete their key; None where none does. Raises Misuse."""
    if "_change_type" in columns:
        kinds = columns["_change_type"]
        known = pc.fill_null(pc.is_in(kinds, pa.array(_KINDS, kinds.type)), False)
        if not pc.all(known).as_py():
            row = pc.index(known, False).as_py()
            said = kinds.cast(_binary(kinds.type))[row].as_py()  # which may be any bytes
            text = said if said is None else said.decode(errors="backslashreplace")
            raise Misuse(f"column '_change_type': row {row} is {text!r:.80}, not put or delete")
        found = pc.equal(kinds, "delete")
        _refuse_puts_without_value(columns.get("value"), pc.invert(found))
    elif not columns["value"].null_count:
        return None  # without to_numpy, for which Arrow loads pandas: 0.2 s of each worker's
    else:
        found = pc.is_null(columns["value"])
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask if mask.any() else None


def _refuse_puts_without_value(values: Any, puts: Any) -> None:
    """Raise Misuse that names the first put whose value is null; an empty value is one."""
    if values is None:
        row = pc.index(puts, True).as_py()
        if row >= 0:
            raise Misuse(f"no column 'value', and row {row} is a put")
    elif values.null_count:
        row = pc.index(pc.and_(puts, pc.is_null(values)), True).as_py()
        if row >= 0:
            raise Misuse(f"column 'value': row {row} is null, but it is a put")


def _binary(kind: Any) -> Any:
    return pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()


def _buckets(column: Any) -> tuple[list[bytes], Ints]:
    """(names of the buckets, ascending, which of them each row is of). Raises Misuse."""
    _refuse_nulls(column, "bucket")
    coded = column.dictionary_encode()
    found = _names(coded.dictionary)
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return [found[number] for number in order], rank[coded.indices.to_numpy()]


def _names(column: Any) -> list[bytes]:
    strings = _strings(column)  # what Spark calls a string may be any bytes
    return [strings.blob[low:high].tobytes() for low, high in pairwise(strings.offsets.tolist())]


def _refuse_nulls(column: Any, name: str) -> None:
    """Raise Misuse that names the first row that is null."""
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise Misuse(f"column {name!r}: row {row} is null")


def _strings(column: Any) -> ByteColumn:
    """A column's byte strings, its nulls empty. No copy where there is none."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(b"", column.type))
    _, offsets, blob = column.buffers()
    found = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    raw = np.frombuffer(b"" if blob is None else blob, dtype=np.uint8)
    return ByteColumn(raw, found[column.offset :][: len(column) + 1].astype(np.int64))


def _expiries(column: Any) -> Words:
    """Expiries, ms UTC; 0: never. Raises Misuse, as a put does, but a bigint may be 0."""
    known = pc.is_valid(column)
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False), pa.int64())
        lowest = 1  # as a moment, 1970 is long ago and not never
    else:
        lowest = 0
    found: Ints = pc.fill_null(column, 0).to_numpy()
    for wrong, why in (
        (known.to_numpy(zero_copy_only=False) & (found < lowest), "is before 1970"),
        (found >= YEAR_10000_MS, "is beyond the year 9999"),
        ((found >= LIKE_SECONDS.start) & (found < LIKE_SECONDS.stop), "looks like seconds"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise Misuse(
                f"column 'expires_at': row {row} {why}: {found[row]}; allowed are moments, and ms "
                "since 1970 UTC"
            )
    return found.astype(np.uint64)
