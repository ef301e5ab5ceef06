"""How many processors a process may use, also in a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.files.door.processors import usable_processors


@pytest.fixture(autouse=True)
def bound_to_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)


@pytest.mark.parametrize(
    ("quota", "count"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("1000 100000\n", 1),
        ("6400000 100000\n", 8),
        ("max 100000\n", 8),
        ("", 8),
        ("0 0\n", 8),
        ("1 2 3\n", 8),
    ],
)
def test_a_container_may_leave_fewer(tmp_path: Path, quota: str, count: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_processors(str(tmp_path / "cpu.max")) == count


def test_without_a_container_it_is_those_that_the_process_is_bound_to(tmp_path: Path) -> None:
    assert usable_processors(str(tmp_path / "cpu.max")) == 8


def test_where_no_process_is_bound_it_is_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_processors(str(tmp_path / "cpu.max")) == 64
