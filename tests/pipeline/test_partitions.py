"""How files are cut into the parts of tasks."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import Row, columns, key, names
from whole_store import SEED, flush, opened

from octavo.files.door.disk import RealDisk
from octavo.files.ledger import chosen_rows, ledger_key, merge
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.chosen_rows import Span
from octavo.files.ledger.sst import Sst
from octavo.pipeline import snapshot_files
from octavo.pipeline.partitions import _sample, asked_for, even_parts, partitions, split_of
from octavo.pipeline.snapshot_files import SnapshotFiles

MB = 1 << 20


def bytes_of(sizes: list[float], part: list[tuple[int, float, float]]) -> float:
    return sum((high - low) * sizes[number] for number, low, high in part)


@pytest.mark.parametrize("number", range(20))
def test_parts_are_even_and_hold_each_byte_once(number: int) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED + number)
    sizes = [rng.choice((0.0, 1.0, rng.uniform(0, 100))) * MB for _ in range(rng.randint(1, 40))]
    split = rng.choice((1.0, 10.0, 64.0, 1000.0)) * MB
    parts = list(even_parts(sizes, split))
    share = sum(sizes) / max(round(sum(sizes) / split), 1)
    for part in parts:
        assert 0.85 * share <= bytes_of(sizes, part) <= 1.15 * share
    pieces = [piece for part in parts for piece in part]
    assert pieces == sorted(pieces)
    for which, size in enumerate(sizes):
        edges = [edge for number, *ends in pieces if number == which for edge in ends]
        assert edges[1:-1:2] == edges[2:-1:2]  # each begins where the one before it ends
        assert edges[:1] + edges[-1:] == ([0.0, 1.0] if size else [])


def test_what_is_left_over_of_a_file_is_no_task_of_its_own() -> None:
    assert list(even_parts([100.001 * MB], 50 * MB)) == [[(0, 0.0, 0.5)], [(0, 0.5, 1.0)]]
    assert list(even_parts([50.5 * MB, 49.5 * MB], 50 * MB)) == [[(0, 0.0, 1.0)], [(1, 0.0, 1.0)]]


def test_nothing_is_no_part() -> None:
    assert list(even_parts([], MB)) == list(even_parts([0.0, 0.0], MB)) == []


def tasks(total: int, rows: int, processors: int) -> int:
    return len(list(even_parts([total / 10] * 10, split_of(total, rows, processors))))


def test_a_read_is_a_task_for_each_processor() -> None:
    for processors in (1, 2, 3, 4, 7):
        for total in (200 * MB, 510 * MB, 510 * MB * processors):
            assert tasks(total, 0, processors) == processors


def test_a_read_of_little_is_fewer_tasks() -> None:
    assert [tasks(total * MB, 0, 8) for total in (0, 1, 31, 33, 100)] == [0, 1, 1, 2, 6]


def test_many_small_rows_are_as_much_work_as_many_bytes() -> None:
    assert [tasks(17 * MB, rows, 2) for rows in (1, 100_000, 400_000)] == [1, 1, 2]


def test_no_task_reads_more_than_512_mib_and_all_processors_have_as_many() -> None:
    for total, processors, count in ((513, 1, 2), (1025, 2, 4), (2100, 4, 8), (20_000, 3, 42)):
        assert tasks(total * MB, 0, processors) == count


def test_it_is_asked_how_many_processors_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.pipeline.partitions.usable_processors", lambda: 5)
    assert tasks(256 * MB, 0, 0) == 5


def test_a_size_that_cannot_be_makes_no_more_tasks_than_a_driver_can_hold() -> None:
    assert len(list(even_parts([5.0, 2.0**64], 1))) <= 1 << 14


def test_the_sample_of_a_large_value_is_no_larger_than_the_rows(tmp_path: Path) -> None:
    """Of some MB of values, and a split of one byte: a key of each row says all."""
    rows = [Row(key(b"%d" % n), n + 1, False, 0, b"", n) for n in range(3)]
    made = columns(rows)
    made.sizes[:] = 1 << 24
    (file,) = merge.write_rows(
        RealDisk(), str(tmp_path), names(), made, max_rows=1 << 18, max_bytes=1 << 30
    )
    sst = Sst(RealDisk().map(str(tmp_path / file.name)), file.name)
    tracemalloc.start()
    found = _sample(sst, Bounds(b"", b"", None, False), 1 / 64, values=True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [key for key, _ in found] == [row.key for row in rows]
    assert sum(size for _, size in found) > 3 << 24
    assert most < 1 << 20


def test_a_ledger_file_is_mapped_once_for_the_ranges_of_many_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps: list[str] = []

    class Counting(RealDisk):
        def map(self, path: str) -> Any:
            maps.append(path)
            return super().map(path)

    with opened(tmp_path / "s") as store:
        for number in range(50):
            store.bucket(b"%02d" % number).put_many((b"a%d" % key, b"") for key in range(3))
        flush(store)
        with store.snapshot() as snap:
            path = snap.publish().path
        files = SnapshotFiles(path, Counting())
        monkeypatch.setattr(chosen_rows, "_ROWS_A_BUCKET", 0)
        ranges, chosen = asked_for(files, ledger_key.STANDARD, None, [Span(prefix=b"a1")])
        batches = [batch for each in ranges for batch in files.batches(each)]
        assert sum(len(batch.rows) for batch in batches) == 50
    assert (len(ranges), chosen) == (50, None)
    assert len(maps) == len(set(maps)) > 0


def test_keys_that_are_not_chosen_are_no_task_of_their_own(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"") for number in range(50))
        flush(store)
        with store.snapshot() as snap:
            path = snap.publish().path
        files = SnapshotFiles(path)
        asked = asked_for(files, ledger_key.STANDARD, None, [Span(None, b"3")])
        assert asked.chosen is not None
        found = partitions(files, asked, values=False, split_bytes=0)
    assert [part.parts for part in found] == [asked.ranges]


def test_a_ledger_file_is_read_where_none_may_stay_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"") for number in range(50))
        flush(store)
        with store.snapshot() as snap:
            path = snap.publish().path
        monkeypatch.setattr(snapshot_files, "most_maps", lambda: 0)
        files = SnapshotFiles(path)
        ranges, _ = asked_for(files, ledger_key.STANDARD, None, [Span()])
        batches = [batch for each in ranges for batch in files.batches(each)]
    assert sum(len(batch.rows) for batch in batches) == 50
