"""A ledger file as an Arrow record batch, its columns as they stand in the map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.files.errors import Misuse
from octavo.files.sst import Sst
from octavo.files.sst_layout import Section

if TYPE_CHECKING:
    import pyarrow as pa


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as wrong:
        raise Misuse("Arrow views need pyarrow: pip install octavo[arrow]") from wrong
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
    pa = _pyarrow()
    high = sst.rows if high is None else high
    if not 0 <= low <= high <= sst.rows:
        raise Misuse(f"low, high: within 0 and {sst.rows}, ascending, not {low}, {high}")
    sst.ensure_whole()
    sqns = sst.sqns if sqn_base == 0 else np.asarray(sst.sqns) + np.uint64(sqn_base)
    columns = {
        "key": _binary(pa, sst, Section.KEY_ENDS, Section.KEYS, None),
        "sqn": _numbers(pa, pa.uint64(), sst.rows, sqns),
        "size": _numbers(pa, pa.uint32(), sst.rows, sst.sizes),
        "flags": _numbers(pa, pa.uint8(), sst.rows, sst.flags),
        "metadata": _metadata(pa, sst),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return batch.slice(low, high - low)


def _numbers(pa: Any, kind: Any, rows: int, column: Any) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(column)])


def _binary(pa: Any, sst: Sst, ends: Section, blob: Section, validity: Any) -> Any:
    buffers = [validity, pa.py_buffer(sst.column(ends, "I")), pa.py_buffer(sst.column(blob, "B"))]
    return pa.Array.from_buffers(pa.binary(), sst.rows, buffers)


def _metadata(pa: Any, sst: Sst) -> Any:
    if Section.META_ENDS not in sst.layout.sections:
        return pa.nulls(sst.rows, pa.binary())
    ends = np.asarray(sst.column(Section.META_ENDS, "I"))
    validity = np.packbits(ends[1:] > ends[:-1], bitorder="little")
    return _binary(pa, sst, Section.META_ENDS, Section.METAS, pa.py_buffer(validity))
