"""A put of a key that the read cache has: what is read next is the new value, from the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.read_cache import ReadCache
from octavo.actors.view import View

KEY = b"key"


def reopened_with_cached(path: Path) -> octavo.Store:
    """A store whose cache has KEY's value as its ledger tells it."""
    with octavo.open(path, worker=False) as store:
        store.put(KEY, b"first")
        store.compact()  # rolls: what opens next makes ledger files of it
    store = octavo.open(path, worker=False)
    assert store.get(KEY) == b"first"
    return store


def entries_of(store: octavo.Store) -> set[bytes | None]:
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

    monkeypatch.setattr(ReadCache, "write_over", interrupted)
    with reopened_with_cached(tmp_path / "store") as store:
        with pytest.raises(KeyboardInterrupt):
            store.put(KEY, b"second")
        assert entries_of(store) == set()
        assert store.get(KEY) == b"second"


def read_and_overwritten(store: octavo.Store) -> tuple[Bookie, View, bytes]:
    """A view that a reader took before KEY's newest put, and KEY in the ledger's words."""
    bookie = store._running.bookie.actor
    view = bookie.view
    (ledger_key,) = bookie.cache.entries
    bookie.cache.clear()
    store.put(KEY, b"second")
    return bookie, view, ledger_key


def test_what_was_read_before_a_put_is_not_cached_after_it(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)
        bookie._keep(view, ledger_key, 0, b"first")
        assert entries_of(store) == set()
        assert store.get(KEY) == b"second"
        bookie.cache.clear()
        bookie.push()  # the row is in no table of newest changes any more
        bookie._keep(view, ledger_key, 0, b"first")
        assert store.get(KEY) == b"second"


def before_a_fill(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> None:
    """Have the next value that the cache is to keep come after this, as a signal may have it."""
    fill = ReadCache.fill

    def interrupted(cache: ReadCache, key: bytes, value: bytes) -> None:
        monkeypatch.setattr(ReadCache, "fill", fill)
        step()
        fill(cache, key, value)

    monkeypatch.setattr(ReadCache, "fill", interrupted)


def test_a_put_of_a_signals_while_a_value_is_cached_leaves_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, _, ledger_key = read_and_overwritten(store)
        before_a_fill(monkeypatch, lambda: store.put(KEY, b"third"))
        assert store.get(KEY) == b"second"  # which the put came after
        assert store.get(KEY) == b"third"
        assert bookie.cache.entries == {ledger_key: b"third"}


def test_no_reader_fills_the_cache_in_the_midst_of_a_put(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)
        entry = view.recent.rows[ledger_key]
        reader = threading.Thread(target=bookie._keep, args=(view, ledger_key, entry, b"second"))
        with bookie.cache.lock:  # as a put has it
            reader.start()
            reader.join()  # it does not wait, either
        assert entries_of(store) == set()
        bookie._keep(view, ledger_key, entry, b"second")
        assert entries_of(store) == {b"second"}


def test_a_put_in_the_midst_of_a_fill_waits_for_it(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)
        cache, seen = bookie.cache, []

        class Rows(dict[bytes, int]):
            def get(self, key: bytes, default: Any = None) -> Any:
                seen.append(cache.filling)  # whether a put that came just now would wait
                return super().get(key, default)

        view.recent.rows = Rows(view.recent.rows)
        bookie._keep(view, ledger_key, view.recent.rows[ledger_key], b"second")
        assert seen == [True, True]
        assert entries_of(store) == {b"second"}
        assert not cache.filling


class Counted:
    """A lock that counts how often it is taken."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.taken = lock, 0

    def __enter__(self) -> None:
        self.taken += 1
        self.lock.__enter__()

    def __exit__(self, *raised: object) -> None:
        self.lock.__exit__(*raised)


@pytest.mark.parametrize(
    ("filling", "key", "taken"), [(False, b"other", 0), (False, KEY, 1), (True, b"other", 1)]
)
def test_a_put_takes_the_caches_lock_where_it_may_meet_a_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filling: bool, key: bytes, taken: int
) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        cache = store._running.bookie.actor.cache
        with monkeypatch.context() as patched:
            lock = Counted(cache.lock)
            patched.setattr(cache, "lock", lock)
            patched.setattr(cache, "filling", filling)
            store.put(key, b"new")
        assert lock.taken == taken
        assert store.get(key) == b"new"


def test_a_signals_read_in_the_midst_of_a_fill_leaves_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)
        seen = []

        def read() -> None:
            assert store.get(KEY) == b"second"
            seen.append(bookie.cache.filling)

        before_a_fill(monkeypatch, read)
        bookie._keep(view, ledger_key, view.recent.rows[ledger_key], b"second")
        assert seen == [True]
        assert not bookie.cache.filling


def test_what_has_metadata_or_an_index_or_came_in_a_batch_is_cached_as_any_other(
    tmp_path: Path,
) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put(b"metadata", b"1", metadata=b"m")
        store.put(b"index", b"2", index={"field": 5})
        with store.batch() as batch:
            batch.put(b"", b"batch", b"3")
            batch.put(b"", b"more of it", b"4", metadata=b"m")
        store.put(b"for an hour", b"5", ttl=3600)
        store.compact()  # rolls
    with octavo.open(tmp_path / "s", worker=False) as store:
        for _ in range(2):
            assert [store.get(key) for key in (b"metadata", b"index", b"batch", b"more of it")] == [
                b"1", b"2", b"3", b"4",
            ]  # fmt: skip
            assert store.get(b"for an hour") == b"5"
            assert entries_of(store) == {b"1", b"2", b"3", b"4"}
        assert store.head(b"metadata").metadata == b"m"
        store.put(b"metadata", b"6", metadata=b"other")
        assert (store.get(b"metadata"), store.head(b"metadata").metadata) == (b"6", b"other")
        store.put(b"index", b"7", ttl=3600)
        assert store.get(b"index") == b"7"
        assert entries_of(store) == {b"3", b"4", b"6"}
