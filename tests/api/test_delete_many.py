"""Deleting many keys in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def test_deletes_of_one_call_share_turns_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    with octavo.open(tmp_path / "s") as store:
        store.put_many((f"{number}", "v") for number in range(2000))
        store.get_many(f"{number}" for number in range(50))  # they are in the read cache
        whole = store._bookie.put_many

        def counted(keys: list[bytes], *rest: Any) -> int:
            turns.append(len(keys))
            return whole(keys, *rest)

        with store.snapshot() as before:
            monkeypatch.setattr(store._bookie, "put_many", counted)
            assert (
                store.delete_many(f"{number}" for number in range(1999)) == store.last_sqn == 3999
            )
            assert sum(turns) == 1999
            assert len(turns) < 10
            assert list(store.keys()) == [b"1999"]
            assert store.get_many(f"{number}" for number in range(2000)) == [None] * 1999 + [b"v"]
            assert len(list(before.keys())) == 2000
            assert before["7"] == b"v"
    with octavo.open(tmp_path / "s") as store:
        assert list(store.items()) == [(b"1999", b"v")]


def test_a_wrong_key_among_many_takes_at_most_what_stands_before_it(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((f"{number:04}", "v") for number in range(2000))
        for wrong, left in (("", "1500"), (5, "1600")):
            keys = [f"{number:04}" for number in range(2000)]
            keys.insert(int(left), wrong)  # type: ignore[arg-type]
            with pytest.raises(octavo.Misuse, match="key"):
                store.delete_many(keys)
            here = [key.decode() for key in store]
            assert here == sorted(here)
            assert here[-1] == "1999"
            assert 0 < int(here[0]) <= int(left)
            assert len(here) == 2000 - int(here[0])
