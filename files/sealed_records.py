"""The records of a sealed journal file as columns, whichever table of offsets it has."""

from __future__ import annotations

from typing import Any, NamedTuple

from octavo.files import cdb, journal_rows
from octavo.files.arrays import np, npt
from octavo.files.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal_rows import Headers
from octavo.files.rows import Rows
from octavo.files.sparse_offsets import SparseOffsets, columns_of


class Table(NamedTuple):
    """Where the records of a file stand."""

    numbers: npt.NDArray[np.int64]
    """Their relative numbers, ascending."""
    starts: npt.NDArray[np.int64]
    """Where each begins; one more, for the end of the last."""
    size: int
    """Numbers that the file covers, there or not."""


def table_of(view: memoryview, path: str) -> Table:
    """The table of a sealed file, which is the whole buffer. Raises Corruption."""
    trailer, offsets = cdb.sealed_offsets(view, path)
    numbers, places = columns_of(offsets)
    starts = places.astype(np.int64)
    if isinstance(offsets, SparseOffsets):
        in_order = bool((np.diff(numbers) > 0).all()) and bool((np.diff(starts) > 0).all())
        in_order = in_order and not (len(numbers) and numbers[-1] >= trailer.count)
    else:
        in_order = not bool((np.diff(np.asarray(offsets).astype(np.int64)) < 0).any())
    if not in_order:
        raise Corruption(path, trailer.offsets_at, "record offsets are out of order")
    return Table(numbers, starts, trailer.count)


def records_of(
    disk: Disk, journal: str, file: dict[str, Any]
) -> tuple[memoryview, Table, Headers, Rows]:
    """``file_records`` of a file as a job is told of it."""
    return file_records(
        disk, f"{journal}/{file['name']}", file["seed"], file["base_sqn"], file["last_sqn"]
    )


def file_records(
    disk: Disk, path: str, seed: int, base_sqn: int, last_sqn: int | None = None
) -> tuple[memoryview, Table, Headers, Rows]:
    """(bytes, table, headers, ledger rows of the keys) of a file, an element for each record,
    deletes and key deltas included. ``last_sqn``: where given, what it must cover.

    Header checksums are verified, values are not read. Raises Corruption, FileNotFoundError.
    """
    view = memoryview(disk.map(path))
    table = table_of(view, path)
    if last_sqn is not None and table.size != last_sqn - base_sqn + 1:
        raise Corruption(path, 0, "covers other sqns than the manifest says")
    head = journal_rows.headers_of(view, table.starts.astype(np.uint32), 0, seed, path)
    head.relative = table.numbers
    return view, table, head, journal_rows.object_rows(head, base_sqn)
