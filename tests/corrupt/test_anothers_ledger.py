"""A ledger, whole in itself, of another store, or of a later state of this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from whole_store import flush, opened

import octavo


def filled(path: Path, keys: range) -> None:
    with opened(path) as store:
        for key in keys:
            store.put(b"%03d" % key, b"of %s" % path.name.encode())
        flush(store)


@pytest.mark.parametrize("count", [6, 50])
def test_a_ledger_that_knows_more_than_the_journal_ever_had_is_made_anew(
    tmp_path: Path, count: int
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    filled(here, range(5))
    filled(there, range(100, 100 + count))
    shutil.rmtree(here / "ledger")
    shutil.copytree(there / "ledger", here / "ledger")
    with opened(here) as store:
        assert dict(store.items()) == {b"%03d" % key: b"of here" for key in range(5)}
        assert [store.get(b"%03d" % key) for key in range(100, 150)] == [None] * 50
        assert any("more than the journal ever had" in note for note in store.stats()["notes"])
        assert store.put(b"next", b"1") == 6
        assert store.verify().ok


def test_of_a_head_only_store_it_is_refused(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for path, count in ((here, 5), (there, 50)):
        with octavo.open(path, mode="head_only") as store:
            with store.head_batch() as batch:
                for number in range(count):
                    batch.put("b", b"%03d" % number, b"v")
            flush(store)
    shutil.rmtree(here / "ledger")
    shutil.copytree(there / "ledger", here / "ledger")
    with pytest.raises(octavo.Corruption, match="more than the journal ever had"):
        octavo.open(here)
