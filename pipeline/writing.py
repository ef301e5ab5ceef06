"""Bulk load and the streaming sink: ``df.write`` and ``df.writeStream`` with ``format("octavo")``.

Tasks stage sealed files; the commit has the store take in those of the attempts that it names, all
at once. What an attempt that failed, or that lost a race, leaves is swept by age.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Misuse, storage_errors
from octavo.files.handover import staging
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest.store_identity import IDENTITY
from octavo.pipeline import commit, duplicate_keys, staged_columns
from octavo.pipeline.python_worker import settle
from octavo.pipeline.read_options import known_of, local_path, lowered, refuse_empty, text_of

DUPLICATES = ("last", "first", "error")
_ORDERED_ROWS = 1 << 15
OPTIONS = ("jobId", "duplicates", "orderColumn", "checkpointLocation", "queryName")
"""Options of writes only."""


@dataclass(frozen=True)
class WriteOptions:
    """What ``df.write.option(...)`` may say."""

    path: str
    job_id: str
    duplicates: str
    order_column: str
    bucket: bytes


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options, checked. Raises Misuse."""
    options = known_of(given, ("path", "bucket", *OPTIONS))
    refuse_empty(options, "jobId", "orderColumn")
    kept = options.get("duplicates", "last")
    if kept not in DUPLICATES:
        raise Misuse(f"duplicates={kept!r:.80}: allowed are {', '.join(DUPLICATES)}")
    order_column = options.get("ordercolumn", "")
    if order_column and kept != "last":
        raise Misuse(f"orderColumn says which row is last; duplicates={kept!r} does not want that")
    job = options.get("jobid") or secrets.token_hex(16)
    return WriteOptions(
        local_path(options.get("path", "")),
        staging.checked_name("jobId", job),
        kept,
        order_column,
        text_of("bucket", options.get("bucket", ""), "a column bucket").encode(),
    )


@dataclass
class Staged(WriterCommitMessage):
    """What a task says of its attempt."""

    job: str
    attempt: str
    query: str = ""


def staged(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, job: str, query: str = ""
) -> Staged:
    """In a task: stage its rows; nothing is left of them if that fails. Raises Misuse, StorageFull,
    StorageFailed."""
    settle()
    _refuse_none(options.path)
    context = TaskContext.get()
    part, task = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    attempt = f"{part:06d}-{task}-{secrets.token_hex(4)}"
    writer = StagedWriter(
        RealDisk(), options.path, job, attempt, now_ms=wall_clock_ms(), clock_ms=wall_clock_ms
    )
    exact = (context and context.getLocalProperty("spark.sql.caseSensitive")) or ""
    batches = _named(batches, exact=exact.lower() == "true")
    try:
        if options.order_column or options.duplicates == "first":
            batches = _ordered(batches, options)
        for batch in (batch for batch in batches if batch.num_rows):
            operations = staged_columns.operations(batch, options.bucket)
            with storage_errors(f"a load into {options.path}"):
                writer.add(operations)
        with storage_errors(f"a load into {options.path}"):
            writer.finish()
    except BaseException as error:
        writer.abandon()
        if isinstance(error.__cause__, FileNotFoundError):
            _refuse_none(options.path)
        raise
    return Staged(job, attempt, query)


def _named(batches: Iterator[pa.RecordBatch], *, exact: bool) -> Iterator[pa.RecordBatch]:
    """Batches whose columns have the names that are known here; ``exact``: case counts, which only
    a task is told; raises Misuse if they did not have these names before."""
    for batch in batches:
        names = staged_columns.named(batch.schema.names)
        if exact and names != batch.schema.names:
            wrong = next(name for name in batch.schema.names if name not in names)
            raise Misuse(
                f"column {wrong!r}: spark.sql.caseSensitive is true, and there is no such column "
                f"but {wrong.lower()!r}"
            )
        yield batch.rename_columns(names)


def _refuse_none(path: str) -> None:
    """In a task: raise Misuse where there is no store."""
    if not RealDisk().exists(f"{path}/{IDENTITY}"):
        raise Misuse(
            f"there is no store at {path}: it was removed or moved since this began, or this "
            "executor does not see that directory"
        )


def _ordered(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Iterator[pa.RecordBatch]:
    """All rows of the task, which are held in memory, in the order in which the last of a key
    wins."""
    every = list(batches)
    if not every:
        return
    if not options.order_column:
        for batch in reversed(every):
            yield batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))
        return
    table = pa.Table.from_batches(every)
    # Rows taken from all over a column of over 2 GiB do not fit into an array of the small type.
    table = table.cast(pa.schema([field.with_type(_large(field.type)) for field in table.schema]))
    column = table[options.order_column].combine_chunks()
    order = pc.array_sort_indices(column, null_placement="at_start")  # stable
    if pa.types.is_floating(column.type):  # Arrow puts NaN beside null, Spark above all numbers
        high = pc.fill_null(pc.is_nan(column), False).take(order)
        order = pa.concat_arrays([order.filter(pc.invert(high)), order.filter(high)])
    yield from table.take(order).to_batches(max_chunksize=_ORDERED_ROWS)


def _large(kind: pa.DataType) -> pa.DataType:
    large = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
    return large.get(kind, kind)


def attempts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The attempts that count, by partition. Raises Misuse where a task has none."""
    found = _told(messages)
    if len(found) != len(messages):
        raise Misuse(f"{len(messages) - len(found)} tasks reported nothing: nothing is committed")
    return sorted(found, key=lambda message: message.attempt)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


class BulkWriter(DataSourceArrowWriter):
    """One ``df.write``. Made in the driver's planner process; ``write`` runs in tasks."""

    def __init__(self, options: WriteOptions, folder: str) -> None:
        self.options = options
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return staged(iterator, self.options, self.folder)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        names = [message.attempt for message in attempts_of(messages)]
        check_duplicates(self.options, self.folder, names)
        commit.committed(self.options.path, self.folder, names, f"job {self.options.job_id}", 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        forget(self.options.path, self.folder)


def check_duplicates(options: WriteOptions, folder: str, names: Sequence[str]) -> None:
    """Refuse a job with a key twice where the options do not say which counts. Raises Misuse."""
    if options.duplicates == "last" and not options.order_column:
        return
    strict = options.duplicates == "error"
    found = duplicate_keys.first_duplicate(RealDisk(), options.path, folder, names, within=strict)
    if found is None:
        return
    bucket, key = found
    which = f"key {key[:80]!r} of bucket {bucket[:80]!r} is" if key else "a key is"
    if strict:
        raise Misuse(f"duplicates=error: {which} in the job twice; nothing was written")
    raise Misuse(
        f"{which} in two partitions, so that its first or last row cannot be told: first call "
        'df.repartition("key") (with "bucket", if there is one); nothing was written'
    )


def forget(path: str, folder: str) -> None:
    """Remove what was staged. What was committed is no longer there: it has other links."""
    try:
        staging.empty(RealDisk(), path, folder)
        _leave_nothing(path)
    except OSError:
        return  # a task still writes; swept by age


def _leave_nothing(path: str) -> None:
    """Remove the directories of a destroyed store that tasks made anew. Raises OSError."""
    disk = RealDisk()
    if not disk.exists(f"{path}/{IDENTITY}"):
        disk.rmdir(f"{path}/{staging.STAGING}")
        disk.rmdir(path)


def checked(given: Mapping[str, str], schema: Any) -> WriteOptions:
    """Options and columns, checked. Raises Misuse."""
    options = write_options(given)
    names = staged_columns.named([field.name for field in schema.fields])
    kinds = [field.dataType.simpleString() for field in schema.fields]
    fields = list(zip(names, kinds, strict=True))
    same = [name for name in names if name.lower() == options.order_column.lower()]
    if options.order_column not in names and len(same) == 1:
        options = replace(options, order_column=same[0])
    staged_columns.check_schema(fields, options.order_column)
    if "bucket" in dict(fields) and "bucket" in lowered(given):
        raise Misuse(
            f"bucket={options.bucket.decode()!r:.80}, and a column 'bucket', which names it for "
            "each row: leave one of them out"
        )
    return options


class StreamSink(DataSourceStreamArrowWriter):
    """One ``df.writeStream``: each batch is taken in once, known by (query, number of batch)."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query:
            raise Misuse("no streaming query: sql.streaming.queryId is not set in this task")
        return staged(iterator, self.options, f"stream-{query}", query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        found = attempts_of(messages)
        if not found:
            return
        names = [message.attempt for message in found]
        check_duplicates(self.options, found[0].job, names)
        commit.committed(self.options.path, found[0].job, names, f"query {found[0].query}", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for message in _told(messages):
            staging.drop(RealDisk(), self.options.path, message.job, [message.attempt])
        with suppress(OSError):
            _leave_nothing(self.options.path)


class Writing:
    """The writing half of the data source."""

    options: Any

    def writer(self, schema: Any, overwrite: bool) -> BulkWriter:
        """The writer of ``df.write``: appends, replacing keys. Raises Misuse."""
        if overwrite:
            raise Misuse(
                'mode("overwrite") is refused: it would have to delete the whole store. '
                'Use mode("append"), which replaces the keys that are written; to begin anew, '
                "octavo.destroy(path) first"
            )
        options = checked(self.options, schema)
        commit.made_store(options.path)
        return BulkWriter(options, f"{options.job_id[:90]}.{secrets.token_hex(8)}")

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamSink:  # noqa: N802
        """The writer of ``df.writeStream``, in append mode; Spark itself refuses update mode for
        all sinks in Python. Raises Misuse."""
        if overwrite:
            raise Misuse(
                'outputMode("complete") is refused, and Spark takes no "update" for it: use '
                '"append", or foreachBatch with df.write for the results of an aggregate'
            )
        if "jobid" in lowered(self.options):
            raise Misuse(
                "jobId is for a batch write; each batch of a stream is known by its query and its "
                "number"
            )
        options = checked(self.options, schema)
        commit.made_store(options.path)
        return StreamSink(options)
