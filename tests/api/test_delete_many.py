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
        with pytest.raises(octavo.Misuse, match="keys='abc' is a str"):
            store.delete_many("abc")
        with pytest.raises(octavo.Misuse, match="key is a int"):
            store.delete_many(b"abc")  # type: ignore[arg-type]
        assert len(store) == 3
