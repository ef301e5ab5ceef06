"""What changed between two published snapshots as Arrow record batches, in the feed's columns.

Net changes: a key comes once at most, as a put of its newest version or as a delete. A delete has
its own sqn where the ledger still knows it, and else (the key expired, or merging dropped the mark)
the later snapshot's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from octavo.files.kernels.arrow import numbers
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.changed_batches import Changed
from octavo.files.ledger.chosen_rows import Chosen
from octavo.files.ledger.live_batches import Batch
from octavo.pipeline.arrow_rows import MOMENTS, column, cut, fitting, moments
from octavo.pipeline.snapshot_files import SnapshotFiles

_OF_A_ROW = {"_commit_sqn": "sqn", "_commit_timestamp": "written_at"}


def change_batches(
    files: SnapshotFiles,
    before: SnapshotFiles,
    bound: Bounds,
    chosen: Chosen | None,
    schema: pa.Schema,
    *,
    checksums: bool,
) -> Iterator[pa.RecordBatch]:
    """The changes of chosen keys of a range from ``before`` to ``files``, as record batches of
    exactly this schema. Raises Corruption, SnapshotExpired, Misuse (a type that does not fit)."""
    for changed in files.changes(before, bound, chosen):
        for batch in cut(changed.puts, schema.names):
            with files.reading():
                arrays = [_put(files, name, batch, checksums=checksums) for name in schema.names]
            yield fitting(arrays, schema)
        low = 0
        for batch in cut(changed.deletes, schema.names):
            here = slice(low, low + len(batch.rows))
            low = here.stop
            part = changed._replace(
                deletes=batch, sqns=changed.sqns[here], times=changed.times[here]
            )
            yield fitting([_delete(files, before, name, part) for name in schema.names], schema)


def _put(files: SnapshotFiles, name: str, batch: Batch, *, checksums: bool) -> pa.Array:
    if name == "_change_type":
        return pa.repeat("put", len(batch.rows))
    return column(files, _OF_A_ROW.get(name, name), batch, checksums=checksums)


def _delete(files: SnapshotFiles, before: SnapshotFiles, name: str, changed: Changed) -> pa.Array:
    count = len(changed.deletes.rows)
    if name in ("bucket", "key"):
        return column(before, name, changed.deletes, checksums=False)
    if name == "_change_type":
        return pa.repeat("delete", count)
    if name == "_commit_sqn":
        return numbers(pa.int64(), np.where(changed.sqns > 0, changed.sqns, files.found.sqn))
    if name == "_commit_timestamp":
        return moments(changed.times.view(np.uint64), count)
    return pa.nulls(count, MOMENTS if name == "expires_at" else pa.binary())
