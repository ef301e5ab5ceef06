"""Puts of one batch go to the buckets that they name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import octavo


def test_buckets_that_take_turns(tmp_path: Path) -> None:
    names = [b"", b"a", "a", "ä", bytearray(b"b"), memoryview(b"c")]
    with octavo.open(tmp_path / "s") as store:
        with store.batch() as batch:
            for turn, name in enumerate([*names, *names[::-1], *names]):
                batch.put(name, b"%d" % turn, b"")
                batch.put(name, "plain", b"", metadata=b"m")
                batch.delete(b"b", b"5")
                batch.put(name, f"{turn}+", "")
        of = {
            b"": [0, 11, 12], b"a": [1, 2, 9, 10, 13, 14], "ä".encode(): [3, 8, 15],
            b"b": [4, 7, 16], b"c": [5, 6, 17],
        }  # fmt: skip
        assert list(store.buckets()) == sorted(of)
        for name, turns in of.items():
            wanted = [str(turn).encode() + end for turn in turns for end in (b"", b"+")]
            assert list(store.bucket(name).keys()) == sorted([*wanted, b"plain"])


def test_a_bucket_named_by_what_changes(tmp_path: Path) -> None:
    name = bytearray(b"a")
    with octavo.open(tmp_path / "s") as store:
        with store.batch() as batch:
            batch.put(name, b"k", b"")
            name[:] = b"b"
            batch.put(name, b"k", b"")
        assert list(store.buckets()) == [b"a", b"b"]


def test_after_a_wrong_name_puts_go_where_they_say(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        with store.batch() as batch:
            batch.put(b"a", b"k", b"")
            with pytest.raises(octavo.Misuse):
                batch.put("\ud800", b"k", b"")
            batch.put(b"a", b"l", b"")
        assert list(store.bucket(b"a").keys()) == [b"k", b"l"]


@pytest.mark.parametrize("bytes_over", [0, 1])
def test_the_longest_key_of_a_bucket(tmp_path: Path, bytes_over: int) -> None:
    name, key = b"n" * 100, b"k" * ((64 << 10) - 100 + bytes_over)
    with octavo.open(tmp_path / "s") as store:
        batch = store.batch()
        if bytes_over:
            with pytest.raises(octavo.Misuse, match="together"):
                batch.put(name, key, b"")
            batch.discard()
        else:
            batch.put(name, key, b"")
            batch.commit()
            assert list(store.bucket(name).keys()) == [key]


def test_a_put_that_a_batch_refused_leaves_nothing_in_it(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store, store.batch() as batch:
        with pytest.raises(octavo.Misuse, match="if_sqn=-1"):
            batch.put("b", "k", "v", index=octavo.IndexEdit(add={"f": "x"}), if_sqn=-1)
        batch.put("b", "l", "w")
        batch.commit()
        assert list(store.bucket("b").items()) == [(b"l", b"w")]
        assert store.bucket("b").index_of("l") == {}


def test_a_batch_goes_on_after_what_was_too_large_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.batch.MAX_BYTES", 100)
    with octavo.open(tmp_path / "s") as store, store.batch() as batch:
        with pytest.raises(octavo.Misuse, match="100 bytes"):
            batch.put("b", "k", b"v" * 100)
        with pytest.raises(octavo.Misuse, match="100 bytes"):
            batch.put("b", "k", b"v", metadata=b"m" * 100)
        with pytest.raises(octavo.Misuse, match="100 bytes"):
            batch.delete("b", b"k" * 100)
        batch.put("b", "l", "w")
        monkeypatch.setattr("octavo.batch.MAX_OPERATIONS", 1)
        for more in (partial(batch.put, "b", "k", "v"), partial(batch.delete, "b", "l")):
            with pytest.raises(octavo.Misuse, match="at most 1 operations"):
                more()
        batch.commit()
        assert dict(store.bucket("b").items()) == {b"l": b"w"}


def discarded(batch: octavo.Batch) -> None:
    batch.discard()


def refused(batch: octavo.Batch) -> None:
    batch.delete("", "none", if_sqn=7)
    with pytest.raises(octavo.Conflict):
        batch.commit()


@pytest.mark.parametrize("end", [octavo.Batch.commit, discarded, refused])
@pytest.mark.parametrize("more", [{}, {"metadata": b"m"}])
def test_memory_does_not_hold_a_batch_that_is_over(
    tmp_path: Path, end: Callable[[octavo.Batch], object], more: dict[str, bytes]
) -> None:
    key, value = bytes(1000), bytes(1001)
    with octavo.open(tmp_path / "s") as store:
        before = sys.getrefcount(value)
        batch = store.batch()
        for _ in range(3):
            batch.put("b", key, value, **more)  # type: ignore[arg-type]
        assert (len(batch), sys.getrefcount(value)) == (3, before + 3)
        end(batch)
        assert (len(batch), sys.getrefcount(value)) == (0, before)
        with pytest.raises(octavo.Closed):
            batch.put("b", key, value)
        with pytest.raises(octavo.Closed):
            batch.commit()
