"""The ceiling of sequence numbers is raised ahead, in no put's time; what waits is the pool."""

from __future__ import annotations

import errno
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from look import clock_ms
from one_thread import forget, one_thread
from one_thread import opened as simulated
from simdisk import SimDisk
from whole_store import no_hang, opened, settle

import octavo
from octavo import read_only
from octavo.actors import inker as inker_module
from octavo.actors import journal_start
from octavo.actors.opening import resumption
from octavo.actors.writing.pace import LOOK_EVERY
from octavo.manifest import journal_manifest
from octavo.manifest.change_log import recover
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.unsynced import UNSYNCED

STEP = 1 << 13
LARGE = {"roll_count": 1 << 19, "roll_size_bytes": 64 << 20, "push_rows": 1 << 17}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_of(STEP, monkeypatch)


def put_up_to(store: octavo.Store, sqn: int) -> None:
    while store.last_sqn < sqn:
        store.put(b"k", b"v")


@pytest.mark.usefixtures("small_steps")
def test_puts_go_on_while_the_journals_manifest_is_being_written(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        inker = store._inker
        ceiling = inker.manifest.ceiling
        inker.enter()  # as whoever enters a sealed file in the manifest, which takes an fsync
        try:
            # Past the moment from which on the ceiling is to be raised, not to the last one.
            putting = threading.Thread(
                target=put_up_to, args=(store, ceiling - STEP // 2 + 2 * LOOK_EVERY)
            )
            putting.start()
            putting.join(100)
            assert not putting.is_alive()
            assert inker.manifest.ceiling == ceiling
        finally:
            inker.leave()
        settle(store)
        assert inker.manifest.ceiling > ceiling + STEP


@pytest.mark.usefixtures("small_steps")
def test_no_put_gets_a_number_that_is_not_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pool never comes to it: so a put does it.
    monkeypatch.setattr(inker_module.Inker, "raise_ceiling", lambda inker: None)
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        inker = store._inker
        first = inker.manifest.ceiling
        for _ in range(2 * first):
            assert store.put(b"k", b"v") < inker.manifest.ceiling
        assert inker.manifest.ceiling > first


@pytest.mark.parametrize("way", ["batch", "put_many", "indexed"])
def test_what_is_written_at_once_gets_no_number_that_is_not_reserved(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, step = SimDisk(), 128
    steps_of(step, monkeypatch)
    # The look behind a write comes too late: a power cut may have come before.
    monkeypatch.setattr(inker_module.Inker, "look", lambda inker: None)
    with one_thread(way):
        store = simulated(disk, clock_ms=clock_ms, **LARGE)
        for _ in range(3):
            if way == "put_many":
                store.put_many((b"%d" % number, b"v") for number in range(5 * step))
            else:
                index = {"f": 1} if way == "indexed" else None
                with store.batch() as batch:
                    for number in range(5 * step):
                        batch.put("b", b"%d" % number, b"v", index=index)
            assert store.last_sqn < reserved(disk)
        last = store.last_sqn
        forget(store)
        with read_only.opened(disk.after_kill(), "/store", {}) as reader:
            assert (reader.last_sqn, reader.verify().problems) == (last, [])


@pytest.mark.parametrize("raised", ["in time", "late", "never"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_where_no_more_can_be_reserved_no_more_are_given(
    code: int, raised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, step = SimDisk(), 1 << 11
    steps_of(step, monkeypatch)
    monkeypatch.setattr(journal_start, "_LOOK_AGAIN", step // 32)
    if raised == "never":
        monkeypatch.setattr(inker_module.Inker, "raise_ceiling", lambda inker: None)
    with one_thread(f"{code} {raised}") as pool:
        store = simulated(disk, clock_ms=clock_ms, **LARGE)
        store.put(b"a", b"1", sync=True)
        ceiling = reserved(disk)
        disk.fail("write", 1, code, lasting=True)  # of the manifest; records are written in place
        why = "no sqn can be reserved" if code == errno.ENOSPC else "reopen"

        def put_all() -> None:
            while store.last_sqn < ceiling:
                store.put(b"k", b"v")
                if raised == "in time" and store.last_sqn % LOOK_EVERY == 0:
                    pool.go_on()

        with pytest.raises(octavo.StorageFailed, match=why):
            put_all()
        assert store.last_sqn < ceiling == reserved(disk)
        # A full disk puts it off for as long as there are some.
        assert code != errno.ENOSPC or store.last_sqn > ceiling - step // 4
        with pytest.raises(octavo.StorageFailed, match=why):
            store.put(b"k", b"w")
        assert store.get(b"k") == b"v"
        # Who reads the store is told of a failed fsync only if there may have been one.
        assert disk.exists(f"/store/journal/{UNSYNCED}") == (code == errno.EIO)
        forget(store)


def test_who_is_killed_where_no_more_can_be_reserved_does_not_seem_to_have_closed_with_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = 1 << 11
    steps_of(step, monkeypatch)
    monkeypatch.setattr(journal_start, "_LOOK_AGAIN", step // 32)

    def filled(most: int) -> tuple[SimDisk, int]:
        """The disk of who put up to there, or to the last one that was taken; and that."""
        disk = SimDisk()
        with one_thread("killed"):
            store = simulated(disk, clock_ms=clock_ms, **LARGE)
            store.put(b"a", b"1", sync=True)
            disk.fail("write", 1, errno.ENOSPC, lasting=True)
            with suppress(octavo.StorageFailed):
                put_up_to(store, most)
            last = store.last_sqn
            forget(store)
        return disk.after_kill(), last

    _, most = filled(10 * step)
    disk, last = filled(most - 1)
    assert last == most - 1
    with read_only.opened(disk, "/store", {}) as reader:
        assert (reader.last_sqn, reader.verify().problems) == (last, [])
    with one_thread("again"), simulated(disk, clock_ms=clock_ms, **LARGE) as store:
        assert store.stats()["notes"] == []


@pytest.mark.parametrize("way", ["put", "put_many", "batch"])
def test_what_is_written_counts_although_the_roll_behind_it_waited_too_long(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(store: octavo.Store, number: int) -> int:
        pairs = [(b"%d.%d" % (number, each), b"v") for each in range(16)]
        if way == "put_many":
            return store.bucket("b").put_many(pairs)
        if way == "batch":
            with store.batch() as batch:
                for key, value in pairs:
                    batch.put("b", key, value)
            return batch.last_sqn
        return [store.bucket("b").put(key, value) for key, value in pairs][-1]

    with no_hang(), opened(tmp_path / "s", **{**LARGE, "roll_count": 256}) as store:
        inker = store._inker
        first, held, over = inker.active, threading.Event(), threading.Event()

        def commit() -> None:  # on a disk that hangs
            inker.enter()
            held.set()
            over.wait()
            inker.leave()

        committing = threading.Thread(target=commit)
        committing.start()
        held.wait()
        monkeypatch.setattr(inker_module.Inker, "DEADLINE_SECONDS", 0.01)
        try:
            assert [write(store, number) for number in range(20)] == list(range(16, 336, 16))
        finally:
            over.set()
            committing.join()
        monkeypatch.undo()
        assert inker.active is first
        assert "goes on for now" in caplog.text
        number = 20
        while inker.active is first:
            write(store, number)
            number += 1
        assert len(store.bucket("b")) == 16 * number


def steps_of(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inker_module, resumption):
        monkeypatch.setattr(module, "CEILING_STEP", step)
    monkeypatch.setattr(journal_manifest, "GIVEN_BACK", step // 8)


def reserved(disk: SimDisk) -> int:
    """The ceiling that is durable."""
    found = recover(disk, "/store/journal/manifest")
    return JournalManifest.replayed(found.snapshot, found.changes).ceiling
