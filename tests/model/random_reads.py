"""Reads of published snapshots as Spark's tasks do them, without Spark: options, and sizes from
which the pipeline takes another way, are drawn, and the rows compared with what the store says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from random_stores import Rows, fill, held
from small_sizes import sizes, small_sizes
from whole_store import flush, opened

from octavo.pipeline.batch_reader import SnapshotReader
from octavo.pipeline.read_options import CHANGE_DDL, DDL, ReadOptions

SIZES: dict[str, tuple[int, ...]] = {
    "pipeline.partitions SAMPLES": (1, 5, 64),
    "pipeline.partitions _ROW_BYTES": (1, 64),
    "pipeline.partitions _LEAST_TASK": (1, 300, 16 << 20),
    "pipeline.partitions _MOST_TASK": (100, 5000, 512 << 20),
    "pipeline.arrow_rows BATCH_ROWS": (1, 3, 1 << 15),
    "pipeline.arrow_rows BATCH_BYTES": (1, 300, 4 << 20),
    "pipeline.put_arrays _FEW_LENGTHS": (0, 1, 64),
    "pipeline.snapshot_files _KEPT_LEDGERS": (1, 16),
}
"""As in small_sizes.py."""
READS = 15
_NAMES = ("bucket", "key", "value", "sqn", "size", "metadata", "written_at", "expires_at")
"""A row as random_stores.py has it. Of a delete no more is compared than its key, for when it was
may be forgotten by now."""
_TYPES = {
    "binary": BinaryType(), "bigint": LongType(), "string": StringType(),
    "timestamp": TimestampType(),
}  # fmt: skip
Span = tuple[bytes | None, bytes | None, bytes | None, bytes | None]
"""Bucket, start, end, prefix."""


def case(home: Path, seed: object) -> int:
    """Make a store and read it; how many rows were compared."""
    rng = random.Random(f"random reads {seed}")
    drawn = {name: rng.choice(some) for name, some in SIZES.items()}
    with small_sizes(rng), sizes(drawn), opened(home / "s") as store:
        states = []
        for _ in range(2):
            fill(store, rng, rng.choice([0, 40, 400]), flushing=0.02)
            if rng.random() < 0.5:
                flush(store)
            with store.snapshot() as snap:
                states.append((snap.publish(), held(snap)))
        return sum(_read(rng, store.path, states) for _ in range(READS))


def _read(rng: random.Random, path: str, states: list[tuple[Any, Rows]]) -> int:
    (first, before), (second, after) = states
    span = _span(rng)
    changes = rng.random() < 0.4
    ddl = CHANGE_DDL if changes else DDL
    there = sorted(ddl.keys() & {"_change_type", *_NAMES})
    columns = tuple(rng.sample(there, rng.randint(1, len(there))))
    bucket, start, end, prefix = span
    options = ReadOptions(
        path, bucket=bucket, key_start=start, key_end=end, prefix=prefix, columns=columns,
        start_snapshot=first.id if changes else None,
        split_bytes=rng.choice([0, 0, 1, 500, 10_000]), checksums=rng.random() < 0.7,
    )  # fmt: skip
    schema = StructType([StructField(name, _TYPES[ddl[name]]) for name in columns])
    made = SnapshotReader(options, second.path, first.path if changes else None, schema)
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    assert all(len(batch) for batch in batches)
    found = Counter(row for batch in batches for row in _plain(batch))
    later = _within(after, span)
    rows = [dict(zip(_NAMES, (*at, *row), strict=True)) for at, row in later.items()]
    if changes:
        gone = sorted(_within(before, span).keys() - later.keys())
        rows = [row | {"_change_type": "put"} for row in rows if row["sqn"] > first.sqn]
        rows += [
            dict.fromkeys(_NAMES) | {"_change_type": "delete", "bucket": name, "key": key}
            for name, key in gone
        ]
    wanted = Counter(tuple(row[name] for name in columns) for row in rows)
    assert found == wanted, (options, list((found - wanted).items())[:2])
    return len(rows)


def _span(rng: random.Random) -> Span:
    """Some keys, mostly of all buckets; of a range that is empty, too."""
    edges = [None, None, None, None, b"", b"1", b"k050", b"k1", b"\x005", b"9\xff", b"z"]
    return (
        rng.choice([None, None, None, b"", b"b", b"\xff", b"none"]),
        rng.choice(edges), rng.choice(edges),
        rng.choice([None, None, None, b"k", b"k0", b"\x00", b"1", b"x"]),
    )  # fmt: skip


def _within(state: Rows, span: Span) -> Rows:
    bucket, start, end, prefix = span
    return {
        (name, key): row
        for (name, key), row in state.items()
        if (bucket is None or name == bucket)
        and (start is None or key >= start)
        and (end is None or key < end)
        and key.startswith(prefix or b"")
    }


def _plain(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows; moments in ms."""
    columns = []
    for column in batch.columns:
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.int64()).to_pylist()
            columns.append([each if each is None else each // 1000 for each in micros])
        else:
            columns.append(column.to_pylist())
    return zip(*columns, strict=True)
