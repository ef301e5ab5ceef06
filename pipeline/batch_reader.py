"""The batch reader of the data source: rows of a published snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from octavo.files.errors import READ_ONLY, Misuse, StorageFull
from octavo.files.ledger import ledger_key
from octavo.files.ledger.chosen_rows import Asked, Span
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.change_rows import change_batches
from octavo.pipeline.file_order import RowsOfFiles, rows_of_files, unmerged
from octavo.pipeline.journal_order import Stretch, has_bits, stretch_batches, stretches
from octavo.pipeline.partitions import KeyRange, asked_for, partitions
from octavo.pipeline.python_worker import settle
from octavo.pipeline.read_options import ReadOptions, refuse_unfit, tag_of
from octavo.pipeline.snapshot_files import SnapshotFiles

_MOST_KEYS = 32
"""Keys of an IN that are sought one by one; of more, all from the first to the last are read."""


def tag_number(files: SnapshotFiles, name: str) -> int:
    """The number of a type of objects. Raises Misuse that lists those that are there."""
    if name == "standard" and ledger_key.HEAD_ONLY in files.found.counts:
        return ledger_key.HEAD_ONLY
    return tag_of(name, {count.name: number for number, count in files.found.counts.items()})


def named(schema: StructType) -> StructType:
    """A user's schema with columns named as they are here: to Spark KEY is key, too."""
    fields = schema.fields
    return StructType([StructField(e.name.lower(), e.dataType, e.nullable) for e in fields])


def to_schema(schema: StructType, *, changes: bool) -> pa.Schema:
    """The Arrow schema that Spark wants, with columns named as they are here. Raises Misuse for a
    column that does not exist, or does not fit."""
    schema = named(schema)
    given = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema.fields]
    refuse_unfit(given, changes=changes)
    return to_arrow_schema(schema, timezone="UTC")


class SnapshotReader(DataSourceReader):
    """Reads the rows of a published snapshot, a range of keys a task; or what changed from an
    earlier one to it."""

    def __init__(
        self, options: ReadOptions, snapshot_path: str, before: str | None, schema: StructType
    ) -> None:
        self._options = options
        self._path = snapshot_path
        self._before = before
        self._schema = named(schema)
        self._spelled = schema.names
        self._arrow()

    def _arrow(self) -> pa.Schema:
        return to_schema(self._schema, changes=self._before is not None)

    def _opened(self) -> tuple[SnapshotFiles, SnapshotFiles | None]:
        files = SnapshotFiles(self._path)
        if self._before is None:
            return files, None
        before = SnapshotFiles(self._before)
        if ledger_key.HEAD_ONLY in files.found.counts:
            raise Misuse("startSnapshot is not for a head-only store")
        if before.found.sqn > files.found.sqn or before.found.taken_at > files.found.taken_at:
            raise Misuse(
                f"startSnapshot {before.found.id} (sqn {before.found.sqn}) is later than "
                f"{files.found.id} (sqn {files.found.sqn}): name the earlier one first"
            )
        return files, before

    def partitions(self) -> list[Any]:
        """Stretches of the journal, rows of ledger files, or ranges of keys, of about
        ``splitBytes`` each; where nothing can be written, all values are read by ranges, too."""
        settle()
        files, before = self._opened()
        if self._in_journal_order(files):
            try:
                return list(stretches(files, self._options.split_bytes)) or [KeyRange([])]
            except (OSError, StorageFull) as error:  # a file there says which numbers are live
                if isinstance(error, OSError) and error.errno not in READ_ONLY:
                    raise
        if self._in_file_order(files):
            bound = self._asked(files, before).ranges[0]
            return list(rows_of_files(files, bound, self._options.split_bytes)) or [KeyRange([])]
        found = partitions(
            files,
            self._asked(files, before),
            values="value" in self._schema.names and before is None,
            split_bytes=self._options.split_bytes,
            before=before,
        )
        return found or [KeyRange([])]

    def _in_journal_order(self, files: SnapshotFiles) -> bool:
        """Whether all values are read: then the journal is read from front to back. The present
        metadata of objects of other types than standard is only in the ledger."""
        tag, names = self._options.tag, self._schema.names
        return (
            self._is_whole(files)
            and "value" in names
            and (tag == "standard" or "metadata" not in names)
        )

    def _in_file_order(self, files: SnapshotFiles) -> bool:
        """Whether ledger files are read one by one, without a merge: if no value is read, and it is
        known already which sqns are live."""
        return self._is_whole(files) and "value" not in self._schema.names and has_bits(files)

    def _is_whole(self, files: SnapshotFiles) -> bool:
        """Whether all keys of a type of objects are read."""
        options = self._options
        return (
            self._before is None
            and options.bucket is None
            and options.span == Span()
            and tag_number(files, options.tag) != ledger_key.HEAD_ONLY
        )

    def _asked(self, files: SnapshotFiles, before: SnapshotFiles | None) -> Asked:
        options = self._options
        number = tag_number(files, options.tag)
        return asked_for(files, number, options.bucket, [options.span], before)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition as Arrow record batches. In an executor."""
        settle()
        for batch in self._batches(partition):
            yield batch.rename_columns(self._spelled)

    def _batches(self, partition: Any) -> Iterator[pa.RecordBatch]:
        files, before = self._opened()
        schema, checksums = self._arrow(), self._options.checksums
        if isinstance(partition, Stretch):
            tag = tag_number(files, self._options.tag)
            yield from stretch_batches(files, tag, partition, schema, checksums=checksums)
            return
        if isinstance(partition, RowsOfFiles):
            batches = unmerged(files, partition)
            yield from record_batches(files, batches, schema, checksums=checksums)
            return
        chosen = partition.chosen
        for bound in partition.parts:
            if before is None:
                batches = files.batches(bound, chosen)
                yield from record_batches(files, batches, schema, checksums=checksums)
            else:
                yield from change_batches(files, before, bound, chosen, schema, checksums=checksums)


class PushingReader(SnapshotReader):
    """Takes Spark's filters on ``key`` and ``bucket``. Only made for the option ``pushdown``: a
    reader that can take filters does not work where Spark's setting is off, and Spark (4.3) keeps
    the reader of a query with filters for all later reads of the same frame, whatever filters these
    have.
    """

    def __init__(
        self, options: ReadOptions, snapshot_path: str, before: str | None, schema: StructType
    ) -> None:
        super().__init__(options, snapshot_path, before, schema)
        self._low: bytes | None = None
        self._high: bytes | None = None
        self._keys: set[bytes] | None = None
        self._bucket: bytes | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the key range. Every filter is left to Spark, too, which compares the rest."""
        for each in filters:
            self._take(each)
        return filters

    def _take(self, each: Filter) -> None:
        attribute = tuple(map(str.lower, getattr(each, "attribute", ())))
        if isinstance(each, In) and attribute == ("key",) and each.value:
            keys = [_bytes(value) for value in each.value]
            known = {key for key in keys if key is not None}
            if None not in keys:
                self._narrow(min(known), max(known) + b"\0")
                if len(known) <= _MOST_KEYS:
                    self._keys = known if self._keys is None else self._keys & known
            return
        value = _bytes(getattr(each, "value", None))
        same = isinstance(each, EqualTo | EqualNullSafe)
        if value is None:
            return
        if attribute == ("bucket",) and same:
            self._bucket = value
        elif attribute == ("key",):
            if same:
                self._narrow(value, value + b"\0")
            elif isinstance(each, StringStartsWith):
                self._narrow(value, ledger_key.after(value))
            elif isinstance(each, GreaterThan | GreaterThanOrEqual):
                self._narrow(value, None)
            elif isinstance(each, LessThan):
                self._narrow(None, value)
            elif isinstance(each, LessThanOrEqual):
                self._narrow(None, value + b"\0")

    def _narrow(self, low: bytes | None, high: bytes | None) -> None:
        if low is not None:
            self._low = low if self._low is None else max(self._low, low)
        if high is not None:
            self._high = high if self._high is None else min(self._high, high)

    def _is_whole(self, files: SnapshotFiles) -> bool:
        narrowed = (self._low, self._high, self._bucket) != (None, None, None)
        return not narrowed and super()._is_whole(files)

    def _asked(self, files: SnapshotFiles, before: SnapshotFiles | None) -> Asked:
        options = self._options
        if self._bucket is None and self._low is None and self._high is None:
            return super()._asked(files, before)
        if self._bucket is not None and options.bucket not in (None, self._bucket):
            return Asked([], None)
        start, end, prefix = options.span
        spans = [
            Span(
                start if low is None else max(low, start or b""),
                end if high is None else high if end is None else min(high, end),
                prefix,
            )
            for low, high in self._spans()
        ]
        bucket = options.bucket if self._bucket is None else self._bucket
        return asked_for(files, tag_number(files, options.tag), bucket, spans, before)

    def _spans(self) -> list[tuple[bytes | None, bytes | None]]:
        """The keys that the filters leave: from (inclusive), to (exclusive)."""
        low, high = self._low, self._high
        if self._keys is None:
            return [(low, high)]
        return [
            (key, key + b"\0")
            for key in sorted(self._keys)
            if (low is None or key >= low) and (high is None or key < high)
        ]


def _bytes(value: object) -> bytes | None:
    """What a filter compares with; None where that is not known."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str) and "\N{REPLACEMENT CHARACTER}" not in value:
        return value.encode()
    return None  # Spark gives bytes that are no UTF-8 as that character
