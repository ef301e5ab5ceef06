"""Reads the records of a sealed journal file as columns; its offsets may be plain or sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, journal_rows
from octavo.files.journal.journal_rows import Headers
from octavo.files.journal.sparse_offsets import SparseOffsets, columns_of
from octavo.files.kernels.arrays import np, npt
from octavo.files.ledger.rows import Rows

_PART_BYTES = 36 << 20
"""What the rows of records that are looked at together may take."""
STRETCH = 1 << 17
"""Records that are looked at together, which takes some 200 bytes of memory each; fewer where keys
are long."""


class Table(NamedTuple):
    """Where the records of a file stand."""

    numbers: npt.NDArray[np.int64]
    """Their relative numbers, ascending."""
    starts: npt.NDArray[np.int64]
    """Where each begins; one more, for the end of the last."""
    size: int
    """How many numbers the file covers, with a record or without."""


def table_of(view: memoryview, path: str) -> Table:
    """The table of the sealed file ``view``. Raises Corruption."""
    trailer, offsets = cdb.sealed_offsets(view, path)
    numbers, places = columns_of(offsets)
    starts = places.astype(np.int64)
    if isinstance(offsets, SparseOffsets):
        in_order = bool((np.diff(numbers) > 0).all()) and bool((np.diff(starts) > 0).all())
        in_order = in_order and not (len(numbers) and numbers[-1] >= trailer.count)
    else:
        table = np.asarray(offsets, dtype=np.uint32).astype(np.int64)
        in_order = not bool((np.diff(table) < 0).any())
    if not in_order:
        raise Corruption(path, trailer.offsets_at, "record offsets are out of order")
    return Table(numbers, starts, trailer.count)


class Stretch(NamedTuple):
    """Neighbouring records of a file, an element for each, deletes and key deltas included."""

    of: slice
    """Which they are, in the table."""
    head: Headers
    rows: Rows
    """The ledger rows of their keys."""
    sizes: npt.NDArray[np.int64]
    """Bytes that they take in the file."""


def records_of(
    disk: Disk, journal: str, file: dict[str, Any]
) -> tuple[memoryview, Table, Iterator[Stretch]]:
    """``file_records`` of a file that is described as a job gets it."""
    return file_records(
        disk, f"{journal}/{file['name']}", file["seed"], file["base_sqn"], file["last_sqn"]
    )


def file_records(
    disk: Disk, path: str, seed: int, base_sqn: int, last_sqn: int | None = None
) -> tuple[memoryview, Table, Iterator[Stretch]]:
    """(bytes, table, all records in stretches, one at the least) of a file. ``last_sqn``: if given,
    the last sqn that the file must cover.

    Header checksums are verified as each stretch is given, values are not read. Raises Corruption,
    FileNotFoundError; the stretches raise Corruption.
    """
    view = memoryview(disk.map(path))
    table = table_of(view, path)
    if last_sqn is not None and table.size != last_sqn - base_sqn + 1:
        raise Corruption(path, 0, "covers other sqns than the manifest says")
    return view, table, _stretches(view, table, path, seed, base_sqn)


def _stretches(
    view: memoryview, table: Table, path: str, seed: int, base_sqn: int
) -> Iterator[Stretch]:
    for low in range(0, max(len(table.numbers), 1), STRETCH):
        of = slice(low, low + STRETCH)
        for some, head in headers_of(view, table, of, seed, path).few(_PART_BYTES, entries=False):
            here = slice(low + some.start, low + some.stop)
            sizes = np.diff(table.starts[here.start : here.stop + 1])
            yield Stretch(here, head, journal_rows.object_rows(head, base_sqn), sizes)


def headers_of(view: memoryview, table: Table, of: slice, seed: int, path: str) -> Headers:
    """Headers of some neighbouring records. Raises Corruption."""
    starts = table.starts[of.start : of.stop + 1].astype(np.uint32)
    head = journal_rows.headers_of(view, starts, 0, seed, path)
    head.relative = table.numbers[of]
    return head
