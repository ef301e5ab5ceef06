"""Objects that expire take their index entries along: at the moment, in every place."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from whole_store import SEED, WallClock, flush, opened, settle

import octavo
from octavo.actors.inker_clerk import EXPIRED_FOR_MS


def expected(model: dict[bytes, tuple[int, int]], now: int) -> list[tuple[int, bytes]]:
    return sorted((term, key) for key, (term, expiry) in model.items() if not 0 < expiry <= now)


@pytest.mark.parametrize("reopens", [False, True])
def test_entries_go_at_their_moment_while_time_passes(tmp_path: Path, reopens: bool) -> None:
    rng, clock = random.Random(SEED), WallClock(10**9)
    model: dict[bytes, tuple[int, int]] = {}
    store = opened(tmp_path / "s", clock_ms=clock)
    for _ in range(12):
        bucket = store.bucket("b")
        for _ in range(150):
            key, term = b"%03d" % rng.randrange(400), rng.randrange(50)
            ttl = rng.choice((None, 1, 30, 100, 500))
            bucket.put(key, b"v", index={"f": term}, ttl=ttl)
            model[key] = (term, clock() + ttl * 1000 if ttl else 0)
        with store.snapshot() as snap:
            then = expected(model, clock())
            clock.now += rng.choice((999, 1000, 29_000, 71_000))
            assert list(bucket.index("f").range()) == expected(model, clock())
            assert list(snap.bucket("b").index("f").range()) == then
        if reopens:
            store.close()
            store = opened(tmp_path / "s", clock_ms=clock)
    clock.now += 500_000
    lasting = [pair for pair in expected(model, clock()) if not model[pair[1]][1]]
    assert list(store.bucket("b").index("f").range()) == lasting
    store.close()


def test_a_longer_and_a_shorter_life(tmp_path: Path) -> None:
    clock = WallClock(10**9)
    with opened(tmp_path / "s", clock_ms=clock) as store:
        for key in ("longer", "shorter", "for ever", "mortal"):
            store.put(key, b"", index={"f": key}, ttl=None if key == "mortal" else 100)
        flush(store)
        edit = octavo.IndexEdit(add={"f": "again"})
        store.put("longer", b"", index=edit, ttl=1000)
        store.put("shorter", b"", index=edit, ttl=10)
        store.put("for ever", b"", index=edit)
        store.put("mortal", b"", index=edit, ttl=100)
        keys = {b"longer", b"shorter", b"for ever", b"mortal"}
        for wait, gone in ((0, set()), (10, {b"shorter"}), (90, {b"mortal"}), (900, {b"longer"})):
            clock.now += wait * 1000
            keys -= gone
            assert set(store.index("f").having("again")) == keys
            assert {key for term, key in store.index("f").range() if term != "again"} == keys
            flush(store)


@pytest.mark.parametrize("ledger", ["kept", "deleted"])
def test_what_expired_leaves_ledger_and_journal(tmp_path: Path, ledger: str) -> None:
    clock, path = WallClock(10**9), tmp_path / "s"
    with opened(path, clock_ms=clock) as store:
        for i in range(2000):
            store.put(b"%04d" % i, bytes(100), index={"f": i, "g": "x"}, ttl=50)
        store.put("stays", b"v", index={"f": 1})
        clock.now += 50_000 + EXPIRED_FOR_MS
        assert list(store.index("g").range()) == []
        store.compact()
        settle(store)
        assert sum(file.stat().st_size for file in (path / "journal").glob("*.cdb")) < 200_000
    if ledger == "deleted":
        shutil.rmtree(path / "ledger")
    with opened(path, clock_ms=clock) as store:
        for number in range(8):
            store.put("again", b"%d" % number)
            flush(store)
        assert list(store.index("f").range()) == [(1, b"stays")]
        assert list(store) == [b"again", b"stays"]
        assert store.verify().ok
        assert sum(level["rows"] for level in store.stats()["ledger"]["levels"]) < 1000
