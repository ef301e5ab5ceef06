"""Whether a store, a bucket, a snapshot is empty."""

from __future__ import annotations

from pathlib import Path

from beside import LITTLE, Beside

import octavo


def test_a_new_store_is_empty_and_one_put_changes_that(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        assert not store
        assert not store.bucket("b")
        store.bucket("b").put("k", "v")
        assert not store  # which is its default bucket
        assert store.bucket("b")
        assert list(store.buckets()) == [b"b"]


def test_emptiness_survives_saving_merging_and_reopening(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for turn in range(3):
            for number in range(400):
                beside.put(b"b", b"%03d" % number, b"x")
            assert beside.store.bucket(b"b")
            for number in range(400):
                beside.delete(b"b", b"%03d" % number)
            assert not beside.store.bucket(b"b"), turn
            beside.reopen()
            assert not beside.store.bucket(b"b"), turn
        beside.store.compact()
        assert not beside.store.bucket(b"b")
        assert list(beside.store.buckets()) == []


def test_the_last_key_among_thousands_of_deletes_is_found(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for number in range(3000):
            beside.put(b"", b"%04d" % number, b"x")
        for number in range(2999):
            beside.delete(b"", b"%04d" % number)
        assert beside.store
        beside.delete(b"", b"2999")
        assert not beside.store


def test_what_has_expired_is_not_there(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put("k", "v", expires_at=1)
        assert not store
        store.put("k", "v", ttl=1000)
        assert store


def test_a_snapshot_is_as_empty_as_the_store_was(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store, store.snapshot() as before:
        store.put("k", "v")
        with store.snapshot() as after:
            store.delete("k")
            assert (bool(before), bool(after), bool(store)) == (False, True, False)
