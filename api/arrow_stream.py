"""Gives the contents of a snapshot as a stream of Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from octavo.actors.reader import Reader
from octavo.actors.scanning.batch_values import BatchValues
from octavo.files.argument_checks import shown, to_whole
from octavo.files.errors import Misuse
from octavo.files.kernels import arrow
from octavo.files.kernels.arrays import np
from octavo.files.kernels.arrow import COLUMNS
from octavo.files.kernels.byte_strings import Ints, gather
from octavo.files.ledger.chosen_rows import Asked
from octavo.files.ledger.live_batches import Batch, as_slice, end_to_end, names_of, parts_of

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 16 << 20
"""A batch has at most so many bytes, or one row."""
_FIXED = frozenset({"bucket", "key", "sqn", "expires_at"})
"""Columns that ledger and memory tables have, so that the journal need not be read."""


def to_columns(columns: object) -> tuple[str, ...]:
    """Names of columns, in the order given. Raises Misuse."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise Misuse(f"columns={shown(columns)}: allowed is a list of names")
    for name in columns:
        if not isinstance(name, str) or name not in COLUMNS:
            raise Misuse(f"columns names {shown(name)}: there are {', '.join(COLUMNS)}")
    if not columns or len(set(columns)) != len(columns):
        raise Misuse(f"columns={shown(columns)}: allowed are one or more names, each once")
    return tuple(columns)


def stream(
    reader: Reader, asked: Asked, columns: tuple[str, ...], batch_rows: object
) -> pa.RecordBatchReader:
    """The live rows that are asked for: see SnapshotBucket.to_arrow. Raises Misuse."""
    rows = to_whole("batch_rows", batch_rows, "are numbers from 1 up", 1)
    pa = arrow.pyarrow()
    schema = arrow.schema(columns)
    reader.check()
    return pa.RecordBatchReader.from_batches(schema, _batches(reader, asked, columns, rows, schema))


def _batches(
    reader: Reader, asked: Asked, columns: tuple[str, ...], batch_rows: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    pa = arrow.pyarrow()
    heads = not _FIXED.issuperset(columns)
    values = BatchValues(reader)
    found = (
        reader.batches(bound, asked.chosen, heads=heads, hashes=False) for bound in asked.ranges
    )
    for whole in chain.from_iterable(found):
        parts = parts_of(
            whole, batch_rows, _BATCH_BYTES,
            by_values="value" in columns, by_buckets="bucket" in columns,
        )  # fmt: skip
        for batch in parts:
            reader.step()
            rows = as_slice(batch.rows)
            arrays = [_array(name, batch, rows, whole, values) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(
    name: str, batch: Batch, rows: Ints | slice, whole: Batch, values: BatchValues
) -> pa.Array:
    """A column of a batch. ``rows``: as_slice of its rows."""
    pa = arrow.pyarrow()
    columns, count = batch.columns, len(batch.rows)
    if name == "bucket":
        names = names_of(batch)
        return arrow.binary_array(gather(names.blob, names.starts, names.lengths))
    if name == "key":
        return arrow.binary_array(end_to_end(columns.keys, rows))
    if name == "sqn":
        return arrow.numbers(pa.uint64(), columns.sqns[rows].astype(np.uint64, copy=False))
    if name == "size":
        return arrow.numbers(pa.uint32(), columns.sizes[rows].astype(np.uint32, copy=False))
    if name == "metadata":
        if columns.metas is None:
            return pa.nulls(count, pa.binary())
        return arrow.binary_array(end_to_end(columns.metas, rows), empty_is_null=True)
    if name == "written_at":
        return arrow.moments_array(columns.times[rows], count, zero_is_null=False)
    if name == "expires_at":
        moments = None if columns.expiries is None else columns.expiries[rows]
        return arrow.moments_array(moments, count, zero_is_null=True)
    return arrow.large_binary_of(values.column(batch, of=whole))


def capsule(
    stream_of: Callable[[Sequence[str] | None], pa.RecordBatchReader], requested_schema: object
) -> object:
    """A stream as a PyCapsule. If a schema is requested, it has the columns that this names, cast
    to its types. Raises Misuse."""
    if requested_schema is None:
        return stream_of(None).__arrow_c_stream__()
    pa = arrow.pyarrow()
    try:
        wanted = pa.Schema._import_from_c_capsule(requested_schema)
    except (TypeError, ValueError, pa.ArrowException) as wrong:
        raise Misuse(f"requested_schema is no capsule of an Arrow schema: {wrong}") from None
    found = stream_of(wanted.names)
    try:
        return found.cast(wanted).__arrow_c_stream__()
    except (TypeError, pa.ArrowException) as wrong:
        raise Misuse(f"requested_schema: {wrong}") from None
