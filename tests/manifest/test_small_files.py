"""Which small files are put together."""

from __future__ import annotations

import random

import pytest

from octavo.manifest.small_files import FEW_SMALL, MANY_SMALL, SMALL, small_run

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
