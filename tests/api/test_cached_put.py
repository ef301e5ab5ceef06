"""A put of a key that the read cache has: what is read next is the new value, from the cache."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.reading.read_cache import ReadCache
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
        bookie.cache.fill(view, ledger_key, 0, b"first")
        assert entries_of(store) == set()
        assert store.get(KEY) == b"second"
        bookie.cache.clear()
        bookie.actor_ref.call(Bookie.push)  # the row is in no table of newest changes any more
        bookie.cache.fill(view, ledger_key, 0, b"first")
        assert store.get(KEY) == b"second"


def test_an_older_snapshots_gets_leave_nothing_in_the_cache(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie = store._running.bookie.actor
        with store.snapshot() as snapshot:
            store.put(b"other", b"second")
            bookie.actor_ref.call(Bookie.push)
            bookie.cache.clear()
            for _ in range(100):
                assert snapshot.get(KEY) == b"first"
        assert (bookie.cache.entries, len(bookie.cache._queue)) == ({}, 0)


class OwnBytes(bytes):
    """Bytes that know better."""

    def __len__(self) -> int:
        return 1

    def __radd__(self, other: bytes) -> bytes:
        return OwnBytes(b"added")

    def __bytes__(self) -> bytes:
        return b"converted"


class OwnText(str):
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return OwnBytes(b"encoded")


class OwnArray(bytearray):
    def __bytes__(self) -> bytes:
        return b"converted"


@pytest.mark.parametrize("own", [OwnBytes, OwnArray, lambda given: OwnText(given.decode())])
def test_of_an_object_of_a_subclass_the_store_takes_the_bytes(
    tmp_path: Path, own: Callable[[bytes], bytes]
) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie = store._running.bookie.actor
        before = bookie.cache.bytes - len(b"first")
        store.put(own(KEY), own(b"a value"))
        found = store.get(own(KEY))
        assert (found, type(found)) == (b"a value", bytes)
        assert entries_of(store) == {b"a value"}
        assert bookie.cache.bytes == before + len(b"a value")
        store.put_many([(own(KEY), own(b"another"))])
        with store.batch() as batch:
            batch.put(own(b"bucket"), own(b"third"), own(b"value"))
        assert all(type(key) is bytes for key in bookie.view.recent.rows)
        assert dict(store.items()) == {KEY: b"another"}
        assert dict(store.bucket(b"bucket").items()) == {b"third": b"value"}


def before_a_fill(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> None:
    """Have the next value that the cache is to keep come after this, as a signal may have it."""
    fill = ReadCache.fill

    def interrupted(cache: ReadCache, view: View, key: bytes, entry: int, value: bytes) -> None:
        monkeypatch.setattr(ReadCache, "fill", fill)
        step()
        fill(cache, view, key, entry, value)

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


class Meeting(deque[bytes]):
    """The cache's queue; who fills the cache meets this step in the midst of it, once."""

    step: Callable[[], object] | None = None

    def append(self, key: bytes) -> None:
        super().append(key)
        step, self.step = self.step, None
        if step is not None:
            step()


def write_third(store: octavo.Store, how: str) -> None:
    if how == "put":
        store.put(KEY, b"third")
    elif how == "put with metadata":
        store.put(KEY, b"third", metadata=b"m")
    elif how == "put with an index entry":
        store.put(KEY, b"third", index={"f": 1})
    elif how == "put_many":
        store.put_many([(b"other", b"o"), (b"more", b"o"), (KEY, b"third")])
    elif how == "batch":
        with store.batch() as batch:
            batch.put(b"", KEY, b"third")
    elif how == "batch with metadata":
        with store.batch() as batch:
            batch.put(b"", KEY, b"third", metadata=b"m")
    else:
        store.delete(KEY)


BY_CALLS = ["put with an index entry", "put_many", "batch with metadata", "delete"]
"""Writes that call something while they are entered: nothing comes into the cache meanwhile."""


@pytest.mark.parametrize("in_a_thread", [False, True])
@pytest.mark.parametrize("how", ["put", "put with metadata", "batch", *BY_CALLS])
def test_a_write_in_the_midst_of_a_fill_leaves_no_older_value(
    tmp_path: Path, how: str, in_a_thread: bool
) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)

        def step() -> None:
            if in_a_thread:
                writer = threading.Thread(target=write_third, args=(store, how))
                writer.start()
                writer.join()  # it waits for nobody
            else:
                write_third(store, how)

        bookie.cache._queue = meeting = Meeting()
        meeting.step = step
        bookie.cache.fill(view, ledger_key, view.recent.rows[ledger_key], b"second")
        assert meeting.step is None
        assert entries_of(store) == set()
        assert store.get(KEY) == (None if how == "delete" else b"third")


def test_what_is_pushed_in_the_midst_of_a_fill_is_not_cached(tmp_path: Path) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)
        bookie.cache._queue = meeting = Meeting()
        meeting.step = bookie.push
        bookie.cache.fill(view, ledger_key, view.recent.rows[ledger_key], b"second")
        assert entries_of(store) == set()  # who writes now enters another table
        assert store.get(KEY) == b"second"


@pytest.mark.parametrize("key", [KEY, b"other"])
def test_a_put_does_not_wait_for_who_makes_room_in_the_cache(tmp_path: Path, key: bytes) -> None:
    with reopened_with_cached(tmp_path / "store") as store:
        cache = store._running.bookie.actor.cache
        with cache.lock:
            writer = threading.Thread(target=store.put, args=(key, b"new"))
            writer.start()
            writer.join()
        assert store.get(key) == b"new"


@pytest.mark.parametrize("how", BY_CALLS)
def test_no_reader_fills_the_cache_in_the_midst_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What was read before the write, and would be found to be the newest until it is entered."""
    with reopened_with_cached(tmp_path / "store") as store:
        bookie, view, ledger_key = read_and_overwritten(store)
        bookie.cache.fill(view, ledger_key, view.recent.rows[ledger_key], b"second")
        discard = ReadCache.discard

        def met(cache: ReadCache, key: bytes) -> None:
            discard(cache, key)
            reader = threading.Thread(
                target=cache.fill,
                args=(view, ledger_key, view.recent.rows[ledger_key], b"second"),
            )
            reader.start()
            reader.join()

        monkeypatch.setattr(ReadCache, "discard", met)
        write_third(store, how)
        assert entries_of(store) == set()
        assert store.get(KEY) == (None if how == "delete" else b"third")


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
