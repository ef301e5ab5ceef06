"""Heads of a small ledger that were read are kept, for as long as they are right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from at_once import AtOnce
from beside import seeded
from whole_store import flush, opened

import octavo
from octavo.actors.reading import guide

KEYS = [b"key-%03d" % number for number in range(200)]
BUCKETS = (b"", b"docs")
ROOM = 4 << 20


@pytest.fixture(autouse=True)
def no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "POOL", AtOnce())


def kept(store: octavo.Store) -> dict[bytes, octavo.Head] | None:
    """The heads that are kept, once heads are read often."""
    for level in store._bookie.view.ledger.levels:
        for entry in level:
            entry.file.reader().ensure_whole()
    store._bookie.wants_heads()
    return store._bookie.view.guide.heads


def churn(store: octavo.Store, rng: random.Random) -> None:
    """Puts of some kinds and deletes."""
    for _ in range(150):
        bucket, key = store.bucket(rng.choice(BUCKETS)), rng.choice(KEYS)
        kind = rng.randrange(6)
        if kind == 0:
            bucket.delete(key)
        elif kind == 1:
            bucket.put(key, rng.randbytes(9), ttl=1e6)
        elif kind == 2:
            bucket.put(key, rng.randbytes(8), index={"field": rng.randrange(9)})
        else:
            bucket.put(key, rng.randbytes(rng.randrange(9)))


def by_snapshot(store: octavo.Store) -> list[list[octavo.Head | None]]:
    with store.snapshot() as snap:
        return [list(map(snap.bucket(name).head, KEYS)) for name in BUCKETS]


@pytest.mark.parametrize("bits", [0, 5, 22])
def test_what_is_kept_is_what_a_snapshot_tells(
    bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = seeded(f"test_kept_heads {bits}")
    monkeypatch.setattr(guide, "_LEAST_BITS", 0)
    monkeypatch.setattr(guide, "_DIRECT_BITS", bits)
    with opened(tmp_path / "s", read_cache_bytes=ROOM) as store:
        for _ in range(4):
            churn(store, rng)
            flush(store)
            heads = kept(store)
            assert heads == {}
            for _ in range(3):
                found = [list(map(store.bucket(name).head, KEYS)) for name in BUCKETS]
                assert found == by_snapshot(store)
            assert heads or bits < 22
            churn(store, rng)
            found = [list(map(store.bucket(name).head, KEYS)) for name in BUCKETS]
            assert found == by_snapshot(store)
            for name in BUCKETS:
                bucket = store.bucket(name)
                assert [key in bucket for key in KEYS] == [bool(bucket.head(key)) for key in KEYS]


def test_a_head_that_is_read_again_is_the_one_that_was_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=ROOM) as store:
        store.put_many((key, key) for key in KEYS)
        flush(store)
        assert kept(store) == {}
        assert store.head(KEYS[7]) is store.head(KEYS[7])


def test_what_expires_or_has_metadata_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=ROOM) as store:
        store.put(b"expires", b"", ttl=1e6)
        store.put(b"has some", b"", metadata=b"some")
        flush(store)
        heads = kept(store)
        assert store.head(b"expires")
        assert store.head(b"has some")
        assert store.head(b"is not there") is None
        assert heads == {}


@pytest.mark.parametrize("why", ["no cache", "long keys", "many rows"])
def test_heads_are_kept_where_there_is_room(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "many rows":
        monkeypatch.setattr(guide, "_MOST_HEADS", len(KEYS) - 1)
    room = 0 if why == "no cache" else ROOM
    with opened(tmp_path / "s", read_cache_bytes=room) as store:
        filler = b"-" * (4096 if why == "long keys" else 0)
        store.put_many((key + filler, b"") for key in KEYS)
        flush(store)
        assert kept(store) is None
        assert all(store.head(key + filler) for key in KEYS)
