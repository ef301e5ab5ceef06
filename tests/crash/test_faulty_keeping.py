"""Publishing, restoring, and positions of consumers, in which one call of the disk goes wrong.

At each of their calls, one after the other: an I/O error, no descriptor, no memory, a Ctrl-C. What
failed left nothing half made, here and after a power cut, and is done by a second try.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from io_faults import KINDS
from look import NOW_MS, clock_ms, published_state
from one_thread import HeldPool, forget, one_thread, opened
from power_cuts import digest
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.keeping.restoring import restore_on
from octavo.manifest import consumers, published

FAULTS = ("EIO", "EMFILE", "memory", "Ctrl-C")
State = dict[bytes, bytes]


class Fault:
    """Of the calls that this kind of error may be of, the N-th."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.left = kind, number
        self.operation = ""

    def __call__(self, operation: str) -> tuple[int, None] | None:
        code, concerns = KINDS.get(self.kind, (0, lambda _: True))
        if not concerns(operation):
            return None
        self.left -= 1
        if self.left:
            return None
        self.operation = operation
        if self.kind == "memory":
            raise MemoryError
        if self.kind == "Ctrl-C":
            signal.raise_signal(signal.SIGINT)
            return None
        return code, None


class Tried:
    """A call under a fault."""

    def __init__(self, disk: SimDisk, fault: Fault, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        disk.at_call = fault
        try:
            call()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (whatever it says)
            self.error = error
        finally:
            disk.at_call = None
        self.done = self.error is None


def faults(kind: str) -> Iterator[Fault]:
    """With the N-th call, N = 1 upwards until none was met."""
    for number in range(1, 1000):
        fault = Fault(kind, number)
        yield fault
        if not fault.operation:
            assert number > 2
            return
    raise AssertionError("more calls than there can be")


def images(disk: SimDisk) -> Iterator[SimDisk]:
    yield disk.after_crash("nothing")
    yield disk.after_crash("all")


def filled(disk: SimDisk, pool: HeldPool, **options: Any) -> tuple[octavo.Store, dict[int, State]]:
    """A store with a ledger, sealed files and more behind them; what it held after each sqn."""
    store = opened(disk, clock_ms=clock_ms, **options)
    states = {}
    for number in range(20):
        sqn = store.put(b"%d" % (number % 7), b"v%d" % number)
        states[sqn] = dict(store.items())
        if number in (5, 12):
            rolled(store)
            pool.go_on()
        if number == 12:
            store._running.bookie.call(Bookie.push)
            pool.go_on()
    return store, states


# ---------------------------------------------------------------- publishing


def published_now(disk: SimDisk) -> State | None:
    """What others read of the snapshot "s"; None: there is none."""
    if not any(each.name == "s" for each in published.listed(disk, "/store")):
        return None
    return {key: value for (_, key), value in published_state(disk, "/store", "s").items()}


@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_published_is_whole_or_not_there(kind: str) -> None:
    for fault in faults(kind):
        with one_thread("publish") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool, sync="always")
            store.snapshot().publish("other")  # which each publishing looks at
            state = dict(store.items())
            tried = Tried(disk, fault, lambda s=store: s.snapshot().publish("s"))
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            assert not isinstance(tried.error, OSError), where
            for image in (disk, *images(disk)):
                assert published_now(image) == (state if tried.done else None), where
            try:
                if not tried.done:
                    store.snapshot().publish("s")
                assert published_now(disk) == state, where
            except octavo.StorageFailed:
                assert store._inker.failed is not None, where
            forget(store)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_name_that_one_takes_from_another_is_the_old_ones_or_the_new_ones(kind: str) -> None:
    for fault in faults(kind):
        with one_thread("replace") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool, sync="always")
            store.snapshot().publish("s", count=False)
            old = dict(store.items())
            store.put(b"0", b"new")
            new = dict(store.items())
            snap = store.snapshot()
            tried = Tried(disk, fault, lambda s=snap: s.publish("s", replace=True, count=False))
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            assert not isinstance(tried.error, OSError), where
            now = published_now(disk)
            assert now in ((new,) if tried.done else (old, new)), where
            if kind != "Ctrl-C":
                assert (now == new) == tried.done, where
            for image in images(disk):
                assert published_now(image) in ((new,) if tried.done else (old, new)), where
                if tried.done and kind != "EIO":  # of which one that has the name may be unreadable
                    assert [each.name for each in published.listed(image, "/store")].count("s") == 1
            forget(store)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_lease_that_is_renewed_is_the_new_one_or_the_old_one(kind: str) -> None:
    for fault in faults(kind):
        with one_thread("renew") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool, sync="always")
            made = store.snapshot().publish("s", count=False)
            before, ends = made.expires_at, NOW_MS + 90_000_000
            tried = Tried(disk, fault, lambda m=made: m.renew(90_000))
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            assert not isinstance(tried.error, OSError), where
            for image in (disk, *images(disk)):
                (found,) = published.listed(image, "/store")
                assert found.expires_at in ((ends,) if tried.done else (before, ends)), where
            forget(store)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_snapshot_that_is_released_is_whole_or_gone_and_does_not_come_back(kind: str) -> None:
    for fault in faults(kind):
        with one_thread("release") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool, sync="always")
            state = dict(store.items())
            made = store.snapshot().publish("s", count=False)
            tried = Tried(disk, fault, made.release)
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            assert not isinstance(tried.error, OSError), where
            for image in (disk, *images(disk)):
                assert published_now(image) in ((None,) if tried.done else (None, state)), where
            made.release()
            for image in (disk, *images(disk)):
                assert published_now(image) is None, where
            forget(store)


def test_a_published_snapshot_that_cannot_be_read_stops_no_opening() -> None:
    with one_thread("unreadable") as pool:
        disk = SimDisk()
        store, states = filled(disk, pool, sync="always")
        store.snapshot().publish("s", count=False)
        store.close()
        read = disk.read

        def unreadable(path: str, limit_bytes: int) -> bytes:
            if "/snapshots/" in path:
                raise OSError(errno.EIO, "Input/output error", path)
            return read(path, limit_bytes)

        disk.read = unreadable  # type: ignore[method-assign]
        store = opened(disk, clock_ms=clock_ms)
        assert dict(store.items()) == states[max(states)]
        store.close()


# ---------------------------------------------------------------- restoring


known: dict[bytes, State] = {}
"""By all that is on the disk: most faults leave one that was met before."""


def restored_state(disk: SimDisk) -> State:
    key = digest(disk)
    if key not in known:
        with one_thread("restored"):
            store = opened(disk, "/new", clock_ms=clock_ms, create=False)
            known[key] = dict(store.items())
            assert store.verify().problems == []
            forget(store)
    return known[key]


def source_of(disk: SimDisk) -> dict[str, bytes]:
    return {
        path: content
        for path, content in disk.files().items()
        if path.startswith("/store/") and not path.endswith("/LOCK")
    }


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize(("sqn", "time_ms", "copy"), [(11, None, False), (None, NOW_MS, True)])
def test_a_restored_store_is_whole_or_not_there_and_its_source_as_it_was(
    kind: str, sqn: int | None, time_ms: int | None, copy: bool
) -> None:
    def restore() -> object:
        return restore_on(disk, "/store", "/new", sqn=sqn, time_ms=time_ms, copy=copy)

    with one_thread("source") as pool:
        store, states = filled(source := SimDisk(), pool, sync="always")
        store.close()
    wanted = states[sqn or max(states)]
    before = source_of(source)
    for fault in faults(kind):
        with one_thread("restore"):
            disk = source.after_crash("all")
            tried = Tried(disk, fault, restore)
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            cut = list(images(disk))
            assert all(source_of(each) == before for each in (disk, *cut)), where
            for image in cut:
                if tried.done or image.exists("/new"):
                    assert restored_state(image) == wanted, where
            if not disk.exists("/new"):
                restore()
            assert disk.listdir("/") == ["new", "store"], where
            assert restored_state(disk) == wanted, where


# ---------------------------------------------------------------- backups


def backed_up_state(disk: SimDisk) -> State:
    with one_thread("backup"):
        store = opened(disk, "/backup", clock_ms=clock_ms, create=False)
        assert store.verify().problems == []
        forget(store)
        return dict(store.items())


@pytest.mark.parametrize("kind", ["EIO", "Ctrl-C"])
@pytest.mark.parametrize("first", [True, False])
def test_a_backup_that_failed_is_durable_once_another_one_went_well(kind: str, first: bool) -> None:
    """Also where the sync of a name failed: that a later one goes well says nothing of it."""
    for fault in faults(kind):
        with one_thread("store") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool, sync="always")
            before = {} if first else dict(store.items())
            if not first:
                store.backup("/backup")
                store.put(b"0", b"newer")
                store.put_many((b"more %d" % number, b"v") for number in range(30))
                store.compact()
            state = dict(store.items())
            tried = Tried(disk, fault, lambda s=store: s.backup("/backup"))
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            assert not isinstance(tried.error, OSError), where
            for image in images(disk):
                if tried.done or image.exists("/backup/OCTAVO"):
                    allowed = (state,) if tried.done else (before, state)
                    assert backed_up_state(image) in allowed, where
            if store._inker.failed is not None:
                forget(store)
                store = opened(disk.after_kill(), clock_ms=clock_ms)
            disk = store._running.disk
            store.backup("/backup")
            for image in images(disk):
                assert backed_up_state(image) == state, where
            forget(store)


# ---------------------------------------------------------------- consumers


def positions(disk: SimDisk) -> dict[str, int]:
    """What the next opening finds."""
    known = consumers.Consumers(disk, "/store", clock_ms, notes := [])
    assert notes == []
    return {name: progress.position for name, progress in known.all().items()}


MOVES: dict[str, tuple[Callable[[octavo.Store], object], dict[str, int]]] = {
    "begins": (lambda store: store.consumer("new", since=15), {"mail": 0, "new": 15}),
    "acknowledges": (lambda store: store.consumer("mail").acknowledge(15), {"mail": 15}),
    "is dropped": (lambda store: store.consumer("mail").drop(), {}),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", MOVES)
def test_a_consumer_is_where_it_was_or_where_it_came_to(name: str, kind: str) -> None:
    move, then = MOVES[name]
    for fault in faults(kind):
        with one_thread("consumers") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool)
            store.consumer("mail", since=0)
            before = store.consumers()
            tried = Tried(disk, fault, lambda s=store: move(s))
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            allowed = (then,) if tried.done else (before, then)
            for found in (store.consumers(), *map(positions, images(disk))):
                assert found in allowed, where
            store.compact()  # which takes nothing that it is yet to see
            assert store._inker.manifest.horizon <= min(store.consumers().values(), default=20)
            move(store) if store.consumers() != then else None
            assert store.consumers() == then == positions(disk.after_crash("nothing")), where
            forget(store)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_compaction_goes_on_whatever_went_wrong_in_one(kind: str) -> None:
    """Also where it was in the deletion of a file: none is tried again for ever."""
    for fault in faults(kind):
        with one_thread("compact") as pool:
            disk = SimDisk()
            store, _ = filled(disk, pool)
            state = dict(store.items())
            tried = Tried(disk, fault, store.compact)
            where = f"{kind} in {fault.operation}: {tried.error!r}"
            assert not isinstance(tried.error, OSError), where
            if store._inker.failed is None:
                store.compact()
                store.put(b"0", b"again")
                store.compact()
                assert dict(store.items()) == {**state, b"0": b"again"}, where
            forget(store)
