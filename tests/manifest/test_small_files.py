"""Which small files are put together."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from octavo.actors.penciller import LEVEL_ZERO_FILES
from octavo.files.ledger.rows import PART_BYTES, ROW_BYTES
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.level_sizes import MAX_FILE_BYTES, MAX_FILE_ROWS
from octavo.manifest.small_files import FEW_SMALL, MANY_SMALL, SMALL, alike, small_run

TINY = 1 / 100_000


@pytest.mark.parametrize(
    ("fills", "run"),
    [
        ([], None),
        ([TINY] * (FEW_SMALL - 1), None),
        ([TINY] * FEW_SMALL, (0, FEW_SMALL)),
        ([TINY] * 1000, (0, MANY_SMALL)),
        ([1.0, *[TINY] * 40, 1.0], (1, 41)),
        ([1 / SMALL, *[TINY] * 40], (1, 41)),
        ([*[TINY] * 31, None, *[TINY] * 31], None),
        ([*[TINY] * 31, None, *[TINY] * 33], (32, 65)),
        ([0.1, *[TINY] * 40], (1, 41)),  # for a few bytes the large one is not moved
        ([0.03] * 64, (0, 33)),  # no more than one file full
        ([0.04] * 64, None),  # nothing would be gained
    ],
)
def test_small_neighbours_are_put_together(
    fills: list[float | None], run: tuple[int, int] | None
) -> None:
    found = small_run(fills)
    assert (found and (found.start, found.stop)) == run


@pytest.mark.parametrize("largest", [TINY, 30 * TINY, 1000 * TINY])
def test_few_small_files_stay_and_a_byte_moves_few_times(largest: float) -> None:
    rng = random.Random(20261125)
    fills: list[float] = []
    most, came, moved = 0, 0.0, 0.0
    for _ in range(20_000):
        fills.append(rng.uniform(TINY, largest))
        came += fills[-1]
        while found := small_run(fills):
            moved += sum(fills[found])
            fills[found] = [sum(fills[found])]
        most = max(most, sum(fill < 1 / SMALL for fill in fills))
    print(f"at most {most} small ones of {len(fills)}; each byte moved {moved / came:.1f} times")
    assert sum(fills) == pytest.approx(came)
    assert most < 4 * FEW_SMALL
    assert moved < 7 * came


def level_zero(rows: list[int]) -> tuple[LedgerEntry, ...]:
    """Files of so many rows, newest first, each newer than the next."""
    made, sqn = [], 10**9
    for number, count in enumerate(rows):
        made.append(entry(f"{number}", count, sqn - count + 1, sqn))
        sqn -= count
    return tuple(made)


def entry(name: str, rows: int, min_sqn: int, max_sqn: int) -> LedgerEntry:
    return LedgerEntry(name, 0, rows, 10 * rows, 0, 0, b"a", b"z", min_sqn, max_sqn, 0)


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([100, 100, 100], 0),
        ([100, 100, 100, 100], 4),
        ([100, 100, 100, 100, 1000], 4),
        ([100, 100, 100, 100, 400, 400, 400], 7),
        ([100, 100, 100, 1000], 0),
        ([1, 1000, 1, 1000], 4),
        ([1000, 1, 1, 1], 0),
    ],
)
def test_the_newest_files_of_level_zero_that_are_alike_become_one(
    rows: list[int], count: int
) -> None:
    assert len(alike(level_zero(rows), 4)) == count


def test_files_of_one_save_are_not_parted() -> None:
    # The older three came together: they share sqns, and no keys, but keys with the newer ones.
    files = (
        entry("new", 100, 401, 500),
        *(entry(f"{n}", 100, 100 + n, 400 - n) for n in range(3)),
        entry("old", 10_000, 1, 50),
    )
    assert len(alike(files, 3)) == 4
    assert alike((files[0], entry("one", 100, 100, 400), entry("large", 2000, 101, 399)), 2) == ()


def test_no_more_than_one_file_holds_are_made_one() -> None:
    rows = MAX_FILE_ROWS // 5
    assert len(alike(level_zero([rows] * 8), 4)) == 5
    size = MAX_FILE_BYTES // 4 + 1
    files = tuple(replace(each, bytes=size) for each in level_zero([100] * 8))
    assert alike(files, 4) == ()


def test_no_more_than_a_job_may_have_open_are_made_one() -> None:
    assert len(alike(level_zero([1] * 2 * MANY_SMALL), 4)) == MANY_SMALL


def test_level_zero_stays_few_while_small_files_come() -> None:
    rng = random.Random(20261125)
    for least, most in ((50, 150), (1, 1), (1, 1000)):
        rows: list[int] = []
        came = moved = largest = 0
        for _ in range(5000):
            rows.insert(0, rng.randint(least, most))
            came += rows[0]
            if count := len(alike(level_zero(rows), 4)):
                moved += sum(rows[:count])
                rows[:count] = [sum(rows[:count])]
            largest = max(largest, len(rows))
            if sum(rows) > MAX_FILE_ROWS:  # which is no more little
                rows.clear()
        print(
            f"{least} .. {most} rows: {largest} files at most, each row moved {moved / came:.1f} x"
        )
        assert largest <= 16
        assert moved < 8 * came


def test_what_is_put_together_becomes_fewer_files() -> None:
    # Files of the ledger that are one full file at the most: a merge goes through so many ranges of
    # their keys, each of which makes files of its own, one of them more where a row is thought to
    # take more than it does. Else they would be put together without end.
    ranges = -(-(MAX_FILE_ROWS * ROW_BYTES + MAX_FILE_BYTES) // PART_BYTES)
    assert ranges + 1 < min(FEW_SMALL, LEVEL_ZERO_FILES)
