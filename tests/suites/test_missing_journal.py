"""The whole journal is missing: nothing is invented, and nothing hangs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from beside import LITTLE, Beside, seeded, value
from whole_store import flush, killed

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


def test_without_its_directory_no_number_is_given_again_and_what_is_put_stays(
    path: Path, tmp_path: Path
) -> None:
    shutil.rmtree(path / "journal")
    with octavo.open(path, **LITTLE) as store:
        (note,) = store.stats()["notes"]
        assert f"the ledger goes up to {COUNT}" in note
        assert store.put(b"%05d" % 0, b"new") > COUNT
        with pytest.raises(octavo.HistoryCompacted):
            next(store.changes(since=COUNT - 1))
        assert [change.value for change in store.changes(since=COUNT)] == [b"new"]
        flush(store)
        image = killed(store, tmp_path / "image")
    with octavo.open(image, **LITTLE) as store:
        assert store[b"%05d" % 0] == b"new"
        with pytest.raises(octavo.Corruption, match="journal"):
            store.get(b"%05d" % 1)


def test_a_head_only_store_without_its_directory_goes_on_from_the_ledger(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", mode="head_only", **LITTLE) as store:
        for number in range(COUNT):
            store.head_bucket("b").put(b"%05d" % number, b"old")
        flush(store)
        store.trim()
    shutil.rmtree(tmp_path / "store" / "journal")
    with octavo.open(tmp_path / "store", **LITTLE) as store:
        assert store.head_bucket("b").put(b"%05d" % 0, b"new") > COUNT
        image = killed(store, tmp_path / "image")
    with octavo.open(image, **LITTLE) as store:
        bucket = store.head_bucket("b")
        assert [bucket.get(b"%05d" % number) for number in (0, 1)] == [b"new", b"old"]
        flush(store)
        assert store.verify().ok
