"""The register of snapshots: leases by an injected clock, and what they keep from being deleted."""

from __future__ import annotations

import math
import threading
from typing import Any

import lease_counts
import pytest
from counted_lines import lines_of
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.files.errors import Misuse, SnapshotExpired
from octavo.manifest.register import SnapshotRegister


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def register(clock: Clock) -> SnapshotRegister:
    return SnapshotRegister(clock)


def test_a_file_removed_after_a_snapshot_is_needed_by_it(register: SnapshotRegister) -> None:
    number = register.register(5, 60)
    assert register.needed(6)
    assert not register.needed(5)
    register.release(number)
    assert not register.needed(6)


def test_nobody_needs_anything_where_there_is_no_snapshot(register: SnapshotRegister) -> None:
    assert not register.needed(1 << 40)


def test_the_oldest_of_many_snapshots_decides(register: SnapshotRegister) -> None:
    numbers = [register.register(version, 60) for version in (7, 3, 9, 3)]
    assert register.needed(4)
    register.release(numbers[1])
    assert register.needed(4)
    register.release(numbers[3])
    assert not register.needed(4)
    assert register.needed(8)


def test_a_lease_is_over_at_its_end(register: SnapshotRegister, clock: Clock) -> None:
    number = register.register(1, 60)
    clock.now += 59.999
    assert register.left(number) > 0
    clock.now = 1060.0
    assert register.left(number) <= 0


def test_a_lease_that_is_over_still_counts_until_it_is_dropped(
    register: SnapshotRegister, clock: Clock
) -> None:
    number = register.register(1, 60)
    clock.now += 61
    assert register.needed(2)
    assert register.expire() == [number]
    assert not register.needed(2)
    assert register.expire() == []


def test_a_lease_that_is_over_cannot_be_renewed(register: SnapshotRegister, clock: Clock) -> None:
    number = register.register(1, 60)
    clock.now += 60
    with pytest.raises(SnapshotExpired):
        register.renew(number, 60)
    assert register.left(number) <= 0


def test_a_released_lease_cannot_be_renewed(register: SnapshotRegister) -> None:
    number = register.register(1, 60)
    register.release(number)
    with pytest.raises(SnapshotExpired):
        register.renew(number, 60)


def test_renewing_begins_the_lease_anew(register: SnapshotRegister, clock: Clock) -> None:
    number = register.register(1, 60)
    clock.now += 50
    register.renew(number, 60)
    clock.now += 50
    assert register.expire() == []
    assert register.left(number) > 0
    clock.now += 10
    assert register.expire() == [number]


def test_renewing_may_make_a_lease_shorter(register: SnapshotRegister, clock: Clock) -> None:
    number = register.register(1, 900)
    register.renew(number, 5)
    clock.now += 5
    assert register.expire() == [number]


def test_release_is_idempotent_and_knows_no_stranger(register: SnapshotRegister) -> None:
    number = register.register(1, 60)
    other = register.register(1, 60)
    register.release(number)
    register.release(number)
    register.release(12345)
    assert register.left(other) > 0
    assert len(register) == 1


def test_a_lease_that_memory_had_no_count_for_is_none(register: SnapshotRegister) -> None:
    class Full(dict[int, int]):
        def __setitem__(self, version: int, count: int) -> None:
            raise MemoryError

    register._counts = Full()
    number = next(register.numbers)
    with pytest.raises(MemoryError):
        register.register(5, 60, number)
    lease_counts.check(register)
    register._counts = {}
    register.release(number)
    later = register.register(5, 60)
    register.release(number)
    assert register.needed(6)
    register.release(later)
    lease_counts.check(register)


def test_numbers_never_recur(register: SnapshotRegister) -> None:
    seen = set()
    for _ in range(100):
        number = register.register(1, 60)
        seen.add(number)
        register.release(number)
    assert len(seen) == 100


def test_live_shows_version_age_and_what_is_left(register: SnapshotRegister, clock: Clock) -> None:
    first = register.register(4, 60)
    clock.now += 20
    second = register.register(5, 30)
    clock.now += 10
    assert [tuple(each) for each in register.live] == [(first, 4, 30, 30), (second, 5, 10, 20)]
    clock.now += 20
    assert [each.number for each in register.live] == [first]


@pytest.mark.parametrize("lease", [0, -1, math.inf, math.nan])
def test_an_impossible_lease_is_refused(register: SnapshotRegister, lease: float) -> None:
    with pytest.raises(Misuse, match="lease_seconds"):
        register.register(1, lease)
    number = register.register(1, 60)
    with pytest.raises(Misuse, match="lease_seconds"):
        register.renew(number, lease)


def test_short_snapshots_by_the_thousand_leave_nothing_behind(register: SnapshotRegister) -> None:
    held = register.register(1, 900)
    for version in range(20_000):
        number = register.register(version, 900)
        register.renew(number, 1)
        register.release(number)
    assert len(register._ends) < 300
    assert len(register._versions) < 300
    lease_counts.check(register)
    assert register.left(held) > 0


STEPS = st.one_of(
    st.tuples(st.just("register"), st.integers(0, 9), st.sampled_from([1, 5, 60])),
    st.tuples(st.just("renew"), st.integers(0, 9), st.sampled_from([1, 5, 60])),
    st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 3, 20]), st.just(0)),
    st.tuples(st.just("expire"), st.just(0), st.just(0)),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(STEPS, max_size=60))
def test_any_sequence_agrees_with_a_dict(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    register = SnapshotRegister(clock)
    there: dict[int, tuple[int, float]] = {}
    given_out: list[int] = []
    for what, which, seconds in steps:
        number = given_out[which % len(given_out)] if given_out else 0
        live = number in there and there[number][1] > clock.now
        if what == "register":
            made = register.register(which, seconds)
            there[made] = (which, clock.now + seconds)
            given_out.append(made)
        elif what == "renew" and live:
            register.renew(number, seconds)
            there[number] = (there[number][0], clock.now + seconds)
        elif what == "renew":
            with pytest.raises(SnapshotExpired):
                register.renew(number, seconds)
        elif what == "release":
            register.release(number)
            there.pop(number, None)
        elif what == "wait":
            clock.now += which
        else:
            over = {each for each, (_, ends) in there.items() if ends <= clock.now}
            assert set(register.expire()) == over
            there = {each: lease for each, lease in there.items() if each not in over}
        lease_counts.check(register)
        assert len(register) == len(there)
        for each in given_out:
            assert (register.left(each) > 0) == (each in there and there[each][1] > clock.now)
        for version in range(11):
            assert register.needed(version) == any(v < version for v, _ in there.values())


def test_many_threads_leave_it_whole(register: SnapshotRegister) -> None:
    begin = threading.Barrier(4)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        begin.wait()
        for step in range(2000):
            number = register.register(seed + step, 60)
            if register.left(number) <= 0 or not register.needed(seed + step + 1):
                wrong.append((seed, step))
            register.release(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(register) == 0
    lease_counts.check(register)


def test_registering_takes_no_more_steps_beside_thousands() -> None:
    assert _steps_of_one(beside=10_000) == _steps_of_one(beside=10)


def _steps_of_one(beside: int) -> int:
    register = SnapshotRegister(Clock())
    for version in range(beside):
        register.register(version, 900)
    return lines_of(lambda: register.release(register.register(5, 900)))
