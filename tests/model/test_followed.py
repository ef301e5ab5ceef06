"""What the run of a followed store makes of the errors that it is told (``followed.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from followed import SLOW, Case, ends
from followed_plan import drawn
from followed_reads import Reads

FRAMES = "\tat java.base/java.io.ObjectInputStream.readObject0(ObjectInputStream.java:1733)\n" * 400


class Failing(Reads):
    def snapshot(self) -> Any:
        raise OSError(f"this was wrong\n{FRAMES}")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(drawn("1", master="local[2]"), tmp_path)
    running: Any = SimpleNamespace(killed=False)
    made.spark = running
    return made


def test_of_a_read_that_fails_the_beginning_of_the_error_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Behind it Java has thousands of characters, which tell nobody what it was."""
    Failing({"source": "", "work": str(tmp_path), "luck": "1", "heads": True}).one()
    word, kind, why = json.loads(capfd.readouterr().out)
    assert (word, kind) == ("refused", "snapshot")
    assert why.startswith("OSError: this was wrong")


def test_a_query_that_fails_undisturbed_fails_the_case_with_how_its_error_begins(
    case: Case,
) -> None:
    with pytest.raises(AssertionError, match="this was wrong"):
        case.spark_says(["failed", "log", f"this was wrong\n{FRAMES}"])


def test_a_worker_of_spark_that_is_late_is_no_failure(case: Case) -> None:
    case.spark_says(["failed", "log", f"{SLOW}.\n{FRAMES}"])
    case.spark_says(["refused", "range", f"{SLOW}.\n{FRAMES}"])


def test_what_is_shown_of_a_long_error_is_both_its_ends() -> None:
    shown = ends(f"this was wrong\n{FRAMES}and there")
    assert shown.startswith("this was wrong")
    assert shown.endswith("and there")
    assert len(shown) < 3000
