"""What is asked of the system before a map is read, and when."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Iterator
from itertools import count, pairwise, repeat
from pathlib import Path

import numpy as np
import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.kernels import cold_pages
from octavo.files.kernels.cold_pages import ColdPages, ask_to_read, scattered

PAGE = mmap.PAGESIZE
MiB = 1 << 20


class Asked(mmap.mmap):
    """A map of zeros that notes what is asked of the system, and what is touched."""

    def __init__(self, *_: object) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.touched: list[int] = []

    def madvise(self, option: int, start: int = 0, length: int | None = None) -> None:
        if option == mmap.MADV_WILLNEED:
            assert length is not None
            self.ranges.append((start, start + length))
        super().madvise(option, start, len(self) - start if length is None else length)

    def __getitem__(self, at: slice) -> bytes:  # type: ignore[override]
        self.touched.append(at.start)
        return super().__getitem__(at)


@pytest.fixture
def asked() -> Iterator[Asked]:
    with Asked(-1, 8 * MiB) as mapped:
        yield mapped


def cold(reads: Iterator[int]) -> ColdPages:
    return ColdPages(lambda: next(reads))


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_a_stretch_is_asked_for_in_whole_pages_and_pieces_that_linux_takes(asked: Asked) -> None:
    ask_to_read(asked, PAGE + 7, MiB)
    assert asked.ranges[0][0] == PAGE
    assert asked.ranges[-1][1] == MiB
    assert all(end == start for (_, end), (start, _) in pairwise(asked.ranges))
    assert max(end - start for start, end in asked.ranges) <= 128 << 10


def test_nothing_is_asked_for_behind_the_end_of_a_map(asked: Asked) -> None:
    ask_to_read(asked, len(asked) - 1, len(asked) + MiB)
    ask_to_read(asked, len(asked) + PAGE, len(asked) + MiB)
    assert asked.ranges == [(len(asked) - PAGE, len(asked))]


def test_what_is_in_memory_is_touched_and_not_asked_for(asked: Asked) -> None:
    pages = cold(repeat(5))
    pages.ahead(asked, ints(*range(0, 100 * PAGE, PAGE)), ints(*range(9, 100 * PAGE, PAGE)))
    assert asked.ranges == []
    assert 0 < len(asked.touched) <= 8
    assert pages.left == 0


def test_what_a_device_had_to_be_read_for_is_asked_for(asked: Asked) -> None:
    pages = cold(count())
    pages.ahead(asked, ints(0, MiB, 3 * MiB), ints(10, MiB + 2 * PAGE, 3 * MiB + 10))
    assert asked.ranges == [(0, 10), (MiB, MiB + 2 * PAGE), (3 * MiB, 3 * MiB + 10)]
    assert pages.left > 0


def test_once_reads_wait_nothing_is_touched_before(asked: Asked) -> None:
    pages = cold(count())
    pages.judge(-1)
    pages.ahead(asked, ints(0), ints(10))
    assert asked.touched == []
    assert asked.ranges == [(0, 10)]


def test_stretches_in_any_order_that_stand_near_each_other_are_asked_for_together(
    asked: Asked,
) -> None:
    pages = cold(count())
    pages.ahead(asked, ints(3 * PAGE, MiB, 0), ints(4 * PAGE, MiB + 1, 2 * PAGE))
    assert asked.ranges == [(0, 4 * PAGE), (MiB, MiB + 1)]


def test_no_more_is_asked_for_at_once_than_memory_can_be_expected_to_hold() -> None:
    with Asked(-1, 80 * MiB) as mapped:
        starts = np.arange(0, 80 * MiB, MiB)
        cold(count()).ahead(mapped, starts, starts + MiB // 2)
        assert sum(end - start for start, end in mapped.ranges) <= 64 * MiB


def test_reads_that_find_all_in_memory_for_long_end_it() -> None:
    pages = cold(repeat(0))
    pages.left = 3
    assert [pages.judge(0) for _ in range(3)] == [True, True, False]
    assert pages.judge(0) is False


def test_one_read_of_the_device_begins_it_anew() -> None:
    pages = cold(iter([1, 1]))
    assert pages.judge(0)
    left = pages.left
    assert pages.judge(1)
    assert pages.left == left - 1


def test_what_is_done_often_is_judged_one_time_in_eight() -> None:
    pages = ColdPages()
    assert [pages.seldom() for _ in range(17)].count(True) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a map was advised")
def test_a_map_for_reads_here_and_there_is_advised_so_and_another_is_not(tmp_path: Path) -> None:
    for name, advised in (("plain", False), ("scattered", True)):
        path = str(tmp_path / name)
        Path(path).write_bytes(bytes(PAGE))
        disk = RealDisk()
        mapped = scattered(disk.map(path)) if advised else disk.map(path)
        assert len(mapped) == PAGE
        assert ("rr" in flags_of(path)) is advised


def flags_of(path: str) -> list[str]:
    """Flags of the map of a file in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith(path))
    return next(line for line in lines if line.startswith("VmFlags")).split()[1:]


def test_bytes_in_place_of_a_map_are_left_alone() -> None:
    assert scattered(b"abc") == b"abc"
    ask_to_read(b"abc", 0, 3)
    cold(count()).ahead(b"abc", ints(0), ints(3))


def test_advice_that_the_system_does_not_take_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(mmap.mmap):
        def madvise(self, *_: object) -> None:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with Refused(-1, MiB) as mapped:
        assert scattered(mapped) is mapped
        ask_to_read(mapped, 0, MiB)
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    monkeypatch.setattr(os, "posix_fadvise", refused, raising=False)
    assert RealDisk().opened_to_read(str(path))(2, 1) == b"bc"


def test_a_file_that_is_open_to_be_read_is_read_after_it_was_unlinked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    pread = RealDisk().opened_to_read(str(path))
    path.unlink()
    assert pread(3, 4) == b"456"


def scattered_stretches() -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Of forty pages, far enough from each other that each is asked for by itself."""
    starts = np.arange(40) * 8 * PAGE
    return starts, starts + 10


def test_of_many_stretches_those_are_asked_for_that_are_not_in_memory(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, ends = scattered_stretches()
    monkeypatch.setattr(cold_pages, "absent", lambda *_: starts % (80 * PAGE) == 16 * PAGE)
    cold(count()).ahead(asked, starts, ends)
    assert asked.ranges == [(at * PAGE, at * PAGE + 10) for at in (16, 96, 176, 256)]


def test_where_all_is_in_memory_nothing_is_asked_for(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, ends = scattered_stretches()
    monkeypatch.setattr(cold_pages, "absent", lambda *_: starts < 0)
    pages = cold(repeat(5))
    pages.left = 9
    pages.ahead(asked, starts, ends)
    assert asked.ranges == []
    assert pages.left == 8


def test_a_system_that_says_all_is_in_memory_though_reads_wait_is_not_believed(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, ends = scattered_stretches()
    monkeypatch.setattr(cold_pages, "absent", lambda *_: starts < 0)
    cold(count()).ahead(asked, starts, ends)
    assert len(asked.ranges) == len(starts)


def test_where_it_cannot_be_told_all_are_asked_for(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, ends = scattered_stretches()
    monkeypatch.setattr(cold_pages, "absent", lambda *_: None)
    cold(count()).ahead(asked, starts, ends)
    assert len(asked.ranges) == len(starts)
