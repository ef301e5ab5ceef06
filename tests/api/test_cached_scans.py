"""Short scans take values from the read cache, but never another version than their snapshot's."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

import pytest
from whole_store import flush, opened, rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.journal_file import JournalFile
from octavo.actors.scanning import read_values
from octavo.actors.scanning.batch_values import OpenJournal

BEFORE = {b"k%02d" % at: b"before %d" % at for at in range(40)}
LATER = sorted(BEFORE)[5:]


def cached(path: Path) -> octavo.Store:
    """A store whose read cache has what is in its ledger and its memory."""
    store = opened(path, read_cache_bytes=1 << 20, push_rows=1 << 16)
    store.put_many(sorted(BEFORE.items())[::2])
    flush(store)
    store.put_many(sorted(BEFORE.items())[1::2])
    assert [store.get(key) for key in BEFORE] == list(BEFORE.values())
    assert len(store._bookie.cache.entries) == len(BEFORE)
    return store


def test_a_cached_value_is_not_read_from_the_journal(tmp_path: Path) -> None:
    with cached(tmp_path / "s") as store:
        for file in store._running.inker.actor.view.files:
            with open(file.path, "r+b") as raw:
                raw.write(bytes(file.offsets[-1]))
        assert dict(store.items()) == BEFORE
        assert list(store.values(reverse=True)) == list(BEFORE.values())[::-1]


def put_each(store: octavo.Store) -> None:
    for key in LATER:
        store.put(key, b"after")


def put_together(store: octavo.Store) -> None:
    store.put_many((key, b"after") for key in LATER)


def put_with_a_limit(store: octavo.Store) -> None:
    for key in LATER:
        store.put(key, b"after", ttl=1e6)


def put_in_a_batch(store: octavo.Store) -> None:
    with store.batch() as batch:
        for key in LATER:
            batch.put(b"", key, b"after")


def delete_each(store: octavo.Store) -> None:
    for key in LATER:
        store.delete(key)


def push_and_put(store: octavo.Store) -> None:
    store._running.bookie.call(Bookie.push)
    put_each(store)


def flush_and_put(store: octavo.Store) -> None:
    flush(store)
    put_each(store)
    flush(store)


AGAIN = pytest.mark.parametrize("again", [False, True], ids=["", "and read again"])
WRITES = pytest.mark.parametrize(
    "write",
    [
        put_each, put_together, put_with_a_limit, put_in_a_batch, delete_each, push_and_put,
        flush_and_put,
    ],
)  # fmt: skip


@AGAIN
@WRITES
def test_a_scan_gives_what_was_there_when_it_began(
    tmp_path: Path, write: Callable[[octavo.Store], None], *, again: bool
) -> None:
    with cached(tmp_path / "s") as store, store.snapshot() as snap:
        scan = store.items()
        given = [next(scan)]
        write(store)
        if again:  # now the cache has newer ones
            for key in LATER:
                store.get(key)
        assert dict([*given, *scan]) == BEFORE
        assert dict(snap.items()) == BEFORE
        assert dict(store.items()) == {key: store.get(key) for key in store}


@AGAIN
@WRITES
def test_a_get_of_a_snapshot_gives_what_was_there_when_it_began(
    tmp_path: Path, write: Callable[[octavo.Store], None], *, again: bool
) -> None:
    with cached(tmp_path / "s") as store, store.snapshot() as snap, store.snapshot() as other:
        assert {key: snap.get(key) for key in BEFORE} == BEFORE
        write(store)
        if again:
            for key in LATER:
                store.get(key)
        assert {key: snap.get(key) for key in BEFORE} == BEFORE
        assert other.get(b"none") is None
        store._bookie.cache.clear()
        assert {key: other.get(key) for key in BEFORE} == BEFORE
        newest = {key: store.get(key) for key in BEFORE}  # nothing that a snapshot read is in here
        assert newest == {**BEFORE, **dict.fromkeys(LATER)} | dict(store.items())


def test_a_get_of_a_snapshot_knows_what_expires_and_what_is_deleted(tmp_path: Path) -> None:
    with cached(tmp_path / "s") as store:
        store.put(b"k00", b"for an hour", ttl=3600)
        store.delete(b"k01")
        for flushed in (False, True):
            if flushed:
                flush(store)
            with store.snapshot() as snap:
                assert [snap.get(b"k00"), snap.get(b"k01")] == [b"for an hour", None]


def test_values_come_from_the_map_of_the_growing_file_as_far_as_it_goes(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0, push_rows=1 << 16, roll_count=4096) as store:
        values = {b"%03d" % at: b"%d" % at * (at % 40) for at in range(300)}
        for key in sorted(values)[:200]:
            store.put(key, values[key])
        while not (mapped := len(store._bookie.active.growing.mapped)):
            store.get(b"100")
        for key in sorted(values)[200:]:
            store.put(key, values[key])
        assert dict(store.items(limit=100)) == {key: values[key] for key in sorted(values)[:100]}
        assert dict(store.items(reverse=True, limit=120)) == {
            key: values[key] for key in sorted(values)[180:]
        }
        assert mapped < store._bookie.active.offsets[-1]


def test_a_scan_over_many_files_keeps_few_of_them_mapped(tmp_path: Path) -> None:
    keys = [b"k%02d" % at for at in range(60)]
    with opened(tmp_path / "s", max_open_files=8) as store:
        for key in keys:
            store.put(key, key)
            rolled(store)
        reader = store._reader()
        maps: weakref.WeakSet[mmap] = weakref.WeakSet()
        alive = 0

        def opened_one(file: JournalFile) -> read_values.Opened:
            nonlocal alive
            mapped, offsets = OpenJournal().open(file)
            assert isinstance(mapped, mmap)
            maps.add(mapped)
            alive = max(alive, len(maps))
            return mapped, offsets

        sqns = range(1, len(keys) + 1)
        found = read_values.read_values(reader, b"", keys, sqns, store._tag, opened_one)
        reader.close()
        assert found == keys
        assert alive <= 30  # of 60: what the store keeps open, and some
