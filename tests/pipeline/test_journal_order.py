"""What tasks read in journal order, against the store itself; no Spark is started for this."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_stores import COLUMNS, Rows, fill, held
from whole_store import NEVER_MS, SEED, Clock, flush, opened, settle

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.jobs import live_bits
from octavo.files.journal.record_columns import RecordColumns, columns_of
from octavo.files.kernels import arrow
from octavo.files.ledger.bounds import OBJECTS
from octavo.files.ledger.ledger_key import STANDARD
from octavo.manifest import pinning
from octavo.pipeline import arrow_rows, journal_order
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.journal_order import bits_of, stretch_batches, stretches
from octavo.pipeline.snapshot_files import SnapshotFiles

_MOMENT = pa.timestamp("us", tz="UTC")
_KINDS = {"sqn": pa.int64(), "size": pa.int64(), "written_at": _MOMENT, "expires_at": _MOMENT}
SCHEMA = pa.schema([(name, _KINDS.get(name, pa.binary())) for name in COLUMNS.split(",")])


def rows_of(batches: Iterator[pa.RecordBatch]) -> Rows:
    out: Rows = {}
    for batch in batches:
        columns = [
            batch.column(name).cast(pa.int64()) if kind == _MOMENT else batch.column(name)
            for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
        ]
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            bucket, key, value, sqn, size, metadata, written_us, expires_us = row
            assert (bucket, key) not in out
            expires_at = None if expires_us is None else expires_us // 1000
            out[bucket, key] = (value, sqn, size, metadata, written_us // 1000, expires_at)
    return out


def both_ways(files: SnapshotFiles, split_bytes: int, *, checksums: bool = True) -> list[Rows]:
    """The rows in journal order and in the order of keys."""
    parts = stretches(files, split_bytes)
    by_sqn = (
        batch
        for part in parts
        for batch in stretch_batches(files, STANDARD, part, SCHEMA, checksums=checksums)
    )
    by_key = record_batches(files, files.batches(OBJECTS), SCHEMA, checksums=checksums)
    return [rows_of(by_sqn), rows_of(by_key)]


@pytest.mark.parametrize("number", range(3))
def test_all_rows_come_whatever_the_splits(tmp_path: Path, number: int) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED + number)
    with opened(tmp_path / "s") as store:
        fill(store, rng, 900)
        if number % 2:
            store.compact()
            settle(store)
            fill(store, rng, 60, flushing=0)  # in memory, in an unsealed file
        want = held(store.snapshot())
        made = store.snapshot().publish()
        assert Path(made.path, live_bits.NAME).exists()
        pinned = pinning.pin(RealDisk(), store.path, 3_600_000, time.time_ns() // 1_000_000)
        assert not Path(pinned.path, live_bits.NAME).exists()
        for path in (made.path, pinned.path):
            for split, checksums in ((5_000, False), (0, True)):
                files = SnapshotFiles(path)
                assert both_ways(files, split, checksums=checksums) == [want, want]


_KEYS = st.sampled_from([b"a", b"b", b"\x00", b"\xff\xff", b"a" * 300])
_VALUES = st.binary(max_size=20) | st.sampled_from([b"x" * 5000, bytes(range(256)) * 20])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([b"", b"t"]), _KEYS, _VALUES),
        st.tuples(st.just("expires"), st.sampled_from([2_000, NEVER_MS]), _KEYS, _VALUES),
        st.tuples(st.just("meta"), st.binary(min_size=1, max_size=9), _KEYS, _VALUES),
        st.tuples(st.just("delete"), st.sampled_from([b"", b"t"]), _KEYS),
        st.tuples(st.just("batch"), st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["flush", "compact", "roll", "later"])),
    ),
    max_size=40,
)


def _lived(store: octavo.Store, steps: list[tuple[object, ...]], clock: Clock) -> None:
    for kind, *rest in steps:
        if kind == "put":
            store.bucket(rest[0]).put(rest[1], rest[2])
        elif kind == "expires":
            store.put(rest[1], rest[2], expires_at=rest[0])
        elif kind == "meta":
            store.put(rest[1], rest[2], metadata=rest[0])
        elif kind == "delete":
            store.bucket(rest[0]).delete(rest[1])
        elif kind == "batch":
            with store.batch() as batch:
                for key, value in rest[0]:
                    batch.put(b"", key, value)
        elif kind == "flush":
            flush(store)
        elif kind == "compact":
            store.compact()
        elif kind == "roll":
            store.snapshot().publish(count=False).release()  # what it links is sealed
        else:
            clock.now += 700


@given(steps=_STEPS, split=st.sampled_from([0, 1, 3000]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_history_reads_as_the_store_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]], split: int
) -> None:
    clock = Clock(1_000)
    path = tmp_path_factory.mktemp("any")
    with opened(path / "s", clock_ms=lambda: int(clock.now)) as store:
        _lived(store, steps, clock)
        want = held(store.snapshot())
        made = store.snapshot().publish(lease_seconds=1e6)
        files = SnapshotFiles(made.path, clock_ms=lambda: int(clock.now))
        assert both_ways(files, split) == [want, want]
        assert made.keys == len(want)
        assert bits_of(files).count(0, 1 << 40) == len(want)


def with_damage(file: Path, stored: bytes, place: int, flipped: int) -> SnapshotFiles:
    """A snapshot of which one byte of a file is another."""
    damaged = bytearray(stored)
    damaged[place] ^= flipped
    file.unlink()  # it is linked to the store's own
    file.write_bytes(damaged)
    return SnapshotFiles(str(file.parent))


@pytest.mark.parametrize("noise", [0, 3])
def test_values_that_are_compressed_come_together(tmp_path: Path, noise: int) -> None:
    """All of them, or with some among them that are not."""
    rng = random.Random(SEED)
    with opened(tmp_path / "s") as store:
        for number in range(300):
            value = b"value %03d" % number * rng.randrange(300, 900)
            store.put(b"k%03d" % number, rng.randbytes(5000) if number % 10 < noise else value)
        want = held(store.snapshot())
        made = store.snapshot().publish()
    for checksums in (True, False):
        assert both_ways(SnapshotFiles(made.path), 0, checksums=checksums) == [want, want]
    block = lz4.block.compress(want[b"", b"k255"][0], store_size=False)
    file = next(file for file in Path(made.path).glob("*.cdb") if block in file.read_bytes())
    stored = file.read_bytes()
    at = stored.index(block)
    for place in (at, at + len(block) // 2, at + len(block) - 4):  # tokens, or what follows one
        files = with_damage(file, stored, place, 0xFF)
        (part,) = stretches(files, 0)
        with pytest.raises(octavo.Corruption):
            list(stretch_batches(files, STANDARD, part, SCHEMA, checksums=True))
        with pytest.raises(octavo.Corruption):
            list(record_batches(files, files.batches(OBJECTS), SCHEMA, checksums=True))


def test_damage_in_a_record_is_told_whichever_way_is_taken(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(50):
            store.put(b"k%02d" % number, b"value %02d" % number * 30)
        made = store.snapshot().publish()
    file = next(Path(made.path).glob("*.cdb"))
    stored = file.read_bytes()
    at = stored.index(b"value 33")
    for place in (at + 5, at - 3, at - 6, at - 30, at - 40):  # value, its sum, key, head
        files = with_damage(file, stored, place, 1)
        (part,) = stretches(files, 0)
        with pytest.raises(octavo.Corruption):
            list(stretch_batches(files, STANDARD, part, SCHEMA, checksums=True))


def test_damage_in_the_live_numbers_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("a", "b")
        made = store.snapshot().publish()
    file = Path(made.path, live_bits.NAME)
    stored = file.read_bytes()
    for place in (0, 8, 12, 17, 24, 34, len(stored) - 1):
        damaged = bytearray(stored)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises((octavo.Corruption, octavo.UnsupportedFormat)):
            stretches(SnapshotFiles(made.path), 0)
    file.write_bytes(stored[:-1])
    with pytest.raises(octavo.Corruption):
        stretches(SnapshotFiles(made.path), 0)


READ_ALL = """
import sys
import pyarrow as pa
from octavo.files.ledger.bounds import OBJECTS
from octavo.files.ledger.ledger_key import STANDARD
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.journal_order import stretch_batches, stretches
from octavo.pipeline.snapshot_files import SnapshotFiles

moment = pa.timestamp("us", tz="UTC")
kinds = {"sqn": pa.int64(), "size": pa.int64(), "written_at": moment, "expires_at": moment}
names = ("bucket", "key", "value", "sqn", "size", "metadata", "written_at", "expires_at")
schema = pa.schema([(name, kinds.get(name, pa.binary())) for name in names])
files = SnapshotFiles(sys.argv[1])
(part,) = stretches(files, 0)
for found in (
    stretch_batches(files, STANDARD, part, schema, checksums=True),
    record_batches(files, files.batches(OBJECTS), schema, checksums=True),
):
    print(sum(batch.num_rows for batch in found))
print("pandas" in sys.modules)
"""


def test_of_a_small_file_few_live_numbers_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marking = live_bits.Marking()
    marking.add(np.arange(100, 300_000, 3))
    path = f"{tmp_path}/{live_bits.NAME}"
    marking.write(RealDisk(), path)
    bits, looked = live_bits.LiveBits(RealDisk(), path), []
    unpacked = live_bits._unpacked

    def noted(part: Any) -> Any:
        looked.append(8 * len(part))
        return unpacked(part)

    monkeypatch.setattr(live_bits, "_unpacked", noted)
    edge = live_bits.PAGE
    spans = [(100, 100), (edge - 9, edge + 1), (2 * edge, 2 * edge + 20), (9, 99), (edge, edge + 7)]
    for first, last in spans:
        found = [sqn for part in bits.between(first, last) for sqn in part.tolist()]
        assert found == [sqn for sqn in range(first, last + 1) if sqn >= 100 and sqn % 3 == 1]
        assert bits.count(first, last) == len(found)
    assert max(looked) <= 96


def test_values_by_key_of_many_small_buckets_are_located_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Mock(wraps=arrow_rows.places_at)
    monkeypatch.setattr(arrow_rows, "places_at", looked)
    wanted = [(b"%03d" % at, b"k", b"%d" % at) for at in range(600)]
    with opened(tmp_path / "s") as store:
        with store.batch() as batch:
            for name, key, value in wanted:
                batch.put(name, key, value)
        files = SnapshotFiles(store.snapshot().publish().path)
        found = rows_of(record_batches(files, files.batches(OBJECTS), SCHEMA, checksums=True))
    assert [(*at, row[0]) for at, row in found.items()] == wanted
    assert looked.call_count == 1


def test_a_task_does_not_load_pandas(tmp_path: Path) -> None:
    """Arrow does, 0.2 s of each worker's, to look whether it is a frame that it is given."""
    with octavo.open(tmp_path / "s") as store:
        store.put("plain", b"value")
        store.put("expires", b"value" * 1000, metadata=b"metadata", ttl=3600)
        path = store.snapshot().publish().path
        words = [sys.executable, "-c", READ_ALL, path]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "2", "False"]


@pytest.mark.parametrize("shape", ["plain", "compressed", "with care"])
def test_a_value_too_large_for_arrow_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """Before anything is made of it: NumPy has no type of so many bytes, and Arrow no array."""
    with opened(tmp_path / "s") as store:
        store.bucket("b").put("small", b"")
        raw = b"x" if shape == "compressed" else bytes(range(256)) * 3 + b"x"
        store.bucket("b").put("large", (raw * 9000)[:9000])
        path = store.snapshot().publish().path
    monkeypatch.setattr(arrow, "MAX_BINARY_BYTES", 8999)
    monkeypatch.setattr(RecordColumns, "strings", None)
    if shape == "with care":
        monkeypatch.setattr(journal_order, "columns_of", _all_with_care)
    files = SnapshotFiles(path)
    told = "the value of b'large' in bucket b'b' has 9000 bytes"
    values = pa.schema([("value", pa.binary())])
    (stretch,) = stretches(files, 0)
    with pytest.raises(octavo.Misuse, match=told):
        list(stretch_batches(files, STANDARD, stretch, values, checksums=True))
    with pytest.raises(octavo.Misuse, match=told):
        list(record_batches(files, files.batches(OBJECTS), values, checksums=True))
    monkeypatch.undo()
    assert all(len(found) == 2 for found in both_ways(files, 0))


def _all_with_care(*given: Any) -> Any:
    columns, careful = columns_of(*given)
    assert not len(careful)
    return columns.between(0, 0), np.arange(len(columns.rows))
