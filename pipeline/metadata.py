"""The data source ``octavo-metadata``: what a store is made of, as tables.

    spark.read.format("octavo-metadata").option("table", "files").load("/path/of/the/store")

- ``snapshots``: the published ones
- ``files``: those of ledger and journal that the manifests name
- ``levels``: of the ledger
- ``journal``: how much of each journal file is live; this one looks at every key, 0.1 us each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Misuse
from octavo.files.kernels.byte_strings import Ints
from octavo.files.ledger.bounds import HEAD_ROWS, OBJECTS
from octavo.files.ledger.ledger_key import HEAD_ONLY
from octavo.files.ledger.live_batches import Batch
from octavo.files.wall_clock import moment_of, wall_clock_ms
from octavo.manifest import pinning, published, store_identity
from octavo.pipeline.read_options import ddl_of, known_of, local_path, lowered
from octavo.pipeline.snapshot_choice import pinned
from octavo.pipeline.snapshot_files import SnapshotFiles

_LEASE_MS = 3_600_000
Row = tuple[Any, ...]


def _snapshots(path: str) -> Iterator[Row]:
    now_ms = wall_clock_ms()
    for each in published.listed(RealDisk(), path):
        yield (
            each.id, each.name or None, each.sqn, moment_of(each.taken_at),
            moment_of(each.expires_at), now_ms >= each.expires_at, each.keys, each.bytes,
        )  # fmt: skip


def _files(path: str) -> Iterator[Row]:
    found = pinning.read_manifests(RealDisk(), path)
    for file in found.ledger.entries:
        yield ("ledger", file.name, file.level, file.rows, file.bytes, file.min_sqn,
               file.max_sqn, file.tombstones, file.first_key, file.last_key)  # fmt: skip
    for entry in found.journal.entries:
        yield ("journal", entry.name, None, entry.count, entry.bytes, entry.base_sqn,
               entry.last_sqn, None, None, None)  # fmt: skip


def _levels(path: str) -> Iterator[Row]:
    for number, level in enumerate(pinning.read_manifests(RealDisk(), path).ledger.levels):
        yield (
            number, len(level), sum(file.rows for file in level),
            sum(file.bytes for file in level), sum(file.tombstones for file in level),
        )  # fmt: skip


def _journal(path: str) -> Iterator[Row]:
    found = pinned(path, _LEASE_MS, instead="")
    try:
        files = SnapshotFiles(found.path)
        entries = found.journal.entries
        keys = np.zeros(len(entries) + 1, dtype=np.int64)
        sizes = np.zeros(len(entries) + 1, dtype=np.float64)
        for batch in chain.from_iterable(map(files.batches, (HEAD_ROWS, OBJECTS))):
            sqns = batch.columns.sqns[batch.rows].astype(np.int64)
            which = np.searchsorted(files.bases, sqns, side="right")
            keys += np.bincount(which, minlength=len(keys))
            sizes += np.bincount(which, _sizes(batch), minlength=len(sizes))
        for number, entry in enumerate(entries, 1):
            live = int(keys[number])
            garbage = 100.0 * (1 - live / entry.count) if entry.count else 0.0
            yield (entry.name, entry.base_sqn, entry.last_sqn, entry.count, entry.bytes, live,
                   int(sizes[number]), garbage)  # fmt: skip
    finally:
        published.remove(RealDisk(), found.path)


def _sizes(batch: Batch) -> Ints:
    """The size of each value; in a head-only store values stand where others have metadata."""
    columns, rows = batch
    if columns.prefixes[0][0] == HEAD_ONLY and columns.metas is not None:
        found: Ints = columns.metas.lengths[rows]
        return found
    return columns.sizes[rows].astype(np.int64)


TABLES: dict[str, tuple[str, Callable[[str], Iterator[Row]]]] = {
    "snapshots": (
        (
            "id string, name string, sqn bigint, taken_at timestamp, expires_at timestamp, "
            "expired boolean, keys bigint, bytes bigint"
        ),
        _snapshots,
    ),
    "files": (
        (
            "half string, name string, level int, rows bigint, bytes bigint, min_sqn bigint, "
            "max_sqn bigint, tombstones bigint, first_key binary, last_key binary"
        ),
        _files,
    ),
    "levels": (
        "level int, files bigint, rows bigint, bytes bigint, tombstones bigint",
        _levels,
    ),
    "journal": (
        (
            "name string, base_sqn bigint, last_sqn bigint, records bigint, bytes bigint, "
            "live_records bigint, live_value_bytes bigint, garbage_percent double"
        ),
        _journal,
    ),
}
"""Of each table its columns and what gives its rows."""


def _columns(table: str) -> dict[str, str]:
    """Name and type of each column, in order."""
    return dict(each.split(" ") for each in TABLES[table][0].split(", "))


class DefaultSource(DataSource):
    """What ``spark.read.format("octavo-metadata")`` is."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "octavo-metadata"

    def _table(self) -> str:
        table = known_of(self.options, ("path", "table")).get("table", "snapshots")
        if table not in TABLES:
            raise Misuse(f"table={table!r}: there are {', '.join(TABLES)}")
        return table

    def schema(self) -> str:
        """The columns of the table."""
        return ddl_of(_columns(self._table()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads it in one task. Raises Misuse where there is no store, Corruption."""
        path = local_path(lowered(self.options).get("path", ""))
        try:
            store_identity.fields_of(RealDisk(), path)
        except (FileNotFoundError, NotADirectoryError):
            raise Misuse(f"there is no store at {path}") from None
        return _MetadataReader(self._table(), path, schema)


class _MetadataReader(DataSourceReader):
    def __init__(self, table: str, path: str, schema: StructType) -> None:
        self._table = table
        self._path = path
        self._picked = _places(table, schema)

    def read(self, partition: Any) -> Iterator[Row]:
        """The rows of the table, as they are now."""
        for row in TABLES[self._table][1](self._path):
            yield tuple(row[place] for place in self._picked)


def _places(table: str, schema: StructType) -> list[int]:
    """Which columns of the table a schema names, for Spark goes by their order alone. Raises Misuse
    for a column that the table does not have, or that does not fit, and for no column."""
    there = _columns(table)
    fitting = [
        field.nullable and there.get(field.name.lower()) == field.dataType.simpleString()
        for field in schema.fields
    ]
    if not fitting or not all(fitting):
        raise Misuse(
            f"schema={schema.simpleString()!r:.80}: the table {table} has the columns "
            f"{', '.join(map(' '.join, there.items()))}, which may be null"
        )
    return [list(there).index(field.name.lower()) for field in schema.fields]
