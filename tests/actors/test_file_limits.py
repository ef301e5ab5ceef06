"""No journal file grows past what it can be sealed at."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from whole_store import opened

import octavo
from octavo.actors import inker as inkers
from octavo.actors.compaction import settle
from octavo.actors.inker_clerk import InkerClerk
from octavo.files import cdb

FAR = 3 << 30
"""Sqns that unclean stops have skipped between two files."""


def test_a_batch_that_fits_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdb, "MAX_FILE_BYTES", 100_000)
    with opened(tmp_path / "s", compression="none") as store:
        sqn = store.put("k", "before")
        batch = store.batch()
        for number in range(10):
            batch.put("", str(number), bytes(20_000))
        with pytest.raises(octavo.Misuse, match="fit a journal file"):
            batch.commit()
        assert dict(store.items()) == {b"k": b"before"}
        assert store.put("k", "after") == sqn + 1


def test_bucket_names_count_in_a_batch(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        batch = store.batch()
        batch.put("b" * 60_000, "key", "value")
        assert batch._bytes >= 60_000
        batch.discard()


def test_a_file_that_cannot_be_rolled_takes_no_more_than_can_be_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no file can be made, though there is room for bytes: no inode is left."""
    monkeypatch.setattr(inkers, "_MOST_BYTES", 300_000)
    store = opened(tmp_path / "s", roll_count=256)

    def no_inode(base_sqn: int) -> NoReturn:
        raise octavo.StorageFull("no inode is left")

    monkeypatch.setattr(store._inker, "new_file", no_inode)
    put = 0
    while store._inker.failed is None and put < 20_000:
        store.put(b"%05d" % put, bytes(100))
        put += 1
    assert put < 5000
    with pytest.raises(octavo.StorageFailed, match="is full: make room and reopen"):
        store.put("one", "more")
    with pytest.raises(octavo.StorageFailed):
        store.close()
    with opened(tmp_path / "s") as store:
        assert len(store) == put
        store.put("k", "v")


def test_no_file_of_a_run_reaches_farther_than_it_can_count(tmp_path: Path) -> None:
    model = {b"%03d" % number: b"%d" % number for number in range(200)}
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        bookie, inker = store._bookie, store._inker
        for _ in range(3):
            store.put_many((key, bytes(100)) for key in model)
            bookie.enter()
            inker.enter()
            bookie.push()
            inker.begin_at(inker.last_sqn + FAR)
            inker.leave()
            bookie.leave()
        store.put_many(model)
        clerk = store._running.inker_clerk.actor
        settle(clerk)
        clerk.actor_ref.call(InkerClerk.work)
        assert inker.manifest.entries[0].count == 0
        assert dict(store.items()) == model
    with opened(tmp_path / "s") as store:
        assert dict(store.items()) == model
        assert store.verify().ok


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "many"])
def test_a_file_has_as_many_records_as_the_option_says(tmp_path: Path, together: bool) -> None:
    with opened(tmp_path / "s", roll_count=256) as store:
        pairs = [(b"%03d" % number, b"") for number in range(1000)]
        if together:
            for at in range(0, 1000, 8):
                store.put_many(pairs[at : at + 8])
        else:
            for key, value in pairs:
                store.put(key, value)
        files = store.stats()["journal"]["file_list"]
        assert [file["records"] for file in files] == [256, 256, 256, 232]
