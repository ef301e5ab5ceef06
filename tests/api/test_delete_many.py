"""Deleting many keys in one call."""

from __future__ import annotations

from pathlib import Path

import pytest

import octavo


def test_delete_many_deletes_what_a_scan_gives_and_shares_a_sync(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((f"{half}/{n}", b"v") for half in "ab" for n in range(100))
        fsyncs = store.stats()["latencies"]["fsync"]["count"]
        assert store.delete_many(store.keys(prefix="a/"), sync=True) == store.last_sqn == 300
        assert store.stats()["latencies"]["fsync"]["count"] == fsyncs + 1
        assert list(store.keys()) == list(store.keys(prefix="b/"))
        assert store.delete_many([]) == 0


def test_delete_many_refuses_what_is_one_key_and_what_is_none(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((key, b"v") for key in "abc")
        for wrong in ("abc", b"abc", bytearray(b"abc"), 5, None):
            with pytest.raises(octavo.Misuse, match="allowed is an iterable of keys; one key goes"):
                store.delete_many(wrong)  # type: ignore[arg-type]
        assert len(store) == 3


def test_get_many_refuses_what_is_one_key_and_what_is_none(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store, store.snapshot() as snap:
        for wrong in ("abc", b"abc", bytearray(b"abc"), 5, None):
            for bucket in (store, store.bucket("b"), snap):
                with pytest.raises(octavo.Misuse, match=r"keys=.* is of type .*one key goes in a"):
                    bucket.get_many(wrong)  # type: ignore[arg-type]
        assert store.get_many(iter(["a", b"b"])) == [None, None]
