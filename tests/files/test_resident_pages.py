"""Which stretches of a map are in memory, as the system tells it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np
import pytest

from octavo.files.kernels import resident_pages
from octavo.files.kernels.resident_pages import absent

PAGE = mmap.PAGESIZE
PAGES = 40


@pytest.fixture
def mapped() -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, PAGES * PAGE - 1) as made:
        yield made


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def say(monkeypatch: pytest.MonkeyPatch, mapped: mmap.mmap, *missing: int) -> list[int]:
    """Have the system say that these pages are missing; the lengths that it is asked for."""
    begin, lengths = np.frombuffer(mapped, dtype=np.uint8).ctypes.data, []

    def look(at: int, length: int, target: int) -> int:
        first, count = (at - begin) // PAGE, -(-length // PAGE)
        told = [number not in missing for number in range(first, first + count)]
        lengths.append(length)
        resident_pages._ctypes.memmove(target, bytes(0xFE | there for there in told), count)
        return 0

    monkeypatch.setattr(resident_pages, "_look", look)
    return lengths


def test_what_was_touched_is_in_memory(mapped: mmap.mmap) -> None:
    mapped[:] = bytes(len(mapped))
    found = absent(mapped, ints(0, 3 * PAGE), ints(PAGE, len(mapped)))
    assert found is not None
    assert found.tolist() == [False, False]


def test_what_nobody_has_touched_is_not(mapped: mmap.mmap) -> None:
    mapped[5 * PAGE] = 1
    found = absent(mapped, ints(20 * PAGE, 5 * PAGE), ints(21 * PAGE, 5 * PAGE + 1))
    assert found is not None
    assert found.tolist() == [True, False]


def test_a_stretch_of_which_one_page_is_missing_is_absent(
    mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, mapped, 7, 39)
    starts = ints(6 * PAGE, 7 * PAGE + 9, 8 * PAGE, 5 * PAGE, 38 * PAGE, 39 * PAGE)
    ends = ints(7 * PAGE, 7 * PAGE + 10, 9 * PAGE, 9 * PAGE, 39 * PAGE + 1, len(mapped))
    found = absent(mapped, starts, ends)
    assert found is not None
    assert found.tolist() == [False, True, False, True, True, True]


def test_no_page_outside_of_the_stretches_is_asked_about(
    mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = say(monkeypatch, mapped)
    absent(mapped, ints(9 * PAGE, 3 * PAGE + 7), ints(9 * PAGE + 1, 3 * PAGE + 8))
    absent(mapped, ints(39 * PAGE), ints(len(mapped)))
    assert lengths == [7 * PAGE, PAGE - 1]


def test_of_few_stretches_that_are_far_apart_it_is_not_asked() -> None:
    with mmap.mmap(-1, 100 * PAGE) as wide:
        assert absent(wide, ints(0, 99 * PAGE), ints(1, 99 * PAGE + 1)) is None


def test_where_the_system_cannot_tell_nothing_is_told(
    mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Without:
        def CDLL(self, name: None) -> object:  # noqa: N802 (as ctypes has it)
            return object()

    monkeypatch.setattr(resident_pages, "_ctypes", Without())
    assert absent(mapped, ints(0), ints(1)) is None
