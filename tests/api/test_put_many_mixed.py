"""Many pairs in one call that are not all of one kind: str and bytes, small and large, right and
wrong."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import octavo

_SIZES = (0, 1, 100, 5000, (32 << 10) - 1, 32 << 10, 100_000, (1 << 20) - 1, 1 << 20, 1_200_000)


def test_mixed_pairs_are_written_in_their_order(tmp_path: Path) -> None:
    rng = Random(20261121)
    pairs: list[tuple[str | bytes, str | bytes]] = []
    for number in range(1100):
        size = rng.choice(_SIZES) if rng.random() < 0.04 else rng.randrange(40)
        key = f"{rng.randrange(900)}"
        value = str(number).ljust(size, "ä" if size < 40 else "x")
        pairs.append(rng.choice([(key, value), (key.encode(), value), (key, value.encode())]))
    with octavo.open(tmp_path / "s", tags={"note": octavo.Tag()}) as store:
        for bucket in (store, store.bucket("b", text=True), store.bucket("b", tag="note")):
            before = store.last_sqn
            assert bucket.put_many(iter(pairs)) == store.last_sqn == before + len(pairs)
        written = [change for change in store.changes() if change.bucket == b""]
        assert [(change.key, change.value) for change in written] == [
            (to_bytes(key), to_bytes(value)) for key, value in pairs
        ]
        assert dict(store.bucket("b", text=True).items()) == {
            to_bytes(key).decode(): to_bytes(value).decode() for key, value in pairs
        }


def to_bytes(given: str | bytes) -> bytes:
    return given.encode() if isinstance(given, str) else given


@pytest.mark.parametrize("wrong", [("k", 5), (5, "v"), ("", "v"), "no pair", 7])
@pytest.mark.parametrize("first", ["v", "v" * (40 << 10), "v" * (2 << 20)])
def test_what_came_before_a_wrong_pair_is_written(
    tmp_path: Path, wrong: object, first: str
) -> None:
    with octavo.open(tmp_path / "s") as store:
        with pytest.raises(octavo.Misuse):
            store.put_many([("a", first), ("b", b"v"), wrong, ("c", "v")])  # type: ignore[list-item]
        assert list(store.keys()) == [b"a", b"b"]
        assert store["a"] == first.encode()


def test_pairs_of_str_share_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[int] = []
    with octavo.open(tmp_path / "s") as store:
        put_many = store._bookie.put_many

        def counted(keys: list[bytes], *rest: Any) -> int:
            shared.append(len(keys))
            return put_many(keys, *rest)

        monkeypatch.setattr(store._bookie, "put_many", counted)
        store.put_many((f"{number}", "v") for number in range(2000))
        assert sum(shared) == len(store) == 2000
        assert len(shared) < 10


def test_a_wrong_pair_is_told_with_its_key(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        with pytest.raises(octavo.Misuse, match="value is of type int") as told:
            store.put_many({"a": "v", "b": 5})
        assert told.value.__notes__ == ["in the pair with the key 'b'"]


def test_what_gives_no_pairs_is_refused(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        for wrong in (None, 5):
            with pytest.raises(octavo.Misuse, match=f"pairs={wrong}: allowed are a mapping"):
                store.put_many(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["ab", b"ab", {"a", "b"}, {"key": "a", "value": "b"}])
def test_two_in_one_are_no_pair(tmp_path: Path, wrong: object) -> None:
    with octavo.open(tmp_path / "s") as store:
        with pytest.raises(octavo.Misuse, match=r"pairs holds .*: allowed are"):
            store.put_many([("k", "v"), wrong])  # type: ignore[list-item]
        assert dict(store) == {b"k": b"v"}


def test_a_refused_call_keeps_nothing_of_what_it_was_given(tmp_path: Path) -> None:
    class Pair(list[object]):
        """A pair that can be watched."""

    with octavo.open(tmp_path / "s") as store:
        pair = Pair(["a", 5])
        left = weakref.ref(pair)
        gc.disable()
        try:
            with suppress(octavo.Misuse):
                store.put_many([pair])  # type: ignore[list-item]
            del pair
            assert left() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("given", ["buffers", "a view of one", "a list"])
def test_what_gives_the_pairs_may_fill_the_same_buffers_anew(tmp_path: Path, given: str) -> None:
    key, value, pair = bytearray(b"k0"), bytearray(b"v0"), [b"", b""]

    def pairs() -> Iterator[Any]:
        for number in range(10):
            key[1:] = value[1:] = b"%d" % number
            pair[:] = bytes(key), bytes(value)
            yield {
                "buffers": (key, value),
                "a view of one": (bytes(key), memoryview(value)),
                "a list": pair,
            }[given]

    with octavo.open(tmp_path / "s") as store:
        store.put_many(pairs())
        assert dict(store) == {b"k%d" % number: b"v%d" % number for number in range(10)}
