"""No journal file grows past what it can be sealed at."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from whole_store import opened

import octavo
from octavo.actors import inker as inkers
from octavo.actors.compacting import scheduled
from octavo.actors.compacting.compaction import settle
from octavo.files.jobs import compaction
from octavo.files.journal import cdb

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


@pytest.mark.parametrize("how", ["one by one", "many", "batches"])
def test_a_file_that_cannot_be_rolled_is_tried_again_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Not at each put from there on, with a message each time."""
    with opened(tmp_path / "s", roll_size_bytes=1 << 20, compression="none") as store:
        tries, make = [], store._inker.new_file

        def no_inode(base_sqn: int) -> NoReturn:
            tries.append(base_sqn)
            raise octavo.StorageFull("no inode is left")

        def put(first: int) -> None:
            pairs = [(b"%06d" % number, bytes(4000)) for number in range(first, first + 5)]
            if how == "one by one":
                for key, value in pairs:
                    store.put(key, value)
            elif how == "many":
                store.put_many(pairs)
            else:
                with store.batch() as batch:
                    for key, value in pairs:
                        batch.put("", key, value)

        monkeypatch.setattr(store._inker, "new_file", no_inode)
        for number in range(0, 1000, 5):
            put(number)
        assert 10 <= len(tries) <= 30
        told = [record for record in caplog.records if record.name == "octavo.inker"]
        assert [record.levelname for record in told] == ["WARNING"]
        monkeypatch.setattr(store._inker, "new_file", make)
        for number in range(1000, 1050, 5):
            put(number)
        assert store.stats()["journal"]["files"] == 2
        assert len(store) == 1050


@pytest.mark.parametrize("asked", [False, True])
def test_no_file_of_a_run_reaches_farther_than_it_can_count(tmp_path: Path, asked: bool) -> None:
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
        if asked:
            store.compact()
        else:
            clerk.actor_ref.call(scheduled.work)
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


def test_a_value_put_among_many_goes_into_a_file_that_has_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdb, "MAX_FILE_BYTES", 3 << 20)
    monkeypatch.setattr(inkers, "_MOST_BYTES", 2 << 20)
    pairs = {b"first": bytes(1000), b"large": bytes(5 << 19), b"last": b""}
    with opened(tmp_path / "s", compression="none", roll_size_bytes=1 << 20) as store:
        store.put(b"before", bytes(900_000))
        store.put_many(pairs)
        assert {key: store.get(key) for key in pairs} == pairs
    files = list((tmp_path / "s/journal").glob("*-*"))
    assert len(files) == 3  # what was before, what is large, and the next one
    assert max(file.stat().st_size for file in files) < cdb.MAX_FILE_BYTES


def test_a_batch_that_is_moved_goes_into_a_file_that_has_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdb, "MAX_FILE_BYTES", 4 << 20)
    monkeypatch.setattr(compaction, "_LARGE", 64 << 10)
    monkeypatch.setattr(compaction, "_CHUNK", 256)
    options = {"compression": "none", "roll_size_bytes": 1 << 20, "compact_every_seconds": None}
    with opened(tmp_path / "s", push_bytes=1 << 30, **options) as store:
        store.put_many((b"first %03d" % number, bytes(3500)) for number in range(256))
        store.put_many((b"gone %03d" % number, bytes(3500)) for number in range(130))
        with store.batch() as batch:
            for number in range(33):
                batch.put("", b"batch %02d" % number, bytes(100_000))
        store.delete_many(b"gone %03d" % number for number in range(130))
        store.delete_many(b"first %03d" % number for number in range(100))
        expected = dict(store.items())
        store.compact()
        found = store._inker.manifest.entries
        assert [each.count for each in found] == [156, 33]
        assert max(each.bytes for each in found) < cdb.MAX_FILE_BYTES
        assert dict(store.items()) == expected
        assert store.verify().ok
