"""The table that says where in the ledger a get begins: what it skips cannot be there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from one_thread import HeldPool
from whole_store import flush, opened, verified

import octavo
from octavo.actors.reading import guide

KEYS = [b"key %d" % number for number in range(600)]
ABSENT = [b"absent %d" % number for number in range(600)]


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> HeldPool:
    held = HeldPool()
    monkeypatch.setattr(guide, "POOL", held)
    return held


def made(store: octavo.Store, pool: HeldPool) -> guide.Guide:
    """The guide of the store's view, with its table."""
    verified(store)
    pool.go_on()
    found = store._bookie.view.guide
    found.wanted()
    pool.go_on()
    return found


def churned(path: Path, rounds: int, seed: int = 1) -> tuple[octavo.Store, dict[bytes, bytes]]:
    """A store whose files of level zero, and below, share keys: and what it holds."""
    rng = random.Random(seed)
    store = opened(path)
    known: dict[bytes, bytes] = {}
    for turn in range(rounds):
        for key in rng.sample(KEYS, 150):
            if rng.random() < 0.2:
                store.delete(key)
                known.pop(key, None)
            else:
                known[key] = b"%d %s" % (turn, key)
                store.put(key, known[key], **({"ttl": 1e6} if rng.random() < 0.1 else {}))
        flush(store)
    return store, known


@pytest.mark.parametrize("rounds", [1, 4, 9, 15])
def test_reads_with_a_table_are_those_without(rounds: int, tmp_path: Path, pool: HeldPool) -> None:
    store, known = churned(tmp_path / "s", rounds)
    with store:
        way = store._bookie.view.guide.way
        heads = {key: store.head(key) for key in KEYS}
        assert made(store, pool).way is not way
        for key in KEYS + ABSENT:
            assert store.get(key) == known.get(key)
            assert store.head(key) == heads.get(key)
        assert store.get_many(KEYS + ABSENT) == [known.get(key) for key in KEYS + ABSENT]
        with store.snapshot() as snap:
            assert [snap.get(key) for key in KEYS] == [known.get(key) for key in KEYS]


def test_an_absent_key_is_mostly_seen_to_be_absent_by_one_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: HeldPool
) -> None:
    store, _ = churned(tmp_path / "s", 4)
    with store:
        made(store, pool)
        asked = []
        real = store._bookie.get_from_ledger
        monkeypatch.setattr(
            store._bookie, "get_from_ledger", lambda *given: asked.append(0) or real(*given)
        )
        assert all(store.get(key) is None for key in ABSENT)
        # Fixed keys have fixed hashes: nothing here is left to chance.
        assert len(asked) < len(ABSENT) // 4


def test_new_files_of_the_ledger_begin_with_a_table_of_their_own(
    tmp_path: Path, pool: HeldPool
) -> None:
    store, known = churned(tmp_path / "s", 3)
    with store:
        before = made(store, pool)
        store.put(KEYS[0], b"newer")
        store.put(ABSENT[0], b"there now")
        flush(store)
        assert store._bookie.view.guide is not before
        assert (store.get(KEYS[0]), store.get(ABSENT[0])) == (b"newer", b"there now")
        made(store, pool)
        assert (store.get(KEYS[0]), store.get(ABSENT[0])) == (b"newer", b"there now")
        assert store.get(KEYS[1]) == known.get(KEYS[1])


def test_the_table_is_kept_while_only_memory_and_the_journal_change(
    tmp_path: Path, pool: HeldPool
) -> None:
    store, _ = churned(tmp_path / "s", 3)
    with store:
        way = made(store, pool).way
        store._bookie.journal_rolled(store._bookie.view.journal)
        assert store._bookie.view.guide.way is way


def test_no_table_is_made_of_files_that_lookups_have_not_verified(
    tmp_path: Path, pool: HeldPool
) -> None:
    store, known = churned(tmp_path / "s", 3)
    store.close()
    with opened(tmp_path / "s") as again:
        found = again._bookie.view.guide
        found.wanted()
        assert not pool.work
        verified(again)
        found.wanted()
        found.wanted()  # it is being made
        assert len(pool.work) == 1
        pool.go_on()
        found.wanted()  # it is made
        assert not pool.work
        assert again.get(KEYS[1]) == known.get(KEYS[1])


def test_older_places_that_are_not_in_the_table_are_asked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: HeldPool
) -> None:
    store, known = churned(tmp_path / "s", 4)
    with store:
        newest = store._bookie.view.ledger.levels[0][0].file.reader().rows
        monkeypatch.setattr(guide, "MOST_ROWS", newest)
        _, _, tails = made(store, pool).way
        assert [len(tail) for tail in tails] == [len(tails[1]) - 1, len(tails[1])]
        assert [store.get(key) for key in KEYS] == [known.get(key) for key in KEYS]


def test_a_table_is_asked_for_again_where_the_pool_had_no_memory_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: HeldPool
) -> None:
    def full(_: object) -> None:
        raise MemoryError

    store, _ = churned(tmp_path / "s", 4)
    with store:
        verified(store)
        pool.go_on()
        found = store._bookie.view.guide
        way = found.way
        with monkeypatch.context() as without:
            without.setattr(pool, "submit", full)
            with pytest.raises(MemoryError):
                found.wanted()
        found.wanted()
        pool.go_on()
        assert found.way is not way
