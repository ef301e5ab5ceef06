"""Some of what scripts/campaigns/mutants.py takes away is really taken away and noticed here. All
of it: that script. That its list is up to date: tests/test_house.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts" / "campaigns"))
import mutants

FAST = (
    "checksum of a record's value",
    "the system's fsync of an open file",
    "the end of a lease",
)
"""One of each kind, of modules that load quickly."""


def test_there_are_many() -> None:
    assert len(mutants.ALL) >= 130


def test_a_text_that_is_gone_or_there_twice_is_told() -> None:
    known = mutants.ALL[0]
    assert mutants.faults([known]) == []
    for text in ("no such text", "self"):
        (fault,) = mutants.faults([known._replace(text=text)])
        assert "its text stands" in fault
    for test in ("tests/nowhere.py", f"{known.test.partition('::')[0]}::test_of_nothing"):
        (fault,) = mutants.faults([known._replace(test=test)])
        assert "there is no" in fault
    (fault,) = mutants.faults([known._replace(instead="(")])
    assert "would not be Python" in fault


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> mutants.Scratch:
    return mutants.Scratch(tmp_path_factory.mktemp("mutants"))


def test_what_is_taken_away_is_noticed(scratch: mutants.Scratch) -> None:
    for what in FAST:
        (mutant,) = (each for each in mutants.ALL if each.what == what)
        run = scratch.mutated(mutant, [mutant.test], mutants.TIMEOUT_SECONDS)
        assert mutants.said(run) == "caught", what
        assert run.failed.startswith(mutant.test.partition("[")[0]), what


def test_nothing_taken_away_is_not_noticed(scratch: mutants.Scratch) -> None:
    (mutant,) = (each for each in mutants.ALL if each.what == FAST[0])
    same = mutant._replace(instead=mutant.text)
    assert mutants.said(scratch.mutated(same, [mutant.test], mutants.TIMEOUT_SECONDS)) == "SURVIVED"
