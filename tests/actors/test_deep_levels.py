"""Deletes and expiries on their way down through levels of several files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_store import Clock, flush, opened

import octavo
from octavo.actors import penciller
from octavo.manifest import level_sizes

clock = Clock(1000)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[octavo.Store]:
    """Each file of level zero is merged at once; level one holds four rows."""
    monkeypatch.setattr(penciller, "LEVEL_ZERO_FILES", 1)
    monkeypatch.setattr(level_sizes, "LEVEL_ONE_ROWS", 4)
    clock.now = 1000
    with opened(tmp_path / "s", clock_ms=lambda: int(clock.now)) as made:
        yield made


def rows(store: octavo.Store) -> list[int]:
    """How many rows each level has, from level one on."""
    return [sum(entry.rows for entry in level) for level in store._bookie.view.ledger.levels[1:]]


def test_a_merge_beside_it_keeps_what_hides_an_older_version_further_down(
    store: octavo.Store,
) -> None:
    store.put_many((key, b"old") for key in (b"a", b"b", b"c", b"d", b"e"))
    flush(store)
    assert rows(store) == [0, 5]
    store.put(b"b", b"newer", expires_at=2000)
    store.delete(b"c")
    store.put(b"y", b"1")
    flush(store)
    assert rows(store) == [3, 5]
    clock.now = 3000
    store.put(b"m", b"1")  # of its range alone there is nothing below level one
    flush(store)
    assert sum(rows(store)) > 6
    assert list(store.keys()) == [b"a", b"d", b"e", b"m", b"y"]
    assert store.get_many([b"b", b"c"]) == [None, None]
    assert store.verify().ok


def test_at_the_bottom_they_go(store: octavo.Store) -> None:
    store.put_many((key, b"old") for key in (b"a", b"b", b"c", b"d", b"e"))
    flush(store)
    store.delete_many([b"a", b"b", b"c", b"d", b"e"])
    flush(store)
    assert sum(rows(store)) == 0


def test_files_that_meet_in_one_key_are_merged_not_moved(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for low in (0, 9, 18, 27):
            store.put_many((b"%02d" % number, b"%d" % low) for number in range(low, low + 10))
            flush(store)
        assert [len(level) for level in store._bookie.view.ledger.levels] == [0, 1]
        assert [store.get(b"%02d" % number) for number in (8, 9, 10)] == [b"0", b"9", b"9"]
        assert store.verify().ok
