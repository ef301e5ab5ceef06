"""Head-only stores at work: batches of fifty sub-keys, deletes, expiry, ends of every kind."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from whole_store import SEED, WallClock, flush, killed, opened

import octavo

Model = dict[tuple[bytes, bytes, bytes], tuple[bytes, int]]  # bucket, key, sub-key: value, expiry


def live(model: Model, bucket: bytes, now: int) -> list[tuple[bytes, bytes, bytes]]:
    return sorted(
        (key, sub_key, value)
        for (of, key, sub_key), (value, expiry) in model.items()
        if of == bucket and not 0 < expiry <= now
    )


def check(where: octavo.Store | octavo.Snapshot, model: Model, now: int, lookup: bool) -> None:
    for name in (b"", b"b\0"):
        bucket, wanted = where.head_bucket(name), live(model, name, now)
        found = [(row.key, row.sub_key, row.value) for row in bucket.rows()]
        assert found == wanted
        assert len(bucket) == len(wanted)
        for key in sorted({key for key, _, _ in wanted})[:5]:
            assert [row.sub_key for row in bucket.sub_keys(key, reverse=True)] == [
                sub_key for other, sub_key, _ in reversed(wanted) if other == key
            ]
        if lookup:
            for key, sub_key, value in wanted[:40]:
                assert bucket.get(key, sub_key) == value
            assert bucket.get("no such key") is None


@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize("end", ["open", "closed", "killed"])
def test_batches_of_sub_keys(tmp_path: Path, lookup: bool, end: str) -> None:
    rng, clock, path = random.Random(SEED), WallClock(10**9), tmp_path / "s"
    model: Model = {}
    store = opened(path, mode="head_only", lookup=lookup, clock_ms=clock, roll_count=512)
    for number in range(40):
        with store.head_batch() as batch:
            for _ in range(50):
                name = rng.choice((b"", b"b\0"))
                where = (name, b"k%d" % rng.randrange(30), b"\0%d" % rng.randrange(12))
                if rng.random() < 0.2:
                    batch.delete(name, where[1], sub_key=where[2])
                    model.pop(where, None)
                else:
                    value, ttl = rng.randbytes(100), rng.choice((None, None, 5, 100))
                    batch.put(name, where[1], value, sub_key=where[2], ttl=ttl)
                    model[where] = (value, clock() + ttl * 1000 if ttl else 0)
        if number % 10 == 5:
            check(store, model, clock(), lookup)
            with store.snapshot() as snap:
                then, at = dict(model), clock()
                with store.head_batch() as batch:
                    for of, key, sub_key in list(model)[:20]:
                        batch.delete(of, key, sub_key=sub_key)
                        del model[of, key, sub_key]
                flush(store)
                clock.now += 5_000
                check(snap, then, at, lookup)
                check(store, model, clock(), lookup)
            if number % 20 == 5:
                store.trim()
            if end == "killed":
                path = killed(store, tmp_path / f"t{number}")
            if end != "open":
                store.close()
                store = opened(path, clock_ms=clock)
                check(store, model, clock(), lookup)
    assert store.verify().ok
    store.close()


def test_a_rebuild_is_possible_until_the_first_trim_only(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, mode="head_only", push_rows=1 << 20) as store:
        with store.head_batch() as batch:
            for i in range(500):
                batch.put("b", b"%d" % (i % 10), b"v%d" % i, sub_key=b"%d" % i)
        before = list(store.head_bucket("b").rows())
    shutil.rmtree(path / "ledger")
    with opened(path, push_rows=1 << 20) as store:
        assert list(store.head_bucket("b").rows()) == before
        store.trim()
        assert list(store.head_bucket("b").rows()) == before
    with opened(path) as store:
        assert list(store.head_bucket("b").rows()) == before
    shutil.rmtree(path / "ledger")
    with pytest.raises(octavo.Corruption, match="restore a backup"):
        opened(path)
