"""The changes of a stretch of the journal as Arrow record batches, in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from octavo.files.journal import record
from octavo.files.journal.record_columns import columns_of
from octavo.files.journal.sparse_offsets import SparseOffsets
from octavo.pipeline.arrow_rows import BATCH_BYTES
from octavo.pipeline.feed_files import Opened
from octavo.pipeline.put_arrays import PutArrays, of_records

_ROWS = 8192
_KINDS = (record.PUT, record.DELETE)


def change_arrays(file: Opened, tag: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The changes of a type of objects in a file's stretch, every checksum verified, as batches of
    exactly this schema. Raises Corruption, Misuse (a value that is too large for Arrow, a type that
    does not fit)."""
    low, stop = file.here.start, file.here.stop
    while low < stop:
        here = range(low, min(low + _ROWS, stop))
        # A large one comes alone: Arrow has a bound for all values of a batch.
        here = range(low, max(low + 1, file.places.reaching(here, BATCH_BYTES)))
        yield from _batches(file, here, tag, schema)
        low = here.stop


def _batches(file: Opened, here: range, tag: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Puts by array kernels; deletes, and what does not look as a put does, one by one."""
    places = file.places
    numbers = np.array(places.numbers[here.start : here.stop], dtype=np.uint32)
    starts = [*places.starts[here.start : here.stop], places.ends[here.stop - 1]]
    offsets = SparseOffsets(numbers.data, np.array(starts, dtype=np.uint32).data, 0)
    relative = numbers.astype(np.int64)
    columns, careful = columns_of(file.mapped, offsets, relative, file.seed, tag)
    others = []
    for row in careful.tolist():
        found = file.read(here.start + row)
        if found.kind in _KINDS and found.tag == tag:
            others.append((row, found))
    made = PutArrays(file.mapped, relative + file.base, file.of).batches(columns, schema)
    if not others:
        yield from made
        return
    few = sum(len(found.value) for _, found in others) <= BATCH_BYTES
    if len(made) > 1 or not few:  # values that are compressed well
        yield from _one_by_one(file, here, tag, schema)
        return
    made.append(of_records([found for _, found in others], schema))
    rows = [*columns.rows.tolist(), *(row for row, _ in others)]
    order = np.argsort(np.array(rows), kind="stable")
    whole = pa.Table.from_batches(made).combine_chunks().take(pa.array(order.tolist()))
    yield from whole.combine_chunks().to_batches()


def _one_by_one(file: Opened, here: range, tag: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows: list[record.Record] = []
    size = 0
    for found in map(file.read, here):
        if found.kind not in _KINDS or found.tag != tag:
            continue
        more = len(found.value) + len(found.key) + len(found.metadata)
        if rows and size + more > BATCH_BYTES:
            yield of_records(rows, schema)
            rows, size = [], 0
        rows.append(found)
        size += more
    if rows:
        yield of_records(rows, schema)
