"""A typed program runs; that type checkers agree with it, mypy says in scripts/test."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from typed_program import main

import octavo


def test_a_typed_program_runs(tmp_path: Path) -> None:
    assert main(str(tmp_path)) == ["d", "a", "z"]


def test_what_annotations_say_can_be_said_when_a_program_runs() -> None:
    for cls in (octavo.Bucket, octavo.SnapshotBucket):
        assert cls[str].__origin__ is cls[bytes, int].__origin__ is cls
    assert issubclass(octavo.Store, MutableMapping)


def test_setdefault_gives_what_is_stored_and_only_one_puts(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        assert store.setdefault("k", "v") == b"v" == store.setdefault("k", "w")
        assert store.setdefault("empty") == b""
        text = store.bucket("b", text=True)
        assert text.setdefault("k", b"v") == "v"
        before = store.last_sqn

        def meanwhile(key: str, value: str, **more: Any) -> int:
            """Another thread is quicker, once."""
            del text.put  # type: ignore[method-assign]
            text.put("l", "other")
            return text.put(key, value, **more)

        text.put = meanwhile  # type: ignore[assignment, method-assign]
        assert text.setdefault("l", "mine") == "other"
        assert store.last_sqn == before + 1
        with pytest.raises(octavo.Misuse, match="value is of type NoneType"):
            store.setdefault("m", None)  # type: ignore[arg-type]


def test_update_takes_what_a_dict_takes(tmp_path: Path) -> None:
    class Keyed:
        def keys(self) -> list[str]:
            return ["d"]

        def __getitem__(self, key: str) -> str:
            return key * 2

    with octavo.open(tmp_path / "s") as store:
        store.update({"a": "1"}, b="2")
        store.update([("c", b"3")])
        store.update(Keyed())  # type: ignore[arg-type]
        store.update(pairs="4")
        store.update()
        assert dict(store) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"dd", b"pairs": b"4"}


def test_of_two_who_pop_a_key_one_gets_its_value(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "1")
        delete = store.delete

        def meanwhile(key: bytes, *, if_sqn: int) -> int:
            """Another thread is quicker, once."""
            del store.delete  # type: ignore[method-assign]
            assert store.pop("k") == b"1"
            return delete(key, if_sqn=if_sqn)

        store.delete = meanwhile  # type: ignore[assignment, method-assign]
        assert store.pop("k", "late") == "late"
        with pytest.raises(KeyError, match="k"):
            store.pop("k")
        assert store.pop("k", default=None) is None


def test_of_two_who_delete_a_key_one_is_told_that_there_is_none(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "1")
        delete = store.delete

        def meanwhile(key: bytes, **more: Any) -> int:
            """Another thread is quicker, once."""
            del store.delete  # type: ignore[method-assign]
            del store["k"]
            return delete(key, **more)

        store.delete = meanwhile  # type: ignore[assignment, method-assign]
        before = store.last_sqn
        with pytest.raises(KeyError, match="k"):
            del store["k"]
        assert store.last_sqn == before + 1


def test_of_two_who_pop_items_each_gets_another(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        text = store.bucket("b", text=True)
        text.put_many([("a", "1"), ("b", "2")])
        keys = text.keys

        def meanwhile(**asked: Any) -> Iterator[str]:
            """Another thread is quicker, once."""
            del text.keys  # type: ignore[method-assign]
            found = list(keys(**asked))
            assert text.popitem() == ("a", "1")
            return iter(found)

        text.keys = meanwhile  # type: ignore[assignment, method-assign]
        assert text.popitem() == ("b", "2")
        with pytest.raises(KeyError, match="no key"):
            text.popitem()
