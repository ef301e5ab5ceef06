"""Makes Arrow arrays of columns of rows, without copies where that is possible."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.columns import ByteColumn, Bytes
from octavo.files.later import loading
from octavo.files.unbroken import unbroken

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("bucket", "key", "sqn", "size", "metadata", "written_at", "expires_at", "value")
"""The columns of a snapshot's rows, in the order in which they come if none are named."""

MAX_BINARY_BYTES = 2**31 - 2
"""The most bytes of all strings of a binary array, as for Arrow's own builder."""


@cache
def pyarrow() -> Any:
    """The module pyarrow. Raises Misuse that says what to install."""
    try:
        with unbroken, loading:
            import pyarrow
    except ImportError as wrong:
        raise Misuse("this needs pyarrow: pip install 'octavo[arrow]'") from wrong
    return pyarrow


@cache
def parquet() -> Any:
    """The module pyarrow.parquet. Raises Misuse as ``pyarrow``."""
    pa = pyarrow()
    with unbroken, loading:  # what a Ctrl-C breaks off there cannot be loaded again
        import pyarrow.parquet as found

        pa.array(())  # at which Arrow loads pandas
    return found


def room(count: int) -> Bytes:
    """Memory from Arrow's pool: that of the batch before, where malloc would ask for new pages."""
    return np.frombuffer(pyarrow().allocate_buffer(count), dtype=np.uint8)


def numbers(kind: pa.DataType, column: Any) -> pa.Array:
    """The numbers of this kind in a contiguous buffer, as an array. No copy."""
    pa = pyarrow()
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


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
    ends = column.offsets.astype(np.int32)
    validity = None
    if empty_is_null:
        validity = pa.py_buffer(np.packbits(ends[1:] > ends[:-1], bitorder="little"))
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(column.blob)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def refuse_too_many(length: int) -> None:
    """Raise Misuse where so many bytes do not fit into one binary array."""
    if length > MAX_BINARY_BYTES:
        raise Misuse(
            f"{length} bytes, of one value say, are more than Arrow's binary holds "
            f"({MAX_BINARY_BYTES}): read that value with get()"
        )


def refuse_large_value(length: int, bucket: bytes, key: bytes) -> None:
    """Raise Misuse, which names the key, where a value of so many bytes does not fit into a binary
    array."""
    if length > MAX_BINARY_BYTES:
        raise Misuse(
            f"the value of {shown(key)} in bucket {shown(bucket)} has {length} bytes, more than "
            f"Arrow's binary holds ({MAX_BINARY_BYTES}): read it with get(), and the others "
            "without that key, or without the column value"
        )


def large_binary_of(column: ByteColumn) -> pa.Array:
    """The strings as a large_binary array. No copy."""
    pa = pyarrow()
    buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.blob)]
    return pa.Array.from_buffers(pa.large_binary(), len(column.offsets) - 1, buffers)


def moments_array(
    moments: npt.NDArray[np.uint64] | None, rows: int, *, zero_is_null: bool, unit: str = "ms"
) -> pa.Array:
    """Moments UTC, in this unit, as timestamps; None: there are none."""
    pa = pyarrow()
    kind = pa.timestamp(unit, tz="UTC")
    if moments is None:
        return pa.nulls(rows, kind)
    validity = None
    if zero_is_null:
        validity = pa.py_buffer(np.packbits(moments > 0, bitorder="little"))
    buffer = pa.py_buffer(np.ascontiguousarray(moments).view(np.int64))
    return pa.Array.from_buffers(kind, rows, [validity, buffer])
