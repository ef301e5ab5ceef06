"""A store that is destroyed, or moved, while Spark reads, follows or writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

import octavo
from octavo.pipeline.feed import FeedStream, feed_options
from octavo.pipeline.source import DefaultSource
from octavo.pipeline.writing import StreamSink, staged, write_options

KEYS = StructType([StructField("key", BinaryType())])
ROWS = pa.record_batch({"key": pa.array([b"a"]), "value": pa.array([b"b"])})


def made(path: Path) -> Path:
    with octavo.open(path) as store:
        store.put_many((f"{n}", "v") for n in range(10))
    return path


def test_a_stream_is_told_so_whenever_it_looks(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    options = feed_options({"path": str(path), "readChangeFeed": "true"})
    stream = FeedStream(options, KEYS)
    begin, limit = stream.initialOffset(), ReadAllAvailable()
    end = stream.latestOffset(begin, limit)
    (part,) = stream.partitions(begin, end)
    octavo.destroy(path)
    looks: list[Callable[[FeedStream], Any]] = [
        lambda each: each.initialOffset(),
        lambda each: each.prepareForTriggerAvailableNow(),
        lambda each: each.latestOffset(end, limit),
        lambda each: each.partitions(begin, end),
        lambda each: list(each.read(part)),
    ]
    for look in looks:
        for each in (stream, FeedStream(options, KEYS)):
            with pytest.raises(octavo.Misuse, match=f"there is no store at {path}"):
                look(each)


def test_a_frame_is_told_so(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    source = DefaultSource({"path": str(path), "columns": "key"})
    schema = StructType([StructField("key", BinaryType(), False)])
    reader = source.reader(schema)
    (part,) = reader.partitions()
    path.rename(tmp_path / "moved")
    for look in (reader.partitions, lambda: list(reader.read(part))):
        with pytest.raises(octavo.SnapshotExpired, match=f"there is no store at {path} any more"):
            look()


def test_a_task_that_writes_stages_nothing_where_no_store_is(tmp_path: Path) -> None:
    options = write_options({"path": str(tmp_path / "s")})
    with pytest.raises(octavo.Misuse, match=r"there is no store at .*: it was removed or moved"):
        staged(iter([ROWS]), options, "job")
    assert not (tmp_path / "s").exists()


def test_a_sink_whose_store_is_destroyed_as_tasks_stage_leaves_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    options = write_options({"path": str(path)})

    def rows() -> Any:
        octavo.destroy(path)
        yield ROWS

    with pytest.raises(octavo.Misuse, match=r"there is no store at .*: it was removed or moved"):
        staged(rows(), options, "stream-q", "q")
    StreamSink(options).abort([None], 0)
    assert not path.exists()
    made(path)  # and one can be made there again
