"""Ctrl-C as leases begin and end, and as files and actors go: nothing stays held."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import lease_counts
import pytest
from cutting_short import cut_short
from whole_store import Clock, opened

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.compacting import journal_install
from octavo.actors.turns.runtime import TurnActor
from octavo.actors.view import View
from octavo.files.door.open_file import RealFile
from octavo.manifest.register import SnapshotRegister


def at_every_step(once: Callable[[int], tuple[bool, int]]) -> int:
    """Have a call be cut short at its first step, at its second one, and so on to its end."""
    at = cuts = 0
    while True:
        at += 1
        cut, steps = once(at)
        cuts += cut
        if not cut and steps < at:
            return cuts


@pytest.mark.parametrize("what", ["register", "renew", "release", "expire"])
def test_the_register_counts_leases_right_wherever_it_is_interrupted(what: str) -> None:
    def once(at: int) -> tuple[bool, int]:
        clock = Clock()
        register = SnapshotRegister(clock)
        # Two more of a version, and enough of what is out of date to be left out.
        other = register.register(5, 900)
        for _ in range(70):
            register.release(register.register(1, 900))
        number = next(register.numbers)
        if what != "register":
            register.register(5, 60, number)
        clock.now += 60 * (what == "expire")
        call: Callable[[], object] = {
            "register": lambda: register.register(5, 60, number),
            "renew": lambda: register.renew(number, 30),
            "release": lambda: register.release(number),
            "expire": register.expire,
        }[what]
        cut = cut_short(call, at)
        lease_counts.check(register)
        assert register.needed(6)
        clock.now += 60
        register.expire()
        assert register.left(number) <= 0
        assert register.left(other) > 0
        assert len(register) == 1
        lease_counts.check(register)
        assert register.needed(6)
        register.release(other)
        assert not register.needed(6)
        return cut

    assert at_every_step(once) > 3


@contextmanager
def lost_ones() -> Iterator[list[str]]:
    """What had a Ctrl-C in it that nobody heard."""
    lost: list[str] = []

    def note(told: Any) -> None:
        if told.exc_type is KeyboardInterrupt:
            lost.append(repr(told.object))

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        yield lost
    finally:
        sys.unraisablehook = before


def nothing_is_held(store: octavo.Store) -> bool:
    """Whether no lease is left, and nothing bound to one, once the next snapshot was taken."""
    store.snapshot().close()
    bookie = store._bookie
    return (
        len(bookie.register) == 0
        and not bookie._pinned_tables
        and not bookie.ended
        and bookie.view.recent.newest_pin == -1
    )


@pytest.mark.parametrize("what", ["taken", "closed", "dropped", "left", "scanned"])
def test_a_snapshot_leaves_nothing_wherever_it_is_interrupted(tmp_path: Path, what: str) -> None:
    with lost_ones() as lost:
        with opened(tmp_path / "s", compact_every_seconds=None) as store:
            store.put(b"key", b"value")

            def left() -> None:
                with store.snapshot():
                    pass

            def once(at: int) -> tuple[bool, int]:
                snapshots = [store.snapshot()] if what in ("closed", "dropped") else []
                call: Callable[[], object] = {
                    "taken": lambda: snapshots.append(store.snapshot()),
                    "closed": lambda: snapshots[0].close(),
                    "dropped": snapshots.clear,
                    "left": left,
                    "scanned": lambda: next(store.keys()),
                }[what]
                cut = cut_short(call, at)
                snapshots.clear()
                assert nothing_is_held(store), f"step {at}"
                return cut

            assert at_every_step(once) > 0
        assert not lost or what == "scanned"  # CPython lets one be lost where it drops a generator


def test_a_snapshot_whose_closing_was_interrupted_can_be_closed_again(tmp_path: Path) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:

        def once(at: int) -> tuple[bool, int]:
            snapshot = store.snapshot()
            cut = cut_short(snapshot.close, at)
            snapshot.close()
            assert len(store._bookie.register) == 0, f"step {at}"
            return cut

        assert at_every_step(once) > 3


@pytest.mark.parametrize("what", ["backup", "compact"])
def test_no_lease_is_left_where_its_beginning_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    leased = journal_install.leased

    def interrupted(bookie: Bookie, number: int) -> View:
        leased(bookie, number)
        raise KeyboardInterrupt

    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.put(b"key", b"value")
        with monkeypatch.context() as patched:
            patched.setattr(journal_install, "leased", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.backup(tmp_path / "b") if what == "backup" else store.compact()
        assert nothing_is_held(store)


@pytest.mark.parametrize("what", ["backup", "compact"])
def test_no_lease_is_left_where_its_end_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.put(b"key", b"value")
        with monkeypatch.context() as patched:
            patched.setattr(SnapshotRegister, "release", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.backup(tmp_path / "b") if what == "backup" else store.compact()
        assert len(store._bookie.register) == 1
        assert nothing_is_held(store)


def test_a_file_is_closed_wherever_a_ctrl_c_meets_that() -> None:
    with lost_ones() as lost:

        def once(at: int) -> tuple[bool, int]:
            reading, writing = os.pipe()
            file = RealFile("pipe", writing)
            cut = cut_short(file.close, at)
            file.close()
            os.set_blocking(reading, False)
            assert os.read(reading, 1) == b"", f"step {at}"  # as nobody can write any more
            os.close(reading)
            return cut

        assert at_every_step(once) > 0
        assert not lost


class Nobody(TurnActor):
    """Is started, stopped and dropped."""


def test_no_python_runs_as_an_actor_goes() -> None:
    called: list[str] = []

    def look(frame: FrameType, event: str, _told: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    actors = [Nobody()]
    actors[0].actor_inbox.owner = None  # type: ignore[attr-defined]  # or it goes in a cycle
    actors[0]._actor_ref = None  # type: ignore[assignment]
    gc.disable()  # nor does anything else go now
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        actors.clear()
    finally:
        sys.setprofile(before)
        gc.enable()
    assert called == []
