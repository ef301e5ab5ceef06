"""Items that scans keep by their sequence numbers."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from beside import seeded
from whole_store import flush, opened

import octavo
from octavo.actors.scanning.kept_items import KeptItems
from octavo.files.ledger.ledger_key import STANDARD, prefix

KEYS = [b"%04d" % at for at in range(300)]
Items = list[tuple[bytes, bytes]]


def loaded(path: Path, **options: int) -> octavo.Store:
    """A store with a ledger."""
    store = opened(path, **{"read_cache_bytes": 1 << 20, "push_rows": 1 << 16, **options})
    for key in KEYS:
        store.put(key, b"value of " + key)
    flush(store)
    return store


def scan(store: octavo.Store, number: int = 50) -> Items:
    """The first items, as a scan that is broken off."""
    return list(islice(store.items(), number))


def often(store: octavo.Store) -> Items:
    """What the first scan gives whose items are kept."""
    return [scan(store) for _ in range(3)][-1]


def kept(store: octavo.Store) -> dict[int, tuple[bytes, bytes]]:
    """Items of the default bucket."""
    found = store._bookie.kept_scans.items.of(prefix(STANDARD, b""))
    assert found is not None
    keys, values = (one | other for one, other in zip(found.older, found.newer, strict=True))
    assert list(keys) == list(values)
    return {sqn: (key, values[sqn]) for sqn, key in keys.items()}


def same_objects(one: Items, other: Items) -> bool:
    """Whether they have the same values, not such as were read anew."""
    return all(a[1] is b[1] for a, b in zip(one, other, strict=True))


def test_an_item_of_ground_that_was_scanned_twice_before_is_kept(tmp_path: Path) -> None:
    with loaded(tmp_path) as store:
        first = scan(store), scan(store)
        assert not kept(store)
        third = scan(store)
        assert sorted(kept(store).values()) == third == first[0] == first[1]
        assert same_objects(scan(store), third)


def test_what_is_written_is_given_and_not_what_was_kept(tmp_path: Path) -> None:
    with loaded(tmp_path) as store:
        often(store)
        before = store.snapshot()
        store.put(KEYS[3], b"new")
        store.delete(KEYS[5])
        expected = [(key, b"value of " + key) for key in KEYS[:51] if key != KEYS[5]]
        expected[3] = KEYS[3], b"new"
        assert scan(store) == expected == scan(store)
        assert list(before.items(limit=50)) == [(key, b"value of " + key) for key in KEYS[:50]]
        before.close()


def test_an_item_is_given_after_its_ledger_was_merged(tmp_path: Path) -> None:
    with loaded(tmp_path) as store:
        often(store)
        held = kept(store)
        store.put(KEYS[0], b"new")
        flush(store)
        assert scan(store)[0] == (KEYS[0], b"new")
        again = often(store)
        assert again[0] == (KEYS[0], b"new")
        assert same_objects(again[1:], sorted(held.values())[1:])


def test_an_item_of_another_key_is_not_given(tmp_path: Path) -> None:
    with loaded(tmp_path) as store:
        often(store)
        found = store._bookie.kept_scans.items.of(prefix(STANDARD, b""))
        assert found is not None
        sqn = next(sqn for sqn, key in found.newer.keys.items() if key == KEYS[7])
        found.newer.keys[sqn], found.newer.values[sqn] = KEYS[8], b"of another"
        assert scan(store)[7] == (KEYS[7], b"value of " + KEYS[7])


def test_an_item_of_another_bucket_is_not_given(tmp_path: Path) -> None:
    with loaded(tmp_path) as store:
        other = store.bucket(b"other")
        for key in KEYS[:60]:
            other.put(key, b"of the other one")
        flush(store)
        for _ in range(4):
            assert scan(store, 20) == [(key, b"value of " + key) for key in KEYS[:20]]
            assert list(islice(other.values(), 20)) == [b"of the other one"] * 20


def test_without_a_read_cache_nothing_is_kept(tmp_path: Path) -> None:
    with loaded(tmp_path, read_cache_bytes=0) as store:
        assert often(store) == scan(store)
        assert store._bookie.kept_scans.items.of(prefix(STANDARD, b"")) is None


@pytest.mark.parametrize("limit", [1 << 20, 16 << 10])
def test_the_items_that_are_kept_take_no_more_than_their_limit(limit: int) -> None:
    rng = seeded("items that are kept")
    items = KeptItems(limit)
    newest: list[int] = []
    for sqn in range(20_000):
        found = items.of(rng.choice([b"a", b"b"]))
        assert found is not None
        key, value = rng.randbytes(rng.randrange(1, 20)), rng.randbytes(rng.randrange(50))
        found.keep(sqn, key, value)
        newest.append(sqn)
    held = {
        sqn: (key, part.values[sqn])
        for generation in (items._older, items._newer)
        for part in generation.values()
        for sqn, key in part.keys.items()
    }
    if limit == 16 << 10:
        assert not held  # each takes more than its part
    else:
        size = sum(len(key) + len(value) for key, value in held.values())
        assert limit // 4 < size + 300 * len(held) <= limit + 400
        assert sorted(held) == newest[-len(held) :]


def test_an_item_is_given_from_the_older_generation_and_then_read_anew(tmp_path: Path) -> None:
    with loaded(tmp_path) as store:
        second = often(store)
        items = store._bookie.kept_scans.items
        items.turn_over()
        assert same_objects(scan(store), second)
        items.turn_over()
        assert not kept(store)
        assert scan(store) == second == sorted(kept(store).values())


def test_large_items_are_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path, read_cache_bytes=1 << 20) as store:
        store.put(b"a", b"small")
        store.put(b"b", bytes(4096))
        flush(store)
        for _ in range(4):
            assert scan(store) == [(b"a", b"small"), (b"b", bytes(4096))]
        assert list(kept(store).values()) == [(b"a", b"small")]


def test_buckets_of_which_nothing_is_kept_count_too() -> None:
    items = KeptItems(100_000)
    for number in range(100_000):
        items.of(prefix(STANDARD, b"%d" % number))
    assert len(items._newer) + len(items._older) < 500
