"""Hot backup: exactly the state at its sqn, whatever goes on, and never half of one."""

from __future__ import annotations

import errno
import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from beside import until
from simdisk import SimDisk
from simfaults import SimCrash

import octavo
from octavo.actors.inker import Inker
from octavo.actors.keeping import backup as backups
from octavo.actors.keeping.linking import Linked, bring
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.files.door.disk import RealDisk
from octavo.files.errors import StoreLocked
from octavo.store import Store

SEED = 20261121
SMALL = {"roll_count": 256, "push_rows": 100}


def state_at(store: octavo.Store, sqn: int) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for change in store.changes(0):
        if change.sqn > sqn:
            break
        if change.value is None:
            found.pop(change.key, None)
        else:
            found[change.key] = change.value
    return found


def write(store: octavo.Store, rng: random.Random, count: int) -> None:
    for n in range(count):
        key = b"%d" % rng.randrange(300)
        if rng.random() < 0.2:
            store.delete(key)
        else:
            store.put(key, b"%d-%d" % (n, rng.randrange(1 << 30)), index={"n": n % 7})


def test_a_backup_is_the_state_at_its_sqn_while_others_write(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    with octavo.open(tmp_path / "s", **SMALL) as store:
        write(store, random.Random(SEED), 500)
        ended = threading.Event()

        def go_on() -> None:
            rng = random.Random(SEED + 1)
            while not ended.is_set():
                write(store, rng, 20)

        writer = threading.Thread(target=go_on)
        writer.start()
        try:
            made = []
            for turn in range(4):
                made.append(store.backup(tmp_path / f"b{turn}"))
                until(lambda: store.last_sqn > made[-1].sqn, "the other thread writes")
        finally:
            ended.set()
            writer.join()
        for turn, done in enumerate(made):
            with octavo.open(tmp_path / f"b{turn}", create=False) as copy:
                assert copy.last_sqn == done.sqn
                assert dict(copy.items()) == state_at(store, done.sqn)
                assert copy.verify().ok
            assert done.bytes_copied == 0
        assert made[0].sqn < made[-1].sqn


def test_again_on_the_same_path_brings_it_up_to_date(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with octavo.open(tmp_path / "s", **SMALL) as store:
        for _ in range(5):
            write(store, rng, 400)
            done = store.backup(tmp_path / "b")
            with octavo.open(tmp_path / "b") as copy:
                assert dict(copy.items()) == dict(store.items())
                copy.put(b"only there", b"and gone with the next one")
        store.compact()
        done = store.backup(tmp_path / "b")
        assert done.removed > 0
        with octavo.open(tmp_path / "b") as copy:
            assert dict(copy.items()) == dict(store.items())
        assert len(list((tmp_path / "b/journal").glob("*.cdb"))) == len(
            list((tmp_path / "s/journal").glob("*.cdb"))
        )


def test_an_up_to_date_backup_gets_nothing_new_but_what_was_written(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", **SMALL) as store:
        write(store, random.Random(SEED), 900)
        assert store.backup(tmp_path / "b", ledger=False).linked == 4
        store.put(b"k", b"v")
        assert store.backup(tmp_path / "b", ledger=False).linked == 1


def test_what_happens_to_the_store_later_does_not_touch_its_backup(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", **SMALL) as store:
        write(store, random.Random(SEED), 900)
        wanted = dict(store.items())
        store.backup(tmp_path / "b")
        for key in wanted:
            store.put(key, b"changed")
        store.compact()
    octavo.destroy(tmp_path / "s")
    with octavo.open(tmp_path / "b") as copy:
        assert dict(copy.items()) == wanted
        assert copy.verify().ok


def test_what_happens_to_a_backup_does_not_touch_its_store(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", **SMALL) as store:
        write(store, random.Random(SEED), 900)
        wanted = dict(store.items())
        store.backup(tmp_path / "b")
        with octavo.open(tmp_path / "b", **SMALL) as copy:
            for key in wanted:
                copy.put(key, b"changed")
            copy.compact()
        assert dict(store.items()) == wanted
        assert store.verify().ok


def test_without_its_ledger_a_backup_makes_it_anew(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", **SMALL) as store:
        write(store, random.Random(SEED), 900)
        store.backup(tmp_path / "b", ledger=False)
        assert not list((tmp_path / "b/ledger").glob("*.sst"))
        with octavo.open(tmp_path / "b") as copy:
            assert dict(copy.items()) == dict(store.items())
            assert list(copy.index("n").range()) == list(store.index("n").range())


def test_with_its_ledger_a_backup_replays_nothing_that_was_merged(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((b"%d" % n, b"v") for n in range(20_000))
        store.compact()
        store.backup(tmp_path / "b")
    with octavo.open(tmp_path / "b") as copy:
        assert copy.stats()["replayed_at_open"] == 0
        assert len(copy) == 20_000


def test_a_head_only_store_is_backed_up_with_its_ledger(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        store.head_bucket("b").put("k", b"v", sub_key="s")
        store.trim()
        store.backup(tmp_path / "b", ledger=False)
    with octavo.open(tmp_path / "b") as copy:
        assert copy.head_bucket("b").get("k", "s") == b"v"


def test_a_place_that_is_none_for_a_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("keep")
    with octavo.open(tmp_path / "t"):
        pass
    with octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"v")
        for where, why in (
            ("s", "inside its store"), ("s/in", "inside its store"), (".", "nor contain it"),
            ("other", "other things in it"), ("t", "another store"),
        ):  # fmt: skip
            with pytest.raises(octavo.Misuse, match=why):
                store.backup(tmp_path / where)
        store.backup(tmp_path / "b")
        with octavo.open(tmp_path / "b"), pytest.raises(StoreLocked):
            store.backup(tmp_path / "b")
        assert (tmp_path / "other" / "mine.txt").exists()


def opened(disk: SimDisk) -> Store:
    return Store(startup.start("/s", Options(worker=False, roll_count=256), disk))


def test_a_missing_file_is_told_and_the_backup_before_stays(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", roll_count=256) as store:
        store.put_many((b"%d" % n, b"v") for n in range(600))
        store.backup(tmp_path / "b")
        before = sorted(path.name for path in (tmp_path / "b" / "journal").iterdir())
    gone = min((tmp_path / "s" / "journal").glob("*.cdb"))
    gone.unlink()
    with octavo.open(tmp_path / "s") as store:
        store.put(b"more", b"v")
        for path in (tmp_path / "b", tmp_path / "another"):
            with pytest.raises(octavo.Corruption, match=f"{gone.name}.*is missing"):
                store.backup(path)
    with octavo.open(tmp_path / "b") as copy:
        assert len(copy) == 600
        assert copy.verify().ok
    assert set(before) <= {path.name for path in (tmp_path / "b" / "journal").iterdir()}


def test_another_file_system_is_refused_or_copied_to() -> None:
    disk = SimDisk()
    store = opened(disk)
    store.put(b"k", b"v")
    disk.fail("link", 1, errno.EXDEV)
    with pytest.raises(octavo.Misuse, match="same file system"):
        store.backup("/b")
    disk.fail("link", 1, errno.EXDEV)
    done = store.backup("/b", copy=True)
    assert done.bytes_copied > 0
    store.close()
    copy = Store(startup.start("/b", Options(worker=False), disk))
    assert copy[b"k"] == b"v"
    copy.close()


@pytest.mark.usefixtures("small_reserve")
@pytest.mark.parametrize("mode", ["nothing", "all", "random_subset", "names_reordered"])
def test_a_crash_leaves_the_backup_before_or_the_one_after(mode: str) -> None:
    print(f"seed {SEED}")
    crashes = 0
    seen = set()
    while True:
        disk = SimDisk()
        store = opened(disk)
        store.put_many((b"%d" % n, b"old") for n in range(300))
        first = store.backup("/b")
        store.put_many((b"%d" % n, b"new") for n in range(300))
        store.compact()  # the second backup takes files away
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            store.backup("/b")
            break
        except (SimCrash, octavo.OctavoError):
            left = disk.after_crash(mode, SEED + crashes)
        copy = Store(startup.start("/b", Options(worker=False), left))
        found = dict(copy.items())
        assert len(found) == 300
        assert set(found.values()) in ({b"old"}, {b"new"})
        if set(found.values()) == {b"old"}:
            assert copy.last_sqn == first.sqn
        assert copy.verify().ok
        seen.add(next(iter(found.values())))
        shutdown.stop(copy._running)
        crashes += 1
    assert crashes > 20
    assert seen == {b"old", b"new"}


@pytest.mark.usefixtures("small_reserve")
def test_a_first_backup_that_crashed_is_not_there() -> None:
    crashes = 0
    while True:
        disk = SimDisk()
        store = opened(disk)
        store.put_many((b"%d" % n, b"v") for n in range(300))
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            store.backup("/b")
            break
        except (SimCrash, octavo.OctavoError):
            left = disk.after_crash("all", SEED)
        if left.exists("/b/OCTAVO"):
            copy = Store(startup.start("/b", Options(worker=False), left))
            assert len(copy) == 300
            shutdown.stop(copy._running)
        else:
            again = opened(left)
            again.backup("/b")
            again.close()
            copy = Store(startup.start("/b", Options(worker=False), left))
            assert len(copy) == 300
            shutdown.stop(copy._running)
        crashes += 3
    assert crashes > 30


def test_compaction_after_the_roll_takes_nothing_from_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a key had at the backup's sqn may be garbage before its file is linked."""
    with octavo.open(tmp_path / "s", **SMALL) as store:
        store.put_many((b"%d" % n, b"then") for n in range(900))
        sealing = backups.seal_waiting

        def meanwhile(inker: Inker) -> None:
            sealing(inker)
            monkeypatch.setattr(backups, "seal_waiting", sealing)
            store.put_many((b"%d" % n, b"later") for n in range(900))
            store.compact()

        monkeypatch.setattr(backups, "seal_waiting", meanwhile)
        store.backup(tmp_path / "b")
        assert store[b"7"] == b"later"
    with octavo.open(tmp_path / "b") as copy:
        assert set(copy.values()) == {b"then"}
        assert copy.verify().ok


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_first_backup_that_finds_no_room_leaves_nothing(nth: int) -> None:
    disk = SimDisk()
    store = opened(disk)
    store.put("a", b"1")
    disk.fail("write", nth, errno.ENOSPC, lasting=True)
    with pytest.raises(octavo.StorageFull):
        store.backup("/b")
    assert disk.listdir("/") == ["s"]
    disk.heal()
    store.backup("/b")
    assert disk.listdir("/") == ["b", "s"]
    store.close()


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_backup_that_finds_no_room_to_copy_a_file_leaves_no_half_of_it(nth: int) -> None:
    disk = SimDisk()
    store = opened(disk)
    store.put("a", b"1")
    store.backup("/b")
    store.put("b", b"2")
    disk.fail("link", 1, errno.EXDEV, lasting=True)
    disk.fail("write", nth, errno.ENOSPC, lasting=True)
    with suppress(octavo.StorageFull):
        store.backup("/b", copy=True)
    disk.heal()
    assert not [name for name in disk.listdir("/b/journal") if name.endswith(".tmp")]
    store.close()


def test_what_a_repair_wrote_anew_comes_into_a_backup_that_has_the_damaged_file(
    tmp_path: Path,
) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        for number in range(3000):
            store.put(b"%04d" % number, b"value")
        store.backup(tmp_path / "b")
    (file,) = (tmp_path / "s" / "journal").glob("*.cdb")
    with file.open("r+b") as damaged:  # which the backup has, too
        damaged.seek(file.stat().st_size - 20_000)
        byte = damaged.read(1)[0]
        damaged.seek(-1, os.SEEK_CUR)
        damaged.write(bytes([byte ^ 1]))
    assert octavo.repair(tmp_path / "s").files.rewritten == [file.name]
    with octavo.open(tmp_path / "b", read_only=True) as backup:
        assert not backup.verify().ok
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.backup(tmp_path / "b")
    with octavo.open(tmp_path / "b", read_only=True) as backup:
        assert backup.verify().ok
        assert len(backup) == 3000


@pytest.mark.parametrize("at", [0, 19_999, None], ids=["begins so", "ends so", "longer"])
def test_a_file_that_is_not_the_same_is_brought_again_though_that_was_cut_short_before(
    tmp_path: Path, at: int | None
) -> None:
    """Such as one that was written anew by a repair: under the same name, and maybe as long."""
    whole = bytes(20_000)
    other = bytearray(whole) + b"x" * (at is None)
    other[at or 0] ^= at is not None
    for folder, content in (("store", whole), ("backup", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "name").write_bytes(content)
    (tmp_path / "backup" / "name.tmp").write_bytes(b"left")
    done = Linked()
    for _ in range(2):
        source, target = str(tmp_path / "store"), str(tmp_path / "backup")
        bring(RealDisk(), source, target, ["name"], done, copy=False)
    assert os.path.samefile(tmp_path / "store" / "name", tmp_path / "backup" / "name")
    assert os.listdir(tmp_path / "backup") == ["name"]
    assert done.linked == 1
