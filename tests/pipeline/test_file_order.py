"""What tasks read file by file, against the merge of all files; no Spark is started for this."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from random_stores import fill
from whole_store import SEED, flush, opened

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption
from octavo.files.jobs import live_bits
from octavo.files.jobs.live_bits import LiveBits
from octavo.files.ledger.bounds import OBJECTS, Bounds
from octavo.files.ledger.ledger_key import STANDARD, after
from octavo.manifest import pinning
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.file_order import rows_of_files, unmerged
from octavo.pipeline.journal_order import bits_of, has_bits
from octavo.pipeline.snapshot_files import SnapshotFiles

_MOMENT = pa.timestamp("us", tz="UTC")
_KINDS = {"sqn": pa.int64(), "size": pa.int64(), "written_at": _MOMENT, "expires_at": _MOMENT}
_NAMES = ("bucket", "key", "sqn", "size", "metadata", "written_at", "expires_at")
SCHEMA = pa.schema([(name, _KINDS.get(name, pa.binary())) for name in _NAMES])
_TAG = bytes((STANDARD,))
ROWS = Bounds(b"", _TAG, after(_TAG), False)


def in_order(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches, SCHEMA)
    return table.sort_by([("sqn", "ascending")]).combine_chunks()


@pytest.mark.parametrize("number", range(3))
def test_the_rows_are_those_of_the_merge_whatever_the_splits(tmp_path: Path, number: int) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED + number)
    with opened(tmp_path / "s") as store:
        for _ in range(3):
            fill(store, rng, 300)
            flush(store)
        fill(store, rng, 60, flushing=0)  # in memory
        files = SnapshotFiles(store.snapshot().publish().path)
    want = in_order(list(record_batches(files, files.batches(ROWS), SCHEMA, checksums=True)))
    assert want.num_rows
    for split in (1, 700, 5000, 0):
        parts = rows_of_files(files, ROWS, split)
        assert split or len(parts) == 1
        found = [
            batch
            for part in parts
            for batch in record_batches(files, unmerged(files, part), SCHEMA, checksums=True)
        ]
        assert in_order(found).equals(want)


@pytest.mark.parametrize("gone", [[], [0], [11], [199], [50, 51, 120]], ids=str)
def test_keys_are_told_whether_they_stand_side_by_side_or_not(
    tmp_path: Path, gone: list[int]
) -> None:
    keys = [b"%03d" % number + b"x" * (number % 5) for number in range(200)]
    with opened(tmp_path / "s") as store:
        store.put_many((key, b"v") for key in keys)
        for number in gone:
            store.put(keys[number], b"newer")
        files = SnapshotFiles(store.snapshot().publish().path)
        flush(store)
    schema = pa.schema([("key", pa.binary()), ("sqn", pa.int64())])
    found = [
        row
        for part in rows_of_files(files, ROWS, 1000)
        for batch in record_batches(files, unmerged(files, part), schema, checksums=True)
        for row in batch.to_pylist()
    ]
    newer = {keys[number]: 201 + at for at, number in enumerate(gone)}
    wanted = {key: newer.get(key, at) for at, key in enumerate(keys, 1)}
    assert {row["key"]: row["sqn"] for row in found} == wanted
    assert len(found) == 200


def test_what_is_live_is_known_of_a_published_snapshot_only(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"v")
        made = SnapshotFiles(store.snapshot().publish().path)
        now_ms = time.time_ns() // 1_000_000
        pinned = SnapshotFiles(pinning.pin(RealDisk(), store.path, 3_600_000, now_ms).path)
    assert has_bits(made)
    assert not has_bits(pinned)
    bits_of(pinned)
    assert has_bits(pinned)


def test_any_numbers_are_told_live_or_not(tmp_path: Path) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED)
    live = sorted(rng.sample(range(300_000), 5000) + rng.sample(range(1 << 40, 1 << 41), 50))
    marking = live_bits.Marking()
    marking.add(np.array(live, dtype=np.int64))
    marking.write(RealDisk(), str(tmp_path / "live"))
    bits = LiveBits(RealDisk(), str(tmp_path / "live"))
    asked = [*live, *(number + 1 for number in live), *rng.sample(range(1 << 42), 1000), 0]
    rng.shuffle(asked)
    there = set(live)
    near = [number for number in asked if number < 300_000]
    for some in (asked, near, near[:1], []):
        found = bits.are(np.array(some, dtype=np.int64))
        assert found.tolist() == [each in there for each in some]


def test_numbers_around_pages_without_a_gap_are_told_live_or_not(tmp_path: Path) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED)
    first, end = 3 << live_bits.PAGE_BITS, 6 << live_bits.PAGE_BITS
    live = {first, end - 1, *rng.sample(range(first, end), 90_000)}
    marking = live_bits.Marking()
    marking.add(np.array(sorted(live), dtype=np.int64))
    marking.write(RealDisk(), str(tmp_path / "live"))
    bits = LiveBits(RealDisk(), str(tmp_path / "live"))
    within = rng.sample(range(first, end), 50_000)
    for some in (within, [first, end - 1], [first - 1, *within], [*within, end], [end + 1]):
        found = bits.are(np.array(some, dtype=np.int64))
        assert found.tolist() == [each in live for each in some]


def test_where_no_number_is_live_none_is(tmp_path: Path) -> None:
    live_bits.Marking().write(RealDisk(), str(tmp_path / "live"))
    bits = LiveBits(RealDisk(), str(tmp_path / "live"))
    assert not bits.are(np.array([0, 5, 1 << 50], dtype=np.int64)).any()


@pytest.mark.parametrize(
    ("at", "what"), [(-1, "checksum of a page"), (24, "live numbers"), (32, "live numbers")]
)
def test_a_changed_bit_is_told_before_any_answer(tmp_path: Path, at: int, what: str) -> None:
    marking = live_bits.Marking()
    marking.add(np.array([3, 70_000], dtype=np.int64))
    path = tmp_path / "live"
    marking.write(RealDisk(), str(path))
    body = bytearray(path.read_bytes())
    body[at] ^= 2
    path.write_bytes(body)
    with pytest.raises(Corruption, match=what):
        LiveBits(RealDisk(), str(path)).are(np.array([3], dtype=np.int64))


def test_rows_of_every_type_are_found_by_their_own_range(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"v")
        files = SnapshotFiles(store.snapshot().publish().path)
    parts = rows_of_files(files, OBJECTS, 0)
    assert [len(batch.rows) for part in parts for batch in unmerged(files, part)] == [1]
    assert rows_of_files(files, Bounds(b"", b"\x00", b"\x01", False), 0) == []
