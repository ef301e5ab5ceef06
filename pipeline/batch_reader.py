"""The batch reader of the data source: rows of a published snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from octavo.files import ledger_key
from octavo.files.bounds import Bounds
from octavo.files.errors import Misuse
from octavo.pipeline.arrow_rows import COLUMNS, record_batches
from octavo.pipeline.partitions import KeyRange, partitions, ranges_of
from octavo.pipeline.read_options import ReadOptions
from octavo.pipeline.snapshot_files import SnapshotFiles


def tag_number(files: SnapshotFiles, name: str) -> int:
    """The number of a type of objects. Raises Misuse that lists those that are there."""
    known = {count.name: number for number, count in files.found.counts.items()}
    if name == "standard" and ledger_key.HEAD_ONLY in files.found.counts:
        return ledger_key.HEAD_ONLY
    if name not in known:
        raise Misuse(f"tag={name!r}: the store has {', '.join(known)}")
    return known[name]


def to_schema(schema: StructType) -> pa.Schema:
    """Arrow's schema of what Spark wants. Raises Misuse for a column that there is not."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise Misuse(f"the schema names {field.name!r}: there are {', '.join(COLUMNS)}")
    return to_arrow_schema(schema, timezone="UTC")


class SnapshotReader(DataSourceReader):
    """Reads the rows of a published snapshot, a range of keys a task."""

    def __init__(self, options: ReadOptions, snapshot_path: str, schema: StructType) -> None:
        self._options = options
        self._path = snapshot_path
        self._schema = schema
        to_schema(schema)

    def partitions(self) -> list[Any]:
        """Ranges of about ``splitBytes`` each."""
        files = SnapshotFiles(self._path)
        tag = tag_number(files, self._options.tag)
        found = partitions(
            files,
            self._within(ranges_of(files, tag, self._options)),
            values="value" in self._schema.names,
            split_bytes=self._options.split_bytes,
        )
        return found or [KeyRange([])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition as Arrow record batches. In an executor."""
        files = SnapshotFiles(self._path)
        schema = to_schema(self._schema)
        for bound in partition.parts:
            yield from record_batches(
                files, files.batches(bound), schema, checksums=self._options.checksums
            )

    def _within(self, ranges: list[Bounds]) -> list[Bounds]:
        return ranges


class PushingReader(SnapshotReader):
    """Takes Spark's filters on ``key`` and ``bucket``. (A reader that could refuses to work where
    Spark's setting is off, so this one is only made for the option ``pushdown``.)"""

    def __init__(self, options: ReadOptions, snapshot_path: str, schema: StructType) -> None:
        super().__init__(options, snapshot_path, schema)
        self._low: bytes | None = None
        self._high: bytes | None = None
        self._bucket: bytes | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the key range; every filter is left to Spark, too, who compares the rest."""
        for each in filters:
            self._take(each)
        return filters

    def _take(self, each: Filter) -> None:
        if isinstance(each, In) and each.attribute == ("key",) and each.value:
            keys = [_bytes(value) for value in each.value]
            known = [key for key in keys if key is not None]
            if len(known) == len(keys):
                self._narrow(min(known), max(known) + b"\0")
            return
        if not isinstance(
            each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        ):
            return
        value = _bytes(each.value)
        if value is None:
            return
        if each.attribute == ("bucket",) and isinstance(each, EqualTo):
            self._bucket = value
        elif each.attribute == ("key",):
            if isinstance(each, EqualTo):
                self._narrow(value, value + b"\0")
            elif isinstance(each, GreaterThan | GreaterThanOrEqual):
                self._narrow(value, None)
            elif isinstance(each, LessThan):
                self._narrow(None, value)
            else:
                self._narrow(None, value + b"\0")

    def _narrow(self, low: bytes | None, high: bytes | None) -> None:
        if low is not None:
            self._low = low if self._low is None else max(self._low, low)
        if high is not None:
            self._high = high if self._high is None else min(self._high, high)

    def _within(self, ranges: list[Bounds]) -> list[Bounds]:
        from dataclasses import replace

        low, high, options = self._low, self._high, self._options
        if self._bucket is None and low is None and high is None:
            return ranges
        if self._bucket is not None and options.bucket not in (None, self._bucket):
            return []
        start, end = options.key_start, options.key_end
        narrowed = replace(
            options,
            bucket=options.bucket if self._bucket is None else self._bucket,
            key_start=start if low is None else max(low, start or b""),
            key_end=end if high is None else high if end is None else min(high, end),
        )
        files = SnapshotFiles(self._path)
        return ranges_of(files, tag_number(files, options.tag), narrowed)


def _bytes(value: object) -> bytes | None:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value.encode() if isinstance(value, str) else None
