"""An I/O error at every call of the disk, one at a time: see io_faults.py for what must hold.

``scripts/campaign io-faults`` does the same with larger workloads, and with two errors at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from crash_workloads import LITTLE, WORKLOADS
from io_faults import KINDS, OF_THE_PROCESS, Fault, broken
from look import clock_ms
from one_thread import forget, one_thread, opened
from simdisk import SimDisk
from whole_store import NEVER_MS

import octavo
from octavo.manifest.closed_store import closed_store
from octavo.manifest.pinning import pin
from octavo.manifest.unsynced import UNSYNCED
from octavo.pipeline.feed_files import JournalLook

SEED = int(os.environ.get("OCTAVO_SEED", "1"))


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(LITTLE))
def test_an_error_at_any_call_is_told_and_loses_nothing(name: str, kind: str) -> None:
    workload, setup, options = LITTLE[name]
    for number in range(1, 1000):
        fault = Fault(kind, (number,))
        wrong = broken(name, workload, setup, SEED, fault, **options)
        assert not wrong, (
            f"{kind} at call {number} ({fault.operation}) of {name!r}: {wrong}\n"
            f"OCTAVO_SEED={SEED} pytest tests/crash/test_io_faults.py -k '{name} and {kind}'"
        )
        if not fault.fired:
            few = kind in ("ENOMEM", "short write")  # maps, and what who reads writes
            assert number > (3 if few else 10)
            return
    raise AssertionError("more calls than there can be")


@pytest.mark.parametrize("kind", OF_THE_PROCESS)
@pytest.mark.parametrize("name", list(LITTLE))
def test_a_time_without_descriptors_or_maps_is_told_and_fails_nothing(name: str, kind: str) -> None:
    workload, setup, options = LITTLE[name]
    for number in range(1, 1000):
        fault = Fault(kind, tuple(range(number, number + 60)))
        wrong = broken(name, workload, setup, SEED, fault, **options)
        assert not wrong, f"{kind} from call {number} ({fault.operation}) of {name!r} on: {wrong}"
        if not fault.fired:
            return
    raise AssertionError("more calls than there can be")


MET = [
    # The fsync of a batch in a file that had been rolled since: the next file took puts.
    ("batches", "ENOSPC", (72,), 20261121006),
    # The second of two fsyncs failed, which nobody believed: no fault of the store.
    ("batches", "EINTR", (76, 78), 20261121068),
]


@pytest.mark.parametrize(("name", "kind", "places", "seed"), MET)
def test_what_a_campaign_met(name: str, kind: str, places: tuple[int, ...], seed: int) -> None:
    cuts = WORKLOADS[name](0)
    fault = Fault(kind, places)
    assert broken(name, cuts.workload, cuts.setup, seed, fault, **cuts.options) == ""
    assert fault.fired == len(places)


def failed_once() -> SimDisk:
    """A store whose fsync failed and whose process was killed; the power was on all the time."""
    disk = SimDisk()
    with one_thread("failed"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"durable", sync=True)
        disk.fail("sync", 1, errno.EIO)
        with pytest.raises(octavo.StorageFailed):
            store.put(b"b", b"not durable", sync=True)
        forget(store)
    return disk.after_kill()


def test_who_promises_durability_refuses_what_a_failed_fsync_left() -> None:
    disk = failed_once()
    with pytest.raises(octavo.StorageFailed, match="open the store for writing"):
        JournalLook(disk, "/store").newest()
    with closed_store(disk, "/store") as closed, pytest.raises(octavo.StorageFailed):
        closed.sync_tails()
    with pytest.raises(octavo.StorageFailed, match="open the store for writing"):
        pin(disk, "/store", 60_000, clock_ms())
    assert disk.listdir("/store/snapshots") == []


def is_durable(disk: SimDisk) -> None:
    """What could not be synced at first is there after a power cut."""
    with one_thread("and again"):
        store = opened(disk.after_crash("nothing"), clock_ms=clock_ms)
        assert store.get(b"b") == b"not durable"
        forget(store)


def test_the_next_opening_writes_what_was_not_synced_anew() -> None:
    disk = failed_once()
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert any("written anew" in note for note in store.stats()["notes"])
        assert not disk.exists(f"/store/journal/{UNSYNCED}")
        assert store.get(b"b") == b"not durable"
        forget(store)
    is_durable(disk)


def test_a_failed_fsync_of_which_only_a_killed_process_was_told_is_not_believed_later() -> None:
    disk = failed_once()
    disk.unlink(f"/store/journal/{UNSYNCED}")  # it was killed before it could leave that
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert store.get(b"b") == b"not durable"
        store.sync()
        forget(store)
    is_durable(disk)


def test_an_opening_that_cannot_write_it_anew_fails_whether_there_is_a_mark_or_not() -> None:
    disk = failed_once()
    disk.unlink(f"/store/journal/{UNSYNCED}")
    disk.fail("rename", 1, errno.EIO)
    with one_thread("again"), pytest.raises(octavo.StorageFailed):
        opened(disk, clock_ms=clock_ms)
    disk = disk.after_kill()
    with one_thread("and again"):
        store = opened(disk, clock_ms=clock_ms)
        store.sync()
        forget(store)
    is_durable(disk)


@pytest.mark.parametrize("operation", ["sync", "rename"])
def test_an_opening_that_cannot_do_so_fails_and_the_next_one_tries_again(operation: str) -> None:
    disk = failed_once()
    disk.fail(operation, 1, errno.EIO)
    with one_thread("again"), pytest.raises(octavo.StorageFailed):
        opened(disk, clock_ms=clock_ms)
    assert disk.exists(f"/store/journal/{UNSYNCED}")
    disk = disk.after_kill()
    with one_thread("and again"):
        forget(opened(disk, clock_ms=clock_ms))
    image = disk.after_crash("nothing")
    with one_thread("at last"):
        store = opened(image, clock_ms=clock_ms)
        assert store.get(b"b") == b"not durable"
        forget(store)


def offline(disk: SimDisk) -> None:
    with closed_store(disk, "/store") as store:
        store.sync_tails()


READERS = {
    "pin": lambda disk: pin(disk, "/store", 1000, clock_ms()),
    "feed": lambda disk: JournalLook(disk, "/store").newest(),
    "offline": offline,
}


@pytest.mark.parametrize("name", READERS)
def test_what_one_reader_could_not_sync_no_other_one_believes(name: str) -> None:
    read, disk = READERS[name], SimDisk()
    with one_thread("owner"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"b", b"not durable")
        forget(store)
    disk = disk.after_kill()
    disk.fail("sync_file", 1, errno.EIO)
    with pytest.raises((octavo.StorageFailed, OSError)):
        read(disk)
    with pytest.raises(octavo.StorageFailed, match="fsync failed"):
        read(disk)
    disk = disk.after_kill()
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert any("written anew" in note for note in store.stats()["notes"])
        forget(store)
    read(disk.after_kill())
    image = disk.after_crash("nothing")
    with one_thread("at last"):
        store = opened(image, clock_ms=clock_ms)
        assert store.get(b"b") == b"not durable"
        forget(store)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_without_descriptors_puts_nothing_in_doubt(name: str) -> None:
    read, disk = READERS[name], SimDisk()
    with one_thread("owner"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"b", b"v")
        forget(store)
    disk = disk.after_kill()
    disk.fail("sync_file", 1, errno.EMFILE)
    with pytest.raises((octavo.StorageFull, OSError)):
        read(disk)
    read(disk)


@pytest.mark.parametrize("failed", [False, True], ids=["well", "failed"])
@pytest.mark.parametrize("own", [False, True], ids=["", "over an error of the handler's own"])
@pytest.mark.parametrize("heard", [KeyboardInterrupt, TimeoutError, ArithmeticError])
@pytest.mark.parametrize("name", READERS)
def test_what_a_signal_raises_in_a_readers_sync_says_nothing_of_how_that_went(
    name: str, heard: type[BaseException], own: bool, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, disk = READERS[name], SimDisk()
    with one_thread("owner"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"b", b"v")
        forget(store)
    disk = disk.after_kill()

    def interrupted(*_: object) -> None:
        try:
            if failed:
                raise OSError(errno.EIO, "Input/output error")
        finally:
            try:
                if own:
                    raise KeyError
            finally:
                raise heard("too late")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_file", interrupted)
        with pytest.raises((heard, octavo.StorageFailed)):
            read(disk)
    if failed:
        with pytest.raises(octavo.StorageFailed, match="fsync failed"):
            read(disk)
    else:
        read(disk)


@pytest.mark.parametrize("name", ["pin", "feed"])
def test_a_manifest_that_one_reader_could_not_sync_no_other_one_believes(name: str) -> None:
    read, disk = READERS[name], SimDisk()
    with one_thread("owner"):
        store = opened(disk, clock_ms=clock_ms, roll_count=20_000)
        store.put_many((b"%d" % n, b"v") for n in range(17_000))
        store.close()  # which seals so many: nothing else is to be synced
    disk = disk.after_kill()
    assert not any(name.endswith(".log") for name in disk.listdir("/store/journal"))
    disk.fail("sync_file", 1, errno.EIO)
    with pytest.raises(octavo.StorageFailed, match="fsync failed"):
        read(disk)
    with pytest.raises(octavo.StorageFailed, match="fsync failed"):
        read(disk)
    disk = disk.after_kill()
    with one_thread("again"):
        forget(opened(disk, clock_ms=clock_ms))
    read(disk.after_kill())


READS_OF_MEMORY = {
    "get": lambda store: store.get(b"k"),
    "head": lambda store: store.head(b"k"),
    "items": lambda store: list(store.items()),
    "heads": lambda store: list(store.heads()),
    "changes": lambda store: list(store.changes()),
    "put if": lambda store: store.put(b"k", b"2", if_sqn=1),
}


@pytest.mark.parametrize("read", READS_OF_MEMORY.values(), ids=list(READS_OF_MEMORY))
def test_a_failed_read_of_what_is_being_written_is_told_by_an_error_of_ours(
    read: Callable[[octavo.Store], object],
) -> None:
    disk = SimDisk()
    with one_thread("failed"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"k", b"v", expires_at=NEVER_MS)
        disk.fail("pread", 1, errno.EIO)
        with pytest.raises(octavo.StorageFailed, match=r"\.log: .*Input/output error"):
            read(store)
        store.put(b"l", b"w", if_sqn=0)  # nothing is in doubt
        assert list(store.items()) == [(b"k", b"v"), (b"l", b"w")]
        forget(store)
