"""An opening or a close in which one call of the disk goes wrong leaves no file open."""

from __future__ import annotations

import errno
import gc
import signal
from contextlib import suppress
from typing import Any

import pytest
from look import clock_ms
from one_thread import forget, one_thread, opened
from pykka import ActorRef, ActorRegistry
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.penciller import Penciller
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.actors.turns.runtime import TurnActor

FAULTS = (MemoryError, KeyboardInterrupt, OSError)


class Fault:
    """The call of this number goes wrong."""

    def __init__(self, kind: type[BaseException], number: int) -> None:
        self.kind, self.left = kind, number

    def __call__(self, operation: str) -> tuple[int, None] | None:
        self.left -= 1
        if self.left:
            return None
        if self.kind is OSError:
            return errno.EIO, None
        raise self.kind


def killed_disk() -> SimDisk:
    """Ledger files, sealed journal files, and some that a kill left unsealed."""
    disk = SimDisk()
    with one_thread("killed") as pool:
        store = filled(disk)
        pool.go_on()
        store._running.bookie.call(Bookie.push)
        pool.go_on()
        for number in range(9):
            store.put(b"later %d" % number, b"v")
            if number % 4 == 0:
                rolled(store)
        forget(store)
    return disk


def filled(disk: SimDisk) -> octavo.Store:
    store = opened(disk, clock_ms=clock_ms, sync="always")
    for number in range(9):
        store.put(b"%d" % number, b"v")
        if number == 5:
            rolled(store)
    return store


def begun_since(before: list[ActorRef[Any]]) -> list[ActorRef[Any]]:
    """Actors that are there; others may have ended."""
    return [ref for ref in ActorRegistry.get_all() if ref not in before]


@pytest.mark.parametrize("kind", FAULTS)
def test_an_opening_that_failed_keeps_no_file_and_no_actor(kind: type[BaseException]) -> None:
    left = killed_disk()
    failed = 0
    for number in range(1, 300):
        disk, fault = left.after_crash("all"), Fault(kind, number)
        with one_thread("opening"):
            before = ActorRegistry.get_all()
            disk.at_call = fault
            store = None
            with suppress(octavo.OctavoError, kind):
                store = opened(disk, clock_ms=clock_ms)
            disk.at_call = None
            if store is not None:
                forget(store)
            else:
                failed += 1
                if disk.open_files():
                    gc.collect()  # what the frames of the exception held
                assert (disk.open_files(), begun_since(before)) == ([], []), number
        if fault.left > 0:
            assert failed > 30
            return
    raise AssertionError("more calls than there can be")


@pytest.mark.parametrize("actor", [Inker, Penciller, Bookie, PencillerClerk, InkerClerk])
def test_an_opening_that_is_interrupted_as_an_actor_starts_keeps_no_file_and_no_actor(
    actor: type[TurnActor], monkeypatch: pytest.MonkeyPatch
) -> None:
    register, disk = ActorRegistry.register, killed_disk().after_crash("all")

    def interrupted(ref: ActorRef[Any]) -> None:
        register(ref)
        if type(ref.actor) is actor:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)

    with one_thread("opening"):
        before = ActorRegistry.get_all()
        monkeypatch.setattr(ActorRegistry, "register", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened(disk, clock_ms=clock_ms)
        gc.collect()
        assert (disk.open_files(), begun_since(before)) == ([], [])


def test_an_opening_that_failed_tells_of_no_ended_actor_and_of_no_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = killed_disk()
    for number in range(1, 300):
        disk, fault = left.after_crash("all"), Fault(OSError, number)
        with one_thread("opening"):
            disk.at_call = fault
            with suppress(octavo.OctavoError, OSError):
                forget(opened(disk, clock_ms=clock_ms))
        assert "failed to handle" not in caplog.text, number
        assert "repair the store" not in caplog.text, number
        if fault.left > 0:
            return
    raise AssertionError("more calls than there can be")


@pytest.mark.parametrize("kind", FAULTS)
def test_a_close_that_failed_keeps_no_file_and_no_actor(kind: type[BaseException]) -> None:
    for number in range(1, 100):
        disk, fault = SimDisk(), Fault(kind, number)
        with one_thread("close"):
            before = ActorRegistry.get_all()
            store = filled(disk)
            disk.at_call = fault
            with suppress(octavo.OctavoError, kind):
                store.close()
            disk.at_call = None
            assert store.closed
            if disk.open_files():
                gc.collect()
            assert (disk.open_files(), begun_since(before)) == ([], []), number
        if fault.left > 0:
            assert number > 5
            return
    raise AssertionError("more calls than there can be")
