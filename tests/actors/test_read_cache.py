"""The read cache by itself: what is kept, what goes first, and that it stays within its limit."""

from __future__ import annotations

from octavo.actors.read_cache import ReadCache

VALUE = b"v" * 100
SIZE = len(VALUE) + ReadCache.OVERHEAD_BYTES


def filled(room: int, keys: int) -> ReadCache:
    cache = ReadCache(SIZE * room)
    for number in range(keys):
        cache.fill(b"%d" % number, VALUE)
    return cache


def test_what_was_filled_is_there_until_it_is_discarded() -> None:
    cache = filled(10, 3)
    assert cache.entries == {b"0": VALUE, b"1": VALUE, b"2": VALUE}
    cache.discard(b"1")
    cache.discard(b"never there")
    assert (cache.entries.get(b"1"), cache.bytes) == (None, 2 * SIZE)


def test_a_full_cache_drops_the_oldest_first() -> None:
    cache = filled(10, 11)
    assert b"0" not in cache.entries
    assert (len(cache.entries), cache.bytes) == (10, 10 * SIZE)


def test_a_marked_key_is_forgiven_once() -> None:
    cache = filled(10, 10)
    cache.marks.add(b"0")
    cache.fill(b"first too many", VALUE)
    assert (b"0" in cache.entries, b"1" in cache.entries) == (True, False)
    assert not cache.marks
    for number in range(40):  # every other one is let in
        cache.fill(b"more %d" % number, VALUE)
    assert b"0" not in cache.entries


def test_a_full_cache_lets_in_every_other_key() -> None:
    cache = filled(10, 11)
    for number in range(6):
        cache.fill(b"more %d" % number, VALUE)
    assert sum(isinstance(key, bytes) and key.startswith(b"more") for key in cache.entries) == 3


def test_a_discarded_key_leaves_no_mark_and_may_come_again() -> None:
    cache = filled(10, 10)
    cache.marks.add(b"3")
    cache.discard(b"3")
    assert not cache.marks
    cache.fill(b"3", b"w" * 100)
    assert (cache.entries[b"3"], cache.bytes) == (b"w" * 100, 10 * SIZE)


def test_the_limit_holds_whatever_is_filled_and_discarded() -> None:
    cache = ReadCache(SIZE * 10)
    for number in range(500):
        cache.fill(number % 37, b"x" * (number % 91))
        if number % 3 == 0:
            cache.discard(number % 11)
        kept = sum(len(value) + ReadCache.OVERHEAD_BYTES for value in cache.entries.values())
        assert kept == cache.bytes <= cache.limit


def test_a_large_value_is_not_kept() -> None:
    cache = ReadCache(8000)
    cache.fill(b"large", b"x" * 801)
    cache.fill(b"small", b"x" * 800)
    assert list(cache.entries) == [b"small"]


def test_no_limit_is_no_cache() -> None:
    cache = ReadCache(0)
    for number in range(4):
        cache.fill(number, b"")
    assert (cache.entries, cache.bytes) == ({}, 0)


def test_clearing_leaves_room_for_as_much_again() -> None:
    cache = filled(10, 10)
    cache.clear()
    assert (cache.entries, cache.bytes) == ({}, 0)
    for number in range(10):
        cache.fill(number, VALUE)
    assert len(cache.entries) == 10
