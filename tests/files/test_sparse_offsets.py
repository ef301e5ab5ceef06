"""The sparse table of record offsets answers as the plain one does."""

from __future__ import annotations

import random
import shutil
import subprocess
from array import array
from pathlib import Path

import cdblib
import numpy as np
import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_writer import SealedWriter
from octavo.files.journal.sparse_offsets import (
    SparseOffsets,
    count_from,
    cut,
    numbers_of,
    plain,
    stretch,
)

SEED = 20261121


def both(rng: random.Random, count: int, records: int) -> tuple[SparseOffsets, list[int]]:
    numbers = np.array(sorted(rng.sample(range(count), records)), dtype=np.uint32)
    sizes = np.array([rng.randrange(50, 90) for _ in range(records)], dtype=np.int64)
    starts = (cdb.RECORDS_AT + np.concatenate([[0], np.cumsum(sizes)])).astype(np.uint32)
    sparse = SparseOffsets(memoryview(numbers), memoryview(starts), count)
    return sparse, plain(numbers, starts, count).tolist()


@pytest.mark.parametrize(("count", "records"), [(1, 0), (1, 1), (50, 0), (50, 50), (500, 20)])
def test_a_sparse_table_is_a_sequence_like_the_plain_one(count: int, records: int) -> None:
    rng = random.Random(SEED + count)
    sparse, table = both(rng, count, records)
    assert len(sparse) == len(table) == count + 1
    assert [sparse[i] for i in range(len(table))] == table == list(sparse)
    assert sparse[-1] == table[-1]
    for index in (count + 1, -count - 2):
        with pytest.raises(IndexError):
            sparse[index]
    for _ in range(50):
        low, high = sorted((rng.randrange(count + 2), rng.randrange(count + 2)))
        assert sparse[low:high] == array("I", table[low:high])
        dense = array("I", table)
        assert list(numbers_of(sparse, low, high)) == list(numbers_of(dense, low, high))
        behind = sum(1 for _ in numbers_of(dense, low, count))
        assert count_from(sparse, low) == count_from(dense, low) == behind


def test_a_stretch_of_a_sparse_table_has_as_many_records_as_asked_for() -> None:
    rng = random.Random(SEED)
    sparse, _ = both(rng, 10_000, 100)
    low, total = 0, 0
    while low < 10_000:
        last, held = stretch(sparse, low, 9_999, 7)
        found, count, is_sparse = cut(sparse, low, last + 1)
        assert is_sparse
        assert count == held == len(list(numbers_of(sparse, low, last + 1)))
        assert held == 7 or last == 9_999
        assert len(found) == 4 * (2 * held + 1)
        total += held
        low = last + 1
    assert total == 100


def written(path: Path, numbers: list[int], count: int, rank: int = 3) -> Path:
    writer = SealedWriter(RealDisk(), str(path), 1000, 77, 1, 0)
    for number in numbers:
        encoded = record.encode(
            number, 77 ^ writer.at, record.PUT, 0x6F, b"", b"k%d" % number, b"v" * (number % 50), 5
        )
        writer.add(number, encoded, 5 + number)
    found = writer.finish(1000 + count - 1, cdb.Origin(rank, 1000, 1000 + count - 1, 9, 8))
    return path / str(found["name"])


@pytest.mark.parametrize("count", [200, 5000, 1 << 31])
def test_stock_cdb_reads_a_compacted_file_of_either_kind(tmp_path: Path, count: int) -> None:
    numbers = [0, 3, 4, 17, 150, 199]
    numbers += range(50, 140) if count == 200 else [count - 1]
    numbers.sort()
    file = written(tmp_path, numbers, count)
    image = file.read_bytes()
    trailer, offsets = cdb.sealed_offsets(image, file.name)
    assert trailer.sparse == (count > 200)
    assert cdb.read_origin(image, trailer, file.name) == (3, 1000, 1000 + count - 1, 9, 8)
    assert list(numbers_of(offsets, 0, 200)) == [n for n in numbers if n < 200]
    cdb.verify_tables(image, trailer, file.name)
    assert (trailer.first_ms, trailer.last_ms) == (5 + numbers[0], 5 + numbers[-1])
    stock = cdblib.Reader(image)
    for number in numbers:
        framed = stock.get(number.to_bytes(8, "big"))
        assert framed is not None
        start = offsets[number]
        assert image[start + 16 : start + 16 + len(framed)] == framed
    assert stock.get((5).to_bytes(8, "big")) is None
    assert len(list(stock.iterkeys())) == len(numbers) + 1  # and our header


def test_a_rank_that_no_compaction_comes_to_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, [1, 5, 9], 5000, rank=1 << 62)
    image = file.read_bytes()
    with pytest.raises(Corruption, match=file.name):
        cdb.read_origin(image, cdb.sealed_offsets(image, file.name)[0], file.name)


def test_a_compacted_file_without_any_record(tmp_path: Path) -> None:
    file = written(tmp_path, [], 1 << 20)
    image = file.read_bytes()
    assert len(image) < 3000
    trailer, offsets = cdb.sealed_offsets(image, file.name)
    assert (trailer.live, len(offsets)) == (0, (1 << 20) + 1)
    assert list(numbers_of(offsets, 0, 1 << 20)) == []
    assert len(list(cdblib.Reader(image).iterkeys())) == 1


@pytest.mark.parametrize("at", [-100, -130, -150, -200])
def test_damage_at_the_end_is_seen(tmp_path: Path, at: int) -> None:
    from octavo.files.journal.journal_windows import read_windows

    file = written(tmp_path, [1, 5, 9], 5000)
    image = bytearray(file.read_bytes())
    image[at] ^= 4

    def read() -> None:
        trailer, _ = cdb.sealed_offsets(bytes(image), file.name)
        cdb.read_origin(bytes(image), trailer, file.name)
        cdb.verify_tables(bytes(image), trailer, file.name)
        read_windows(memoryview(image), trailer, file.name)

    with pytest.raises(Corruption):
        read()


def test_tinycdb_reads_a_compacted_file(tmp_path: Path) -> None:
    tool = shutil.which("cdb")
    assert tool, "tinycdb is not installed: apt-get install tinycdb"
    numbers = [0, 3, 150, 4000]
    file = written(tmp_path, numbers, 5000)
    dump = subprocess.run([tool, "-d", str(file)], capture_output=True, check=True).stdout
    offsets = cdb.sealed_offsets(file.read_bytes(), file.name)[1]
    for number in numbers:
        size = offsets[number + 1] - offsets[number] - 16
        assert b"+8,%d:%s->" % (size, number.to_bytes(8, "big")) in dump
