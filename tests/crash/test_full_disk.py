"""Full disks, for real: clear answers, reads go on, nothing acknowledged is lost, and the ways out
(opening, deletes, compaction) go by the low-space reserve.

Long form: scripts/campaign full-disk.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from full_disk import Filling, SmallDisk
from loop_disk import NotHere
from said_loudly import or_say_so
from whole_store import flush, opened

import octavo
from octavo.actors.compacting import scheduled
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.turns.runtime import TurnActor
from octavo.actors.writing import reserve
from octavo.files.door.disk import AppendFile, RealDisk

SEED = os.environ.get("OCTAVO_SEED", "20261121")
LONGEST = 60.0
Mode = Literal["standard", "head_only"]
SMALL = {"push_rows": 64, "roll_count": 256, "worker": False, "compact_every_seconds": None}


@pytest.fixture(autouse=True)
def small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 128 << 10)
    monkeypatch.setattr(reserve, "SHARE", 4)


@pytest.fixture
def disk() -> Iterator[SmallDisk | None]:
    made = or_say_so("full disks (tmpfs)", lambda: SmallDisk(2048), NotHere)
    yield made
    if made is not None:
        made.close()


@pytest.mark.parametrize("kib", range(64, 64 + 28 * 64, 28))
def test_a_full_disk_loses_nothing(disk: SmallDisk | None, kib: int) -> None:
    print(f"OCTAVO_SEED={SEED} (a longer run: scripts/campaign full-disk)")
    if disk is not None:
        disk.resize(kib)
        Filling(disk, f"{SEED} {kib}", maps=kib % 8 == 0).run()


def with_its_reserve(store: octavo.Store, bucket: octavo.HeadBucket | None = None) -> octavo.Store:
    """It comes when memory is saved, which may be behind the puts that fill a small disk."""
    where = store if bucket is None else bucket
    where.put(b"first", b"")
    flush(store)
    where.delete(b"first")
    assert Path(store.path, reserve.RESERVE).exists()
    return store


def filled(store: octavo.Store | octavo.HeadBucket) -> int:
    """Puts until there is no room; how many."""
    number = 0
    try:
        while True:
            store.put(b"%03d" % (number % 300), os.urandom(700))
            number += 1
    except octavo.StorageFull:
        return number


def test_a_full_disk_can_be_opened_and_emptied_by_its_reserve(disk: SmallDisk | None) -> None:
    if disk is None:
        return
    path = disk.path / "s"
    with octavo.open(path, **SMALL) as store:
        assert filled(with_its_reserve(store)) > 600
        assert (path / reserve.RESERVE).exists()
        assert len(list(store.items())) == 300
    with octavo.open(path, **SMALL) as store:  # this one takes the reserve
        assert len(list(store.items())) == 300
        for number in range(300):
            store.delete(b"%03d" % number)
        store.compact()
        store.compact()
        assert filled(store) > 200
    disk.resize(16 << 10)
    with octavo.open(path, **SMALL) as store:
        store.put_many((b"%03d" % n, b"again") for n in range(300))
        assert set(store.values()) == {b"again"}
        assert store.verify().ok
        store.compact()
        flush(store)
        assert (path / reserve.RESERVE).exists()


def test_a_delete_on_a_full_disk_goes_by_the_reserve(disk: SmallDisk | None) -> None:
    if disk is None:
        return
    with octavo.open(disk.path / "s", **SMALL) as store:
        filled(with_its_reserve(store))
        for number in range(300):
            store.delete(b"%03d" % number)
        assert len(store) == 0


def test_deletes_of_one_call_on_a_full_disk_go_by_the_reserve(disk: SmallDisk | None) -> None:
    if disk is None:
        return
    with octavo.open(disk.path / "s", **SMALL) as store:
        filled(with_its_reserve(store))
        store.delete_many(store.keys())
        assert len(store) == 0


def test_deletes_of_a_head_only_store_on_a_full_disk_go_by_the_reserve(
    disk: SmallDisk | None,
) -> None:
    if disk is None:
        return
    with octavo.open(disk.path / "s", mode="head_only", **SMALL) as store:
        bucket = store.head_bucket("b")
        with_its_reserve(store, bucket)
        filled(bucket)
        for number in range(300):
            bucket.delete(b"%03d" % number)
        assert len(bucket) == 0


@pytest.mark.parametrize("mode", ["standard", "head_only"])
def test_a_batch_of_deletes_on_a_full_disk_goes_by_the_reserve(
    disk: SmallDisk | None, mode: Mode
) -> None:
    if disk is None:
        return
    with octavo.open(disk.path / "s", mode=mode, **SMALL) as store:
        where = store.head_bucket("b") if mode == "head_only" else store
        with_its_reserve(store, where if isinstance(where, octavo.HeadBucket) else None)
        begin: Any = store.head_batch if mode == "head_only" else store.batch
        filled(where)
        disk.fill()
        for low in range(0, 300, 50):
            with begin() as batch:
                for number in range(low, low + 50):
                    batch.delete(where.name, b"%03d" % number)
        assert len(where) == 0
        more = begin()
        more.delete(where.name, b"k")
        for number in range(3):  # more than the whole disk, for a trim gives some of it back
            more.put(where.name, b"%d" % number, os.urandom(1 << 20))
        with pytest.raises(octavo.StorageFull):
            more.commit()
        assert Path(store.path, reserve.RESERVE).exists()


@pytest.mark.parametrize("way", ["acknowledge", "drop"])
def test_on_a_full_disk_a_consumer_lets_go_of_what_it_holds_back(
    disk: SmallDisk | None, way: str
) -> None:
    if disk is None:
        return
    with octavo.open(disk.path / "s", **SMALL) as store:
        consumer = store.consumer("mail")
        filled(with_its_reserve(store))
        disk.fill()
        if way == "drop":
            consumer.drop()
        else:
            consumer.acknowledge(store.last_sqn)
        disk.resize(16 << 10)  # merges may take for a while what the reserve gives
        assert store.compact().records_dropped > 100
        assert store.verify().ok


def test_a_trim_on_a_full_disk_gives_back_what_the_ledger_has(disk: SmallDisk | None) -> None:
    if disk is None:
        return
    disk.resize(64 << 10)
    with octavo.open(disk.path / "s", mode="head_only", **SMALL) as store:
        bucket, consumer = store.head_bucket("b"), store.consumer("mail")
        with_its_reserve(store, bucket)
        for number in range(1500):
            bucket.put(b"%03d" % (number % 300), os.urandom(700))
        assert store.trim() == 0  # all is saved: none goes unasked behind this
        bucket.put(b"000", b"in memory")
        consumer.drop()
        Path(store.path, reserve.RESERVE).unlink()
        disk.fill()  # no room to save that
        want = [(row.key, row.value) for row in bucket.rows()]
        assert store.trim() > 1 << 20
        assert [(row.key, row.value) for row in bucket.rows()] == want
        assert store.verify().ok
        assert filled(bucket) > 100


@pytest.mark.parametrize("clerk", ["clerk", "inker_clerk"])
@pytest.mark.parametrize("mode", ["standard", "head_only"])
def test_a_delete_waits_for_work_whose_half_made_files_have_taken_the_room(
    disk: SmallDisk | None, mode: Mode, clerk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk is None:
        return
    began, refused = threading.Event(), threading.Event()
    half_made = disk.path / "half-made"

    def work(_: TurnActor) -> None:
        with suppress(OSError), half_made.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        began.set()
        heard.append(refused.wait(LONGEST))
        half_made.unlink()

    heard: list[bool] = []
    plain = reserve.given_up

    def told(*where: Any) -> bool:
        refused.set()
        return plain(*where)

    monkeypatch.setattr(reserve, "given_up", told)
    with octavo.open(disk.path / "s", mode=mode, **SMALL) as store:
        where = store.head_bucket("b") if mode == "head_only" else store
        Path(store.path, reserve.RESERVE).unlink(missing_ok=True)
        getattr(store._running, clerk).send(work)
        assert began.wait(LONGEST)
        try:
            assert where.delete(b"k" * 60_000) == store.last_sqn
        finally:
            refused.set()
        assert heard == [True]
        assert store.verify().ok


def test_what_saves_memory_cannot_take_the_whole_reserve_from_the_deletes_to_come(
    disk: SmallDisk | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk is None:
        return
    plain, taken = reserve.given_up, 0

    def taken_at_once(*where: Any) -> bool:
        nonlocal taken
        told = plain(*where)
        while RealDisk().free_bytes(str(disk.path)) >= 48 << 10:
            RealDisk().create_zeros(str(disk.path / f"saved-{taken}"), 48 << 10)
            taken += 1
        return told

    nothing_by_itself = SMALL | {"push_rows": 100_000, "roll_count": 100_000}
    with octavo.open(disk.path / "s", **nothing_by_itself) as store:
        filled(with_its_reserve(store))
        monkeypatch.setattr(reserve, "given_up", taken_at_once)
        for number in range(150):
            store.delete(b"%0200d" % number)


def half_and_gone(disk: SmallDisk) -> octavo.Store:
    """A store on a full disk. Half of its older files lives, and little of the others."""
    quiet = SMALL | {"push_rows": 100_000, "roll_count": 100_000, "roll_size_bytes": 1 << 20}
    disk.resize(64 << 10)
    store = octavo.open(disk.path / "s", **quiet)
    for name in (b"half", b"gone", b"third"):
        store.put_many((b"%s %05d" % (name, number), os.urandom(900)) for number in range(3000))
    store.delete_many(b"half %05d" % number for number in range(0, 3000, 2))
    store.delete_many(b"gone %05d" % number for number in range(3000))
    store.delete_many(b"third %05d" % number for number in range(3000) if number % 3)
    flush(store)
    assert Path(store.path, reserve.RESERVE).exists()  # no room for half of a file
    disk.fill()
    return store


def test_what_has_no_room_to_be_rewritten_keeps_nothing_else_from_being_given_back(
    disk: SmallDisk | None,
) -> None:
    if disk is None:
        return
    with half_and_gone(disk) as store:
        want = dict(store.items())
        gc.disable()  # nor does what jobs that failed had mapped, until a collector comes by
        try:
            assert store.compact().records_dropped > 3000
        finally:
            gc.enable()
        assert dict(store.items()) == want
        assert store.verify().ok


def test_what_is_compacted_unasked_is_the_emptiest_file_where_there_is_no_room_for_more(
    disk: SmallDisk | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk is None:
        return
    with half_and_gone(disk) as store:
        want = dict(store.items())
        clerk = store._running.inker_clerk
        scores = clerk.call(InkerClerk.survey)
        Path(store.path, reserve.RESERVE).unlink()
        monkeypatch.setattr(scheduled, "_worthy_run", lambda clerk: list(clerk.eligible()))
        done = clerk.call(scheduled._best)
        assert done is not None
        (name,) = done.rewritten
        assert scores[name].garbage == max(score.garbage for score in scores.values())
        assert dict(store.items()) == want


def test_the_reserve_goes_with_its_store(disk: SmallDisk | None) -> None:
    if disk is None:
        return
    with octavo.open(disk.path / "s", **SMALL) as store:
        filled(with_its_reserve(store))
    octavo.destroy(disk.path / "s")
    assert not (disk.path / "s").exists()


class Emptied(RealDisk):
    """A file of ``filler`` goes when a put finds no room, as the file of a merge may."""

    def __init__(self, filler: Path) -> None:
        self.filler = filler

    def create(self, path: str) -> AppendFile:
        file = super().create(path)
        pwrite = file.pwrite

        def some(data: bytes, at: int) -> int:
            try:
                return pwrite(data, at)
            except OSError:
                if any(data):
                    self.filler.unlink(missing_ok=True)
                raise

        file.pwrite = some
        return file


def test_room_that_comes_back_as_a_put_fails_leaves_no_file_without_its_pages(
    disk: SmallDisk | None,
) -> None:
    """A file without them killed who read a map of it while the disk was full: by SIGBUS."""
    if disk is None:
        return
    filler = disk.path / "filler"
    with opened(disk.path / "s", Emptied(filler), sync="always") as store:
        store.put(b"first", b"value")
        with suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with suppress(octavo.StorageFull):  # behind the zeros that found no room
            for number in range(200):
                store.put(b"%d" % number, b"value")
        assert not filler.exists()
        found = next(iter(disk.path.glob("s/journal/*.log"))).stat()
        assert 512 * found.st_blocks >= found.st_size
