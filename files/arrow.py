"""Ledger files and batches of rows as Arrow record batches."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from octavo.files.arrays import np, npt
from octavo.files.errors import Misuse
from octavo.files.rows import ByteColumn
from octavo.files.sst import Sst
from octavo.files.sst_layout import MAX_BLOB_BYTES, Section

if TYPE_CHECKING:
    import pyarrow as pa


def pyarrow() -> Any:
    """The module. Raises Misuse that says what to install."""
    try:
        import pyarrow
    except ImportError as wrong:
        raise Misuse("this needs pyarrow: pip install octavo[arrow]") from wrong
    return pyarrow


def record_batch(
    sst: Sst, sqn_base: int = 0, low: int = 0, high: int | None = None
) -> pa.RecordBatch:
    """Rows [low, high) of a file, ``high=None`` for all to the end, as a pyarrow.RecordBatch.

    Columns: ``key`` (binary: as the user gave it, without tag and bucket; ``sst.groups()``
    says which rows are which bucket's), ``sqn`` (uint64), ``size`` (uint32, bytes of the
    value), ``flags`` (uint8: see rows.py; tombstones are rows too), ``metadata`` (binary, null
    where a row has none).

    Nothing is copied, with two exceptions: a ``sqn_base`` other than 0 is added to the sqns,
    and one bit a row says where metadata is null. The batch keeps the map alive. Checksums are
    verified before the first view: 0.1 ms a MiB, once. Raises Corruption, Misuse where pyarrow
    is not installed or the range is not within the file.
    """
    pa = pyarrow()
    high = sst.rows if high is None else high
    if not 0 <= low <= high <= sst.rows:
        raise Misuse(f"low, high: within 0 and {sst.rows}, ascending, not {low}, {high}")
    sst.ensure_whole()
    sqns = sst.sqns if sqn_base == 0 else np.asarray(sst.sqns) + np.uint64(sqn_base)
    columns = {
        "key": _binary(pa, sst, Section.KEY_ENDS, Section.KEYS, None),
        "sqn": numbers(pa.uint64(), sqns),
        "size": numbers(pa.uint32(), sst.sizes),
        "flags": numbers(pa.uint8(), sst.flags),
        "metadata": _metadata(pa, sst),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return batch.slice(low, high - low)


def numbers(kind: pa.DataType, column: Any) -> pa.Array:
    """A column of the numbers in a contiguous buffer of that kind. No copy."""
    pa = pyarrow()
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _binary(pa: Any, sst: Sst, ends: Section, blob: Section, validity: Any) -> Any:
    buffers = [validity, pa.py_buffer(sst.column(ends, "I")), pa.py_buffer(sst.column(blob, "B"))]
    return pa.Array.from_buffers(pa.binary(), sst.rows, buffers)


def _metadata(pa: Any, sst: Sst) -> Any:
    if Section.META_ENDS not in sst.layout.sections:
        return pa.nulls(sst.rows, pa.binary())
    ends = np.asarray(sst.column(Section.META_ENDS, "I"))
    validity = np.packbits(ends[1:] > ends[:-1], bitorder="little")
    return _binary(pa, sst, Section.META_ENDS, Section.METAS, pa.py_buffer(validity))


# ---------------------------------------------------------------- columns of their own


@cache
def schema(names: tuple[str, ...]) -> pa.Schema:
    """The schema of a stream of these columns. Raises Misuse where pyarrow is not installed."""
    pa = pyarrow()
    moment = pa.timestamp("ms", tz="UTC")
    fields = {
        "bucket": pa.field("bucket", pa.binary(), nullable=False),
        "key": pa.field("key", pa.binary(), nullable=False),
        "sqn": pa.field("sqn", pa.uint64(), nullable=False),
        "size": pa.field("size", pa.uint32(), nullable=False),
        "metadata": pa.field("metadata", pa.binary()),
        "written_at": pa.field("written_at", moment, nullable=False),
        "expires_at": pa.field("expires_at", moment),
        "value": pa.field("value", pa.large_binary(), nullable=False),
    }
    return pa.schema([fields[name] for name in names])


def binary_array(column: ByteColumn, *, empty_is_null: bool = False) -> pa.Array:
    """The strings as a binary array. No copy of their bytes. Raises Misuse where they are more
    than such an array can hold."""
    pa = pyarrow()
    refuse_too_many(int(column.offsets[-1]))
    lengths = column.offsets[1:] - column.offsets[:-1]
    validity = None
    if empty_is_null:
        validity = pa.py_buffer(np.packbits(lengths > 0, bitorder="little"))
    ends = column.offsets.astype(np.int32)
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(column.blob)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def refuse_too_many(length: int) -> None:
    """Raise Misuse where so many bytes do not fit into one binary array."""
    if length > MAX_BLOB_BYTES:
        raise Misuse(
            f"{length} bytes, of one value say, are more than Arrow's binary holds "
            f"({MAX_BLOB_BYTES}): read that value with get()"
        )


def large_binary_of(column: ByteColumn) -> pa.Array:
    """The strings as a large_binary array. No copy."""
    pa = pyarrow()
    buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.blob)]
    return pa.Array.from_buffers(pa.large_binary(), len(column.offsets) - 1, buffers)


def moments_array(
    moments: npt.NDArray[np.uint64] | None, rows: int, *, zero_is_null: bool
) -> pa.Array:
    """Moments in ms UTC as timestamps; None: there are none."""
    pa = pyarrow()
    kind = pa.timestamp("ms", tz="UTC")
    if moments is None:
        return pa.nulls(rows, kind)
    validity = None
    if zero_is_null:
        validity = pa.py_buffer(np.packbits(moments > 0, bitorder="little"))
    buffer = pa.py_buffer(np.ascontiguousarray(moments).view(np.int64))
    return pa.Array.from_buffers(kind, rows, [validity, buffer])
