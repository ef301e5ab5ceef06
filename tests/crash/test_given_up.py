"""A change of a manifest that finds no room leaves no file that it would have named, and no actor;
one of which nobody knows leaves the files, for a crash may bring it to light."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from look import clock_ms, read_all
from one_thread import HeldPool, forget, one_thread, opened
from pykka import ActorRegistry
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.journal_file import JournalFile
from octavo.actors.ledger_file import LedgerFile

KEYS = [b"k%02d" % n for n in range(40)]
Act = Callable[[octavo.Store, HeldPool], object]


def compact(store: octavo.Store, pool: HeldPool) -> None:
    store.compact()


def save(store: octavo.Store, pool: HeldPool) -> None:
    """Memory becomes a file of level zero, the fourth, so that all are merged."""
    store._running.bookie.call(Bookie.push)
    pool.go_on()


def begun(disk: SimDisk, pool: HeldPool) -> octavo.Store:
    """Some journal files that are half garbage, three files in level zero, and rows in memory."""
    store = opened(disk, clock_ms=clock_ms)
    for part in range(4):
        for key in KEYS:
            store.put(key, b"%d" % part)
        if part < 3:
            store._running.bookie.call(Bookie.push)
            rolled(store)
            pool.go_on()
    return store


def strangers(store: octavo.Store, disk: SimDisk) -> tuple[set[str], int]:
    """(files that no manifest names and nobody reads, actors of more files than there are)."""
    running = store._running
    inker, penciller = store._inker, running.penciller.actor
    files = [file.path for file in inker.view.files]
    files += [file.path for _, file in running.inker_clerk.actor.delete_pending.waiting]
    files += [entry.file.path for level in penciller.manifest.levels for entry in level]
    files += [file.path for _, file in penciller.delete_pending.waiting]
    there = {path for path in disk.files() if path.endswith((".cdb", ".log", ".sst"))}
    left = {path for path in there if "/manifest/" not in path} - set(files)
    refs = [ref for ref in ActorRegistry.get_all() if ref.actor_class in (JournalFile, LedgerFile)]
    return left, len(refs) - len(files)


def contents(store: octavo.Store) -> dict[bytes, bytes]:
    return {key: value for (_, key), value in read_all(store).state.items()}


def faulty(act: Act, name: str, code: int) -> Iterator[tuple[octavo.Store, SimDisk, HeldPool]]:
    """The store behind ``act``, in which the N-th call of this name failed; N = 1 upwards."""
    for number in range(1, 100):
        disk = SimDisk()
        with one_thread("fault") as pool:
            store = begun(disk, pool)
            disk.fail(name, number, code)
            with suppress(octavo.OctavoError):
                act(store, pool)
            met = not disk._failures[name]
            disk.heal()
            print(f"{name} {number}")
            assert contents(store) == dict.fromkeys(KEYS, b"3")
            yield store, disk, pool
            forget(store)
        if not met:
            return
    raise AssertionError("more calls than there can be")


@pytest.mark.parametrize("act", [compact, save])
@pytest.mark.parametrize("name", ["write", "sync", "create", "sync_dir", "sync_held"])
def test_a_change_that_finds_no_room_leaves_no_file_and_no_actor(act: Act, name: str) -> None:
    for store, disk, pool in faulty(act, name, errno.ENOSPC):
        if store._inker.failed is None:
            assert strangers(store, disk) == (set(), 0)
            act(store, pool)
            assert strangers(store, disk) == (set(), 0)


@pytest.mark.parametrize("act", [compact, save])
def test_of_a_change_in_doubt_the_files_stay_and_the_actors_stop(act: Act) -> None:
    stayed = 0
    for store, disk, _ in faulty(act, "sync", errno.EIO):
        left, actors = strangers(store, disk)
        assert actors == 0
        if left:
            stayed += 1
            with pytest.raises(octavo.StorageFailed):  # who knows what else is not durable
                store.put(b"more", b"v")
        with one_thread("again"):
            again = opened(disk.after_kill(), clock_ms=clock_ms)
            assert contents(again) == dict.fromkeys(KEYS, b"3")
            forget(again)
    assert stayed


def test_a_put_is_told_nothing_of_a_journal_file_that_could_neither_be_begun_nor_removed() -> None:
    disk = SimDisk()
    with one_thread("full") as pool:
        store = opened(disk, clock_ms=clock_ms, roll_size_bytes=1 << 20)
        value = random.Random(7).randbytes(1 << 19)
        store.put(b"a", value)
        disk.fail("write", 1, errno.ENOSPC)
        disk.fail("unlink", 1, errno.EIO)
        store.put(b"b", value)  # which fills the file
        left = [name for name in disk.listdir("/store/journal") if name.endswith(".log")]
        assert len(left) == 2
        disk.heal()
        store.put(b"c", b"later")
        pool.go_on()
        forget(store)
    with one_thread("again"):
        store = opened(disk.after_kill(), clock_ms=clock_ms)
        assert [store.get(key) for key in (b"a", b"b", b"c")] == [value, value, b"later"]
        assert store.verify().ok
        forget(store)


def test_behind_a_write_that_could_not_be_taken_back_no_journal_file_is_begun() -> None:
    """Whole records may stand there of which nobody could find out: their numbers would be given
    again."""
    disk = SimDisk()
    with one_thread("not taken back"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"1")
        disk.fail("pwrite", 1, errno.ENOSPC)
        disk.fail("pread", 1, errno.EIO)
        with pytest.raises(octavo.StorageFailed):
            store.put(b"b", b"2")
        for _ in range(2):
            with suppress(octavo.StorageFailed):
                store.backup("/backup")
            with pytest.raises(octavo.StorageFailed, match="close the store"):
                store.put(b"b", b"2")
        forget(store)
        store = opened(disk.after_kill(), clock_ms=clock_ms)
        assert dict(store.items()) == {b"a": b"1"}
        store.close()


def test_files_that_the_manifest_names_stay_though_it_could_not_be_written_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimDisk()
    with one_thread("named") as pool:
        store = begun(disk, pool)
        penciller = store._running.penciller.actor

        def failed(_: object) -> None:
            raise octavo.StorageFailed("the snapshot cannot be written")

        with monkeypatch.context() as patch:
            patch.setattr(penciller.change_log, "snapshot_if_due", failed)
            save(store, pool)
        assert penciller.failed
        for entry in penciller.manifest.entries:
            assert disk.exists(entry.file.path)
            assert not entry.file.is_stopped
        assert contents(store) == dict.fromkeys(KEYS, b"3")
        store.close()
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert contents(store) == dict.fromkeys(KEYS, b"3")
        forget(store)
