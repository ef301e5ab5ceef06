"""Stores that are compared are looked at one after the other: what expires between the two looks
is in neither of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from whole_store import WallClock, opened

import octavo
from octavo.cli import compare as command
from octavo.cli.commands import cli

FIRST_MS = 1_900_000_000_000
LATER_MS = FIRST_MS + 1000
BETWEEN_MS = FIRST_MS + 500


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[octavo.Store, octavo.Store]]:
    """The same in both, and one key of each that expires as the second one is still being opened;
    the clock of the first one stands where it was looked at."""
    with (
        opened(tmp_path / "a", clock_ms=WallClock(FIRST_MS)) as a,
        opened(tmp_path / "b", clock_ms=WallClock(LATER_MS)) as b,
    ):
        for store in (a, b):
            store.put_many((b"k%02d" % n, b"v") for n in range(20))
            store.put("k05", "in both for a moment", expires_at=BETWEEN_MS)
            store.put("k07", "in both", expires_at=LATER_MS + 1)
        a.put("only here", "for a moment", expires_at=BETWEEN_MS)
        a.put("k09", "replaces for a moment", expires_at=LATER_MS)
        yield a, b


def test_what_expired_between_the_looks_at_two_stores_is_no_difference(
    two: tuple[octavo.Store, octavo.Store],
) -> None:
    a, b = two
    for by in ("head", "value"):
        found = list(octavo.compare(a, b, by=by))  # type: ignore[arg-type]
        assert [(one.key, one.a, one.b and one.b.size) for one in found] == [(b"k09", None, 1)]
        found = list(octavo.compare(b, a, by=by))  # type: ignore[arg-type]
        assert [(one.key, one.a and one.a.size, one.b) for one in found] == [(b"k09", 1, None)]


def test_snapshots_are_compared_each_as_of_its_own_moment(
    two: tuple[octavo.Store, octavo.Store],
) -> None:
    with two[0].snapshot() as x, two[1].snapshot() as y:
        found = [one.key for one in octavo.compare(x, y, by="head")]
    assert found == [b"k05", b"k09", b"only here"]


def test_the_command_tells_none_either(
    two: tuple[octavo.Store, octavo.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_path = {"a": two[0], "b": two[1]}
    monkeypatch.setattr(command, "open_for_reading", by_path.__getitem__)
    found = CliRunner().invoke(cli, ["diff", "a", "b", "--by", "head"])
    assert found.exit_code == 1
    assert [line.split("\t")[:3] for line in found.stdout.splitlines()] == [["+", "", "k09"]]
