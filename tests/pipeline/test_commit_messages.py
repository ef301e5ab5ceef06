"""What a load's commit makes of what its tasks say: all of them, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import octavo
from octavo.pipeline.writing import (
    BulkWriter,
    Staged,
    StreamSink,
    WriteOptions,
    staged,
    write_options,
)

COMMITS: dict[str, Callable[[WriteOptions, list[Any]], None]] = {
    "load": lambda options, messages: BulkWriter(options, "job").commit(messages),
    "stream": lambda options, messages: StreamSink(options).commit(messages, 0),
}


@pytest.fixture
def options(tmp_path: Path) -> WriteOptions:
    octavo.open(tmp_path / "s").close()
    return write_options({"path": str(tmp_path / "s")})


def said(options: WriteOptions, key: bytes) -> Staged:
    rows = pa.record_batch({"key": pa.array([key]), "value": pa.array([b"v"])})
    return staged(iter([rows]), options, "job", "query")


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
def test_where_a_task_said_nothing_nothing_of_the_others_is_taken_in(
    options: WriteOptions, commit: Callable[[WriteOptions, list[Any]], None]
) -> None:
    messages = [said(options, b"a"), None, said(options, b"b")]
    with pytest.raises(octavo.Misuse, match="1 tasks reported nothing: nothing is committed"):
        commit(options, messages)
    with octavo.open(options.path, read_only=True) as reader:
        assert list(reader) == []
    commit(options, [message for message in messages if message is not None])
    with octavo.open(options.path, read_only=True) as reader:
        assert list(reader) == [b"a", b"b"]


def test_a_batch_of_a_stream_that_is_given_up_leaves_what_others_staged(
    options: WriteOptions,
) -> None:
    given_up, other = said(options, b"a"), said(options, b"b")
    StreamSink(options).abort([given_up, None], 0)
    left = os.listdir(f"{options.path}/staging/job")
    assert left
    assert all(name.startswith(other.attempt) for name in left)
    StreamSink(options).commit([other], 1)
    with octavo.open(options.path, read_only=True) as reader:
        assert list(reader) == [b"b"]
