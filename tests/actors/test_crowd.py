"""Who finds the turn of writes taken again and again stays away for a while."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import octavo
from octavo.actors.writing.crowd import Crowd

ENOUGH = 17


class World:
    """A clock that sleeping moves on, and others who write meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.writes = 0
        self.writes_in_a_sleep = 1000
        self.away: set[int] = set()
        self.slept: list[float] = []
        self.crowd = Crowd(lambda: self.writes, self.away, self.sleep, lambda: self.seconds)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        self.writes += self.writes_in_a_sleep

    def meet(self, times: int, *, apart: int, waiting: int = 0) -> None:
        for _ in range(times):
            self.crowd.meet(waiting)
            self.writes += apart
            self.seconds += apart * 5e-6


@pytest.fixture
def world() -> World:
    return World()


def test_who_meets_others_in_every_few_writes_stays_away(world: World) -> None:
    world.meet(ENOUGH - 1, apart=10)
    assert world.slept == []
    world.meet(1, apart=10)
    assert world.slept == [0.001] * 5


def test_then_one_meeting_is_enough(world: World) -> None:
    world.meet(ENOUGH, apart=10)
    world.meet(1, apart=10)
    assert len(world.slept) == 10


def test_but_not_a_while_later(world: World) -> None:
    world.meet(ENOUGH, apart=10)
    world.seconds += 0.2
    world.meet(1, apart=10)
    assert len(world.slept) == 5


def test_who_meets_others_now_and_then_never_stays_away(world: World) -> None:
    world.meet(10 * ENOUGH, apart=40)
    assert world.slept == []


def test_where_more_threads_wait_meetings_are_further_apart(world: World) -> None:
    world.meet(ENOUGH, apart=40, waiting=3)
    assert len(world.slept) == 5


def test_where_others_do_not_write_it_comes_back_at_once(world: World) -> None:
    world.writes_in_a_sleep = 3
    world.meet(ENOUGH, apart=10)
    assert world.slept == [0.001]
    world.meet(1, apart=10)  # that was no crowd
    assert world.slept == [0.001]


def test_the_more_stay_away_the_longer(world: World) -> None:
    world.away |= {-1, -2}
    world.meet(ENOUGH, apart=10)
    assert world.slept == [0.003] * 5
    world.away |= set(range(-20, 0))
    world.meet(1, apart=10)
    assert world.slept[5:] == [0.004] * 5


def test_who_rested_begins_anew(world: World) -> None:
    world.meet(ENOUGH, apart=10)
    world.crowd.rested()
    world.meet(ENOUGH - 1, apart=10)
    assert len(world.slept) == 5


def test_each_thread_counts_for_itself(world: World) -> None:
    world.meet(ENOUGH - 1, apart=10)
    other = threading.Thread(target=world.meet, args=(ENOUGH - 1,), kwargs={"apart": 10})
    other.start()
    other.join()
    assert world.slept == []


def test_an_interrupt_leaves_nobody_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        assert world.away == {threading.get_ident()}
        raise KeyboardInterrupt

    monkeypatch.setattr(world, "sleep", interrupted)
    world.crowd = Crowd(lambda: world.writes, world.away, world.sleep, lambda: world.seconds)
    with pytest.raises(KeyboardInterrupt):
        world.meet(ENOUGH, apart=10)
    assert world.away == set()


def test_who_is_called_in_the_midst_of_its_threads_first_meeting_may_meet_others(
    world: World,
) -> None:
    """As a finalizer that puts, which may run between any two steps."""
    failed: list[AttributeError] = []

    def between(*_: object) -> None:
        sys.setprofile(None)
        try:
            world.crowd.meet(0)
        except AttributeError as error:
            failed.append(error)
        sys.setprofile(between)

    def meet() -> None:
        sys.setprofile(between)
        world.crowd.meet(0)
        sys.setprofile(None)

    thread = threading.Thread(target=meet)
    thread.start()
    thread.join()
    assert failed == []


class MetError(Exception):
    """The crowd was told of a meeting."""


class Told:
    """In place of a store's Crowd."""

    def __init__(self) -> None:
        self.rests = 0

    def meet(self, waiting: int) -> None:
        raise MetError

    def rested(self) -> None:
        self.rests += 1


def test_a_put_that_finds_the_turn_taken_tells_the_crowd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "s") as store:
        bookie = store._running.bookie.actor
        store.put(b"k", b"v")
        raised: list[MetError] = []

        def put() -> None:
            try:
                store.put(b"k", b"w")
            except MetError as met:
                raised.append(met)

        with monkeypatch.context() as patched:
            patched.setattr(bookie.inker, "crowd", Told())
            bookie.enter()
            try:
                other = threading.Thread(target=put)
                other.start()
                other.join()
            finally:
                bookie.leave()
        assert len(raised) == 1
        assert store.get(b"k") == b"v"


def test_a_durable_put_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with octavo.open(tmp_path / "s") as store, monkeypatch.context() as patched:
        told = Told()
        patched.setattr(store._inker, "crowd", told)
        store.put(b"k", b"v")
        assert told.rests == 0
        store.put(b"k", b"v", sync=True)
        assert told.rests == 1
