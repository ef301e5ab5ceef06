"""Rows of a snapshot as Arrow record batches of 1 to 4 MB, in the schema that Spark wants.

Values are not copied one by one: an array of views into the maps of the journal is made by array
kernels, and one pass turns it into an array that holds its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from octavo.files.errors import Corruption, Misuse
from octavo.files.journal import record
from octavo.files.journal.journal_values import places_at, spans
from octavo.files.kernels.arrow import binary_array, moments_array, numbers, refuse_large_value
from octavo.files.kernels.byte_strings import gather
from octavo.files.kernels.cold_pages import COLD, scattered
from octavo.files.kernels.columns import ByteColumn, Strings, names_at
from octavo.files.ledger import ledger_key
from octavo.files.ledger.few_maps import most_mapped_bytes, most_maps
from octavo.files.ledger.head_key import apart
from octavo.files.ledger.live_batches import (
    Batch,
    as_slice,
    by_buckets,
    end_to_end,
    keys_of,
    names_of,
    parts_of,
    strings_of,
)
from octavo.pipeline.snapshot_files import SnapshotFiles
from octavo.pipeline.value_views import Views

_OF_HEADS = ("key", "sub_key", "value", "size", "metadata")
BATCH_ROWS = 1 << 15
BATCH_BYTES = 4 << 20
MOMENTS = pa.timestamp("us", tz="UTC")
LATEST_MS = 1 << 53
"""Later moments are given as this one."""


def record_batches(
    files: SnapshotFiles, batches: Iterator[Batch], schema: pa.Schema, *, checksums: bool
) -> Iterator[pa.RecordBatch]:
    """The rows as record batches of exactly this schema, whose names are among Arrow's COLUMNS.

    ``checksums``: verify that each record is as it was written, by windows of its file or by its
    own checksums. Keys and lengths are compared in any case. Raises Corruption, SnapshotExpired,
    Misuse (a type that does not fit).
    """
    for whole in batches:
        for batch in cut(whole, schema.names):
            with files.reading():
                arrays = [column(files, name, batch, checksums=checksums) for name in schema.names]
                made = fitting(arrays, schema)
            yield made


def cut(whole: Batch, names: Sequence[str]) -> Iterator[Batch]:
    """Cut a batch into parts of not too many rows, and bytes of these columns."""
    return parts_of(
        whole, BATCH_ROWS, BATCH_BYTES, by_values="value" in names, by_buckets="bucket" in names
    )


def column(files: SnapshotFiles, name: str, batch: Batch, *, checksums: bool) -> pa.Array:
    """One of COLUMNS, or ``sub_key``, as this module stores it."""
    columns, rows = batch
    if columns.prefixes[0][0] == ledger_key.HEAD_ONLY and name in _OF_HEADS:
        return _head_column(name, batch)
    if name == "sub_key":
        return pa.nulls(len(rows), pa.binary())
    if name == "bucket":
        names = names_of(batch)
        return binary_array(gather(names.blob, names.starts, names.lengths))
    if name == "key":
        return binary_array(end_to_end(columns.keys, as_slice(rows)))
    if name == "sqn":
        return numbers(pa.int64(), columns.sqns[rows].astype(np.int64))
    if name == "size":
        return numbers(pa.int64(), columns.sizes[rows].astype(np.int64))
    if name == "metadata":
        if columns.metas is None:
            return pa.nulls(len(rows), pa.binary())
        return binary_array(end_to_end(columns.metas, as_slice(rows)), empty_is_null=True)
    if name == "written_at":
        return moments(columns.times[rows], len(rows))
    if name == "expires_at":
        return moments(None if columns.expiries is None else columns.expiries[rows], len(rows))
    return _values(files, batch, checksums=checksums)


def _head_column(name: str, batch: Batch) -> pa.Array:
    """A column of a head-only store: keys there have two parts, and values are in the ledger."""
    columns, rows = batch
    if name == "metadata":
        return pa.nulls(len(rows), pa.binary())
    if name in ("key", "sub_key"):
        which = int(name == "sub_key")
        return pa.array([apart(whole)[which] for whole in keys_of(batch)], pa.binary())
    if columns.metas is None:
        if name == "value":
            return pa.array([b""] * len(rows), pa.binary())
        return numbers(pa.int64(), np.zeros(len(rows), np.int64))
    found = strings_of(columns.metas, rows)
    return binary_array(found) if name == "value" else numbers(pa.int64(), np.diff(found.offsets))


def fitting(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Columns as a batch of exactly this schema. Raises Misuse where a type does not fit."""
    fitted = [_fitted(array, field) for array, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def _fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type.equals(field.type):
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise Misuse(
            f"column {field.name!r} is {array.type}, the schema wants {field.type}: {wrong}"
        ) from None


def moments(
    moments: npt.NDArray[np.uint64] | None, rows: int, *, zero_is_null: bool = True
) -> pa.Array:
    """Moments in ms UTC as timestamps of microseconds; None: there are none."""
    if moments is not None:
        moments = np.minimum(moments, np.uint64(LATEST_MS)) * np.uint64(1000)
    return moments_array(moments, rows, zero_is_null=zero_is_null, unit="us")


# ---------------------------------------------------------------- values


def _values(files: SnapshotFiles, batch: Batch, *, checksums: bool) -> pa.Array:
    """The value of each row."""
    columns, rows = batch
    made = Views(len(rows))
    opened: set[str] = set()
    kept = most_maps() if most_mapped_bytes() is None else 0
    sqns, sizes = columns.sqns[rows].astype(np.int64), columns.sizes[rows]
    keys = strings_of(columns.keys, rows)
    strings = keys.strings()
    for tag, bucket, low, high in by_buckets(batch):
        largest = low + int(sizes[low:high].argmax())
        refuse_large_value(int(sizes[largest]), _name(bucket, largest), _key(keys, largest))
        order = np.argsort(sqns[low:high], kind="stable") + low
        cuts = np.searchsorted(sqns[order], files.bases).tolist()
        if cuts and cuts[0] > 0:
            files.record(int(sqns[order[0]]))  # raises
        for number, (begin, end) in enumerate(pairwise([*cuts, len(order)])):
            which = order[begin:end]
            if not len(which):
                continue
            entry = files.found.journal.entries[number]
            opened.add(entry.name)
            mapped, offsets = files.open_journal(entry)
            begins, ends = spans(offsets, sqns[which] - entry.base_sqn)
            COLD.ahead(scattered(mapped), begins, ends)
            right = files.right(entry) if checksums else None
            names = names_at(bucket, which)
            found = places_at(mapped, begins, ends, right, tag, names, strings.picked(which))
            plain = np.flatnonzero(found.good & (found.raw_bytes < 0))
            add = made.add_copied if len(opened) > kept else made.add
            add(mapped, which[plain], found.at[plain], found.lengths[plain])
            packed = np.flatnonzero(found.good & (found.raw_bytes >= 0))
            if len(packed):
                made.add_packed(
                    mapped, which[packed], found.at[packed], found.lengths[packed],
                    found.raw_bytes[packed], lambda row: files.record(int(sqns[row])).value,
                )  # fmt: skip
            for row in which[~found.good].tolist():
                _add_with_care(made, files, row, int(sqns[row]), tag, _name(bucket, row), keys)
    return made.array()


def _add_with_care(
    made: Views,
    files: SnapshotFiles,
    row: int,
    sqn: int,
    tag: int,
    bucket: bytes,
    keys: ByteColumn,
) -> None:
    """Add a row that did not come the short way. Raises what is wrong with it, if anything is."""
    key = _key(keys, row)
    whole = files.record(sqn)
    if (whole.kind, whole.tag, whole.bucket, whole.key) != (record.PUT, tag, bucket, key):
        raise Corruption(
            files.found.path, 0, f"sqn {sqn} is of another key than the ledger says",
            expected=key[:80], found=whole.key[:80],
        )  # fmt: skip
    made.add_bytes([row], [whole.value])


def _name(bucket: bytes | Strings, row: int) -> bytes:
    return bucket if isinstance(bucket, bytes) else bucket.one(row)


def _key(keys: ByteColumn, row: int) -> bytes:
    return keys.blob[keys.offsets[row] : keys.offsets[row + 1]].tobytes()
