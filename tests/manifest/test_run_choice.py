"""Which run of journal files is worth compacting most."""

from __future__ import annotations

import pytest

from octavo.manifest.run_choice import Worth, best_run

DEFAULT = Worth()


@pytest.mark.parametrize(
    ("count", "target"), [(1, 30.0), (2, 30 + 40 / 7), (4, 30 + 120 / 7), (8, 70.0)]
)
def test_the_target_grows_with_the_run(count: int, target: float) -> None:
    assert DEFAULT.target(count) == pytest.approx(target)


@pytest.mark.parametrize(
    ("scores", "run"),
    [
        ([], None),
        ([100.0], None),
        ([30.0], None),
        ([29.0], (0, 1)),
        ([0.0, 100.0], (0, 1)),
        ([50.0] * 3, None),
        ([50.0] * 8, (0, 8)),
        ([50.0] * 20, (0, 8)),
        ([100.0, 10.0, 10.0, 100.0], (1, 2)),
        ([20.0, 100.0, 10.0], (2, 1)),
        ([50.0] * 4 + [None] + [50.0] * 4, None),
        ([None, 5.0, None], (1, 1)),
        ([10.0, 10.0], (0, 2)),
        ([69.0] * 7, None),
        ([69.0] * 8, (0, 8)),
        ([70.0] * 8, None),
        ([None] * 5, None),
        ([5.0, 90.0, 5.0], (0, 1)),
    ],
)
def test_the_best_positive_run(scores: list[float | None], run: tuple[int, int] | None) -> None:
    found = best_run(scores, DEFAULT)
    assert (found and found[:2]) == run


def test_one_bound_for_all_where_runs_are_of_one_file() -> None:
    worth = Worth(40.0, 90.0, 1)
    assert worth.target(1) == 40.0
    assert best_run([39.0, 20.0], worth) == (1, 1, 20.0)


@pytest.mark.parametrize("length", range(1, 33))
def test_files_without_garbage_are_never_worth_it(length: int) -> None:
    clean = [100.0] * length
    for tenths in range(1001):
        assert best_run(clean, Worth(tenths / 10, 100.0, length)) is None
