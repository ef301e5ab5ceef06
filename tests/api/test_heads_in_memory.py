"""Heads and reads of what is still in memory say what they say once it is in the ledger."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from whole_store import Clock, flush, opened

import octavo
from octavo.actors.bookie import Bookie

PUTS: dict[bytes, dict[str, Any]] = {
    b"plain": {},
    b"metadata": {"metadata": b"some"},
    b"expiring": {"ttl": 100},
    b"gone": {"ttl": 1},
    b"index": {"index": {"field": [b"term", 7]}},
    b"all": {"metadata": b"m" * 300, "index": {"field": [b"other"]}, "ttl": 50},
}
VALUES = {key: key * 2000 for key in PUTS}  # are compressed
NOW = 1_700_000_000_000


def seen(reading: octavo.Bucket | octavo.SnapshotBucket) -> list[object]:
    """All that is told of a bucket's keys."""
    keys = sorted([*PUTS, b"deleted", b"never"])
    return [
        [reading.get(key) for key in keys],
        [reading.head(key) for key in keys],
        list(reading.heads()),
        list(reading.heads(reverse=True)),
        [list(islice(reading.heads(key), 2)) for key in keys],
        list(reading.items()),
    ]


@pytest.mark.parametrize("frozen", [False, True], ids=["recent", "frozen"])
def test_heads_of_memory_are_those_of_the_ledger(tmp_path: Path, frozen: bool) -> None:
    clock = Clock(NOW)
    with opened(
        tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=1 << 16, read_cache_bytes=0
    ) as store:
        bucket = store.bucket(b"b")
        bucket.put(b"deleted", b"v")
        for key, options in PUTS.items():
            bucket.put(key, VALUES[key], **options)
        bucket.delete(b"deleted")
        clock.now += 2000
        if frozen:
            store._running.bookie.call(Bookie.push)
        before = seen(bucket)
        assert before[0] == [
            None if key in (b"gone", b"deleted", b"never") else VALUES[key]
            for key in sorted([*PUTS, b"deleted", b"never"])
        ]
        with store.snapshot() as snapshot:
            assert seen(snapshot.bucket(b"b")) == before
            clock.now += 200_000  # all that can expire has, but not to the snapshot
            assert seen(snapshot.bucket(b"b")) == before
            assert [key for key, _ in bucket.heads()] == [b"index", b"metadata", b"plain"]
            assert bucket.head(b"all") is bucket.head(b"expiring") is None
            clock.now = NOW + 2000
            flush(store)
            assert seen(snapshot.bucket(b"b")) == before
        assert seen(bucket) == before


def test_a_snapshot_does_not_see_what_came_later(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, read_cache_bytes=1 << 20) as store:
        for key in (b"a", b"b", b"c"):
            store.put(key, b"old", ttl=1000)
        with store.snapshot() as snapshot:
            store.put(b"a", b"new", ttl=2000)
            store.delete(b"b")
            store.put(b"c", b"new")
            store.put(b"d", b"new", ttl=2000)
            found = [snapshot.get(key) for key in (b"a", b"b", b"c", b"d")]
            assert found == [b"old", b"old", b"old", None]
            assert [key for key, _ in snapshot.heads()] == [b"a", b"b", b"c"]


def test_whether_a_key_is_there_is_told_by_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    clock = Clock(NOW)
    with opened(tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=1 << 16) as store:
        head = store._bookie.head
        store.put_many([(b"stays", b"v"), (b"went", b"v")])
        flush(store)
        store.put(b"new", b"v", metadata=b"m", index={"field": "term"})
        store.put(b"k", b"v")
        store.put(b"expires", b"v", ttl=1)
        store.delete(b"went")
        monkeypatch.setattr(store._bookie, "head", lambda *key: (looked.append(key), head(*key))[1])
        assert b"new" in store
        assert "k" in store
        assert looked == []
        assert b"stays" in store
        assert b"went" not in store
        assert b"expires" in store
        clock.now += 1000
        assert b"expires" not in store
        assert b"never" not in store
        assert bytearray(b"k") in store
        with pytest.raises(octavo.Misuse, match="key is empty"):
            b"" in store  # noqa: B015
        with pytest.raises(octavo.Misuse, match="allowed are str"):
            5 in store  # noqa: B015
    with pytest.raises(octavo.Closed):
        b"k" in store  # noqa: B015
