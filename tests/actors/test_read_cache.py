"""The read cache by itself: what is kept, what goes first, and that it stays within its limit."""

from __future__ import annotations

import dis
import inspect
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

import pytest
from cutting_short import cut_short

from octavo.actors.reading.read_cache import ReadCache

VALUE = b"v" * 100
SIZE = len(VALUE) + ReadCache.OVERHEAD_BYTES


class Nothing:
    """A view of a store in whose memory is nothing, and who has it."""

    rows: ClassVar[dict[bytes, int]] = {}

    @property
    def recent(self) -> Nothing:
        return self

    @property
    def view(self) -> Any:
        return self


def made(limit_bytes: int) -> ReadCache:
    cache = ReadCache(limit_bytes)
    cache.reads = Nothing()
    return cache


def fill(cache: ReadCache, key: bytes, value: bytes) -> None:
    cache.fill(cache.reads.view, key, 0, value)


def filled(room: int, keys: int) -> ReadCache:
    cache = made(SIZE * room)
    for number in range(keys):
        fill(cache, b"%d" % number, VALUE)
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


def test_room_is_made_for_some_at_a_time() -> None:
    room = (1 << 20) // SIZE + 1
    cache = filled(room, room)
    assert len(cache.entries) == room
    fill(cache, b"one more", VALUE)
    assert cache.limit - (16 << 10) - SIZE < cache.bytes <= cache.limit - (16 << 10)
    assert cache.bytes == len(cache.entries) * SIZE
    assert b"one more" in cache.entries


def test_a_marked_key_is_forgiven_once() -> None:
    cache = filled(10, 10)
    cache.marks.add(b"0")
    fill(cache, b"first too many", VALUE)
    assert (b"0" in cache.entries, b"1" in cache.entries) == (True, False)
    assert not cache.marks
    for number in range(40):  # every other one is let in
        fill(cache, b"more %d" % number, VALUE)
    assert b"0" not in cache.entries


@pytest.mark.parametrize(("size", "count"), [(4095, 3), (4096, 6)])
def test_a_full_cache_lets_in_every_fourth_key_and_every_other_large_value(
    size: int, count: int
) -> None:
    cache = made((ReadCache.OVERHEAD_BYTES + size) * 10)
    for number in range(11):
        fill(cache, b"%d" % number, bytes(size))
    for number in range(12):
        fill(cache, b"more %d" % number, bytes(size))
    assert sum(key.startswith(b"more") for key in cache.entries) == count


def keys_let_in(cache: ReadCache) -> int:
    for number in range(4):
        fill(cache, b"more %d" % number, VALUE)
    return sum(key.startswith(b"more") for key in cache.entries)


def test_a_cache_that_was_full_lets_in_all_keys_once_half_of_it_is_gone() -> None:
    cache = filled(10, 11)
    for key in list(cache.entries)[:6]:
        cache.discard(key)
    assert keys_let_in(cache) == 4


def test_a_cache_that_was_full_lets_in_all_keys_once_it_was_cleared() -> None:
    cache = filled(10, 11)
    cache.clear()
    assert keys_let_in(cache) == 4


def test_a_cache_that_was_full_lets_in_all_keys_once_far_less_took_the_place_of_all() -> None:
    cache = made((ReadCache.OVERHEAD_BYTES + 1000) * 10)
    for number in range(11):
        fill(cache, b"%d" % number, bytes(1000))
    for key in list(cache.entries):
        cache.write_over(key, b"", {}, 1)
    assert keys_let_in(cache) == 4


def test_a_discarded_key_leaves_no_mark_and_may_come_again() -> None:
    cache = filled(10, 10)
    cache.marks.add(b"3")
    cache.discard(b"3")
    assert not cache.marks
    fill(cache, b"3", b"w" * 100)
    assert (cache.entries[b"3"], cache.bytes) == (b"w" * 100, 10 * SIZE)


def test_the_limit_holds_whatever_is_filled_and_discarded() -> None:
    cache = made(SIZE * 10)
    for number in range(500):
        fill(cache, b"%d" % (number % 37), b"x" * (number % 91))
        if number % 3 == 0:
            cache.discard(b"%d" % (number % 11))
        kept = sum(len(value or b"") + ReadCache.OVERHEAD_BYTES for value in cache.entries.values())
        assert kept == cache.bytes <= cache.limit


def test_long_keys_count() -> None:
    cache = made(1 << 20)
    key = b"%060000d".__mod__
    for number in range(100):
        fill(cache, key(number), b"v")
        assert sum(map(len, cache.entries)) <= cache.bytes <= cache.limit
    assert len(cache.entries) > 10
    cache.write_over(key(99), b"newer", {}, 17)
    for number in range(100):
        cache.discard(key(number))
    assert (cache.entries, cache.bytes) == ({}, 0)
    fill(cache, bytes(1 << 17), b"v")  # one over an eighth of the limit
    assert not cache.entries


def test_a_large_value_is_not_kept() -> None:
    cache = made(8000)
    fill(cache, b"large", b"x" * 801)
    fill(cache, b"small", b"x" * 800)
    assert list(cache.entries) == [b"small"]


def test_no_limit_is_no_cache() -> None:
    cache = made(0)
    for number in range(4):
        fill(cache, b"%d" % number, b"")
    assert (cache.entries, cache.bytes) == ({}, 0)


def test_clearing_leaves_room_for_as_much_again() -> None:
    cache = filled(10, 10)
    cache.clear()
    assert (cache.entries, cache.bytes) == ({}, 0)
    for number in range(10):
        fill(cache, b"%d" % number, VALUE)
    assert len(cache.entries) == 10


def test_a_new_value_takes_the_old_ones_place() -> None:
    cache = filled(10, 3)
    cache.marks.add(b"1")
    rows = {b"1": 9}
    cache.write_over(b"1", b"newer", rows, 17)
    assert rows == {b"1": 17}
    assert cache.entries == {b"0": VALUE, b"1": b"newer", b"2": VALUE}
    assert cache.bytes == 2 * SIZE + len(b"newer") + ReadCache.OVERHEAD_BYTES
    assert cache.marks == {b"1"}


def test_the_old_value_is_gone_before_the_table_has_the_new_row() -> None:
    cache = filled(10, 1)
    seen = []

    class Rows(dict[bytes, int]):
        def __setitem__(self, key: bytes, entry: int) -> None:
            seen.append(cache.entries.get(key))
            super().__setitem__(key, entry)

    cache.write_over(b"0", b"newer", Rows(), 17)
    cache.write_over(b"0", b"v" * SIZE * 2, Rows(), 18)
    assert seen == [None, None]


def test_a_value_too_large_to_be_kept_takes_the_old_one_away() -> None:
    cache = filled(10, 1)
    cache.marks.add(b"0")
    rows: dict[bytes, int] = {}
    cache.write_over(b"0", b"v" * SIZE * 2, rows, 17)
    assert (cache.entries, cache.marks, cache.bytes, rows) == ({}, set(), 0, {b"0": 17})


def test_a_larger_value_makes_its_own_room() -> None:
    cache = filled(80, 80)
    cache.write_over(b"79", b"v" * 5 * SIZE, {}, 17)
    assert (b"0" in cache.entries, b"79" in cache.entries) == (False, True)
    kept = sum(len(value or b"") + ReadCache.OVERHEAD_BYTES for value in cache.entries.values())
    assert kept == cache.bytes <= cache.limit


def test_the_queue_stays_short_however_often_a_key_is_discarded_and_read_again() -> None:
    cache = filled(100, 50)
    for _ in range(10_000):
        cache.discard(b"7")
        fill(cache, b"7", VALUE)
    assert len(cache._queue) <= 2 * 50 + 65
    assert set(cache._queue) >= set(cache.entries)
    assert cache.bytes == 50 * SIZE


def test_nothing_is_kept_of_a_key_that_is_deleted() -> None:
    cache = filled(10, 2)
    rows: dict[bytes, int] = {}
    cache.write_over(b"0", b"", rows, -17)
    assert (cache.entries, cache.bytes, rows) == ({b"1": VALUE}, SIZE, {b"0": -17})


def test_a_key_that_is_not_cached_is_entered_all_the_same() -> None:
    cache = filled(10, 1)
    rows: dict[bytes, int] = {}
    cache.write_over(b"1", b"newer", rows, 17)
    assert (cache.entries, rows) == ({b"0": VALUE}, {b"1": 17})


def test_nothing_comes_into_a_cache_in_the_midst_of_a_write() -> None:
    cache = filled(10, 1)
    seen = []

    def enter() -> None:
        fill(cache, b"0", VALUE)
        fill(cache, b"1", VALUE)
        seen.append(dict(cache.entries))

    cache.write_without((b"0", b"1"), enter)
    assert seen == [{}]
    fill(cache, b"1", VALUE)
    assert list(cache.entries) == [b"1"]


def test_after_a_write_that_was_cut_short_values_come_in_again() -> None:
    cache = filled(10, 1)

    def enter() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.write_without((b"0",), enter)
    fill(cache, b"1", VALUE)
    assert list(cache.entries) == [b"1"]


def test_a_full_cache_is_left_as_it_is_while_another_thread_takes_out_of_it() -> None:
    cache = filled(10, 10)
    with cache.lock:
        reader = threading.Thread(target=fill, args=(cache, b"too many", VALUE))
        reader.start()
        reader.join()  # it does not wait
    assert len(cache.entries) == 11
    for number in range(4):
        fill(cache, b"%d more" % number, VALUE)
    assert len(cache.entries) == 10


def test_nothing_is_queued_of_what_is_read_by_an_older_view() -> None:
    cache = filled(10, 2)
    older = cache.reads.view
    cache.reads = Nothing()
    for number in range(1000):
        cache.fill(older, b"old %d" % number, 0, VALUE)
    assert (len(cache.entries), len(cache._queue)) == (2, 2)


def test_the_queue_stays_short_whatever_came_between_and_was_not_kept() -> None:
    cache = filled(10, 2)
    cache.writing = True  # as another thread may have it just after the first look
    for number in range(1000):
        fill(cache, b"%d" % (2 + number), VALUE)
    assert len(cache.entries) == 2
    assert len(cache._queue) < 100
    cache.writing = False
    for number in range(40):
        fill(cache, b"%d" % (2 + number), VALUE)
    assert cache.bytes == 10 * SIZE


def test_marks_of_keys_that_were_gone_before_do_not_stay() -> None:
    cache = filled(10, 11)
    for number in range(1000):
        cache.marks.add(b"gone %d" % number)
    for number in range(4):
        fill(cache, b"more %d" % number, VALUE)
    assert len(cache.marks) <= len(cache.entries)


def test_keys_without_a_place_in_the_queue_leave_the_cache_all_the_same() -> None:
    cache = filled(10, 10)
    cache._queue.clear()  # as a fill that began before a clear() finds it
    for number in range(100):
        fill(cache, b"more %d" % number, VALUE)
    assert cache.bytes == 10 * SIZE
    assert not any(b"%d" % number in cache.entries for number in range(10))


def test_nothing_stale_is_kept_where_a_tracer_has_others_write_between_two_lines() -> None:
    lines, first = inspect.getsourcelines(ReadCache.fill)
    reached = 0
    for line in range(first, first + len(lines)):
        cache, view = made(10_000), Nothing()
        view.rows = {}  # type: ignore[misc]
        cache.reads = view
        written = []

        def traced(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code is not ReadCache.fill.__code__:
                return None
            if event == "line" and frame.f_lineno == line and not written:  # noqa: B023
                written.append(line)  # noqa: B023
                cache.write_without((b"k",), lambda: view.rows.update({b"k": 7}))  # noqa: B023
            return traced

        before = sys.gettrace()
        sys.settrace(traced)
        try:
            cache.fill(view, b"k", 0, VALUE)  # type: ignore[arg-type]
        finally:
            sys.settrace(before)
        assert not written or b"k" not in cache.entries, lines[line - first]
        reached += bool(written)
    assert reached > 3


@pytest.mark.parametrize("how", ["fill", "write over", "write large", "write without"])
def test_the_bytes_are_those_of_the_values_wherever_it_is_interrupted(how: str) -> None:
    steps: dict[str, Callable[[ReadCache], object]] = {
        "fill": lambda cache: fill(cache, b"new", VALUE * 2),
        "write over": lambda cache: cache.write_over(b"9", VALUE * 8, {}, 17),
        "write large": lambda cache: cache.write_over(b"9", VALUE * 80, {}, 17),
        "write without": lambda cache: cache.write_without((b"3", b"4"), dict),
    }
    at, cut = 0, True
    while cut:
        at += 1
        cache = filled(20, 20)
        cache.marks |= {b"0", b"3"}
        cut, _ = cut_short(lambda: steps[how](cache), at)  # noqa: B023
        kept = sum(len(value or b"") + ReadCache.OVERHEAD_BYTES for value in cache.entries.values())
        assert cache.bytes == kept, f"interrupted at {at}"
        assert not cache.writing
        for number in range(200):  # and every key goes some time
            fill(cache, b"more %d" % number, VALUE)
        assert all(key.startswith(b"more") for key in cache.entries), f"interrupted at {at}"
        assert cache.bytes <= cache.limit
    assert at > 4


STEPS_WITH_A_LOOK = ("CALL", "PRECALL", "JUMP_BACKWARD", "RESUME", "YIELD", "SEND", "RAISE")


@pytest.mark.parametrize("function", [ReadCache.fill, ReadCache.write_over, ReadCache._drop])
def test_nothing_is_called_where_that_is_said(function: Callable[..., None]) -> None:
    lines, first = inspect.getsourcelines(function)
    begin = next(at for at, line in enumerate(lines) if "Nothing is called" in line)
    ends = ("self.bytes += size", "self.bytes -= size")
    end = next(at for at, line in enumerate(lines) if line.strip() in ends)
    assert begin < end
    within = [
        step
        for step in dis.get_instructions(function)
        if step.positions and begin < (step.positions.lineno or 0) - first <= end
    ]
    changes = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR")
    changed = [at for at, step in enumerate(within) if step.opname in changes]
    assert len(changed) > 1
    # Where nothing is changed yet, a loop may go on from here; nor does it matter at the end.
    looks = [
        step.opname
        for at, step in enumerate(within)
        if step.opname.startswith(STEPS_WITH_A_LOOK)
        and (changed[0] < at < changed[-1] or step.opname != "JUMP_BACKWARD")
    ]
    assert looks == []
