"""The whole journal is missing: nothing is invented, and nothing hangs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from beside import LITTLE, Beside, seeded, value
from whole_store import flush

import octavo

COUNT = 600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = seeded("missing")
    with Beside(tmp_path / "store", **LITTLE) as made:
        for number in range(COUNT):
            made.put(b"", b"%05d" % number, value(rng, 60))
        flush(made.store)
    return tmp_path / "store"


def test_without_its_files_every_value_is_missed_by_name(path: Path) -> None:
    for file in (path / "journal").glob("*-*.*"):
        file.unlink()
    with octavo.open(path, **LITTLE) as store:
        assert store.stats()["notes"]
        known = len(store)  # to the ledger
        assert known > COUNT - 100
        for number in range(0, known, 37):
            with pytest.raises(octavo.Corruption, match="missing"):
                store.get(b"%05d" % number)
        with pytest.raises(octavo.Corruption, match="missing"):
            next(store.items())
        assert store.get(b"absent") is None
        assert not store.verify().ok


def test_the_store_can_be_written_anew_without_it(path: Path) -> None:
    for file in (path / "journal").glob("*-*.*"):
        file.unlink()
    with octavo.open(path, **LITTLE) as store:
        last = store.last_sqn
        for number in range(COUNT):
            assert store.put(b"%05d" % number, b"new") > last
        assert dict(store.items()) == {b"%05d" % number: b"new" for number in range(COUNT)}
    with octavo.open(path, **LITTLE) as store:
        assert len(list(store.items())) == COUNT


def test_with_neither_journal_nor_ledger_it_is_empty_and_says_so(path: Path) -> None:
    shutil.rmtree(path / "journal")
    shutil.rmtree(path / "ledger")
    with octavo.open(path, **LITTLE) as store:
        assert not store
        store.put("k", "v")
    with octavo.open(path, **LITTLE) as store:
        assert dict(store.items()) == {b"k": b"v"}


def test_without_the_ledger_everything_comes_from_the_journal(path: Path) -> None:
    shutil.rmtree(path / "ledger")
    with octavo.open(path, **LITTLE) as store:
        assert len(list(store.items())) == COUNT
        assert store.verify().ok
