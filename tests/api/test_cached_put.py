"""A put of a key that the read cache has: what is read next is the new value, from the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

import octavo
from octavo.actors.read_cache import ReadCache

KEY = b"key"


def reopened_with_cached(path: Path) -> octavo.Store:
    """A store whose cache has KEY's value as its ledger tells it."""
    with octavo.open(path, worker=False) as store:
        store.put(KEY, b"first")
        store.compact()  # rolls: what opens next makes ledger files of it
    store = octavo.open(path, worker=False)
    assert store.get(KEY) == b"first"
    return store


def entries_of(store: octavo.Store) -> set[bytes]:
    return set(store._running.bookie.actor.cache.entries.values())


def test_a_put_of_a_cached_key_leaves_the_new_value_in_the_cache(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        assert entries_of(store) == {b"first"}
        for value in (b"second", b"third"):
            store.put(KEY, value)
            assert entries_of(store) == {value}
            assert store.get(KEY) == value
        store.delete(KEY)
        assert entries_of(store) == set()
        assert store.get(KEY) is None
        store.put(KEY, b"fourth")
        assert store.get(KEY) == b"fourth"


def test_a_key_that_nobody_reads_is_not_cached_by_a_put(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        store.put(b"another", b"value")
        assert entries_of(store) == {b"first"}


def test_a_put_interrupted_behind_its_record_leaves_no_older_value_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReadCache, "put", interrupted)
    with reopened_with_cached(tmp_path / "store") as store:
        with pytest.raises(KeyboardInterrupt):
            store.put(KEY, b"second")
        assert entries_of(store) == set()
        assert store.get(KEY) == b"second"
