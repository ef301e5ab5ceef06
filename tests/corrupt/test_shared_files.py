"""Journal files that a backup, or a copy made of links, has too stay as they are there, whatever
becomes of the store's own."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from look import clock_ms
from one_thread import forget, one_thread
from one_thread import opened as opened_on
from simdisk import MODES, SimCrash, SimDisk
from whole_store import SEED, opened, settle

from octavo.actors.opening import found_files
from octavo.files.door.disk import Disk
from octavo.files.errors import StorageFull, StoreLocked


def no_room(disk: Disk, path: str) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", path)


@pytest.mark.parametrize("ledger", [True, False], ids=["", "its ledger lost"])
def test_a_damaged_file_that_the_manifest_lacks_is_sealed_anew_apart_from_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: bool
) -> None:
    manifest, earlier = tmp_path / "s" / "journal" / "manifest", tmp_path / "earlier"
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        shutil.copytree(manifest, earlier)  # from before anything was sealed
        for n in range(700):
            store.put(b"%03d" % n, b"v" * 50)
        settle(store)
        store.backup(tmp_path / "b")
    shutil.rmtree(manifest)
    shutil.copytree(earlier, manifest)
    own = min((tmp_path / "s" / "journal").glob("*.cdb"))
    linked = tmp_path / "b" / "journal" / own.name
    assert os.path.samefile(own, linked)
    content = bytearray(own.read_bytes())
    content[-1] ^= 1
    with own.open("r+b") as file:
        file.write(content)
    if not ledger:
        shutil.rmtree(tmp_path / "s" / "ledger")
    with monkeypatch.context() as full:
        full.setattr(found_files, "set_apart", no_room)
        with pytest.raises(StorageFull):
            opened(tmp_path / "s", compact_every_seconds=None)
    assert linked.read_bytes() == content
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        assert any("read record by record" in note for note in store.stats()["notes"])
        assert len(store) == 700
        settle(store)
        assert len(store) == 700
        assert store.verify().ok
    assert linked.read_bytes() == content
    with opened(tmp_path / "s") as again:
        assert again.stats()["notes"] == []


def linked_copy(store: Path, copy: Path) -> None:
    """As ``cp -al``, or ``rsync --link-dest`` of two copies of a store."""
    shutil.copytree(store, copy, copy_function=os.link)


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_made_of_links_has_nothing_that_is_written_to_the_store_later(
    tmp_path: Path, killed: bool
) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"both", b"v", sync=True)
        if killed:
            shutil.copytree(tmp_path / "s", tmp_path / "k")
    one = tmp_path / ("k" if killed else "s")
    other = tmp_path / "c"
    linked_copy(one, other)
    before = {file.name: file.read_bytes() for file in (other / "journal").glob("*.log")}
    assert before
    with opened(one) as store:
        store.put(b"one", b"v")
        settle(store)
    assert {file.name: file.read_bytes() for file in (other / "journal").glob("*.log")} == before
    with opened(other) as store:
        assert dict(store.items()) == {b"both": b"v"}
        store.put(b"other", b"v")
    with opened(one) as store:
        assert dict(store.items()) == {b"both": b"v", b"one": b"v"}
        assert store.verify().ok
        assert store.stats()["notes"] == []


def test_where_there_is_no_room_for_that_the_store_opens_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"both", b"v")
    linked_copy(tmp_path / "s", tmp_path / "c")
    monkeypatch.setattr(found_files, "set_apart", no_room)
    with opened(tmp_path / "s") as store:
        store.put(b"one", b"v")
        assert store.verify().ok
    with opened(tmp_path / "c") as copy:
        assert dict(copy.items()) == {b"both": b"v"}


def test_a_copy_made_of_links_may_be_open_beside_the_store(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"both", b"v")
    linked_copy(tmp_path / "s", tmp_path / "c")
    with opened(tmp_path / "s") as store, opened(tmp_path / "c") as copy:
        for path in ("s", "c"):
            with pytest.raises(StoreLocked):
                opened(tmp_path / path)
        store.put(b"one", b"v")
        copy.put(b"other", b"v")
        assert dict(store.items()) == {b"both": b"v", b"one": b"v"}
        assert dict(copy.items()) == {b"both": b"v", b"other": b"v"}


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_as_a_shared_journal_file_is_set_apart_loses_nothing(mode: str) -> None:
    print(f"OCTAVO_SEED={SEED}")
    whole = SimDisk()
    with one_thread("setup"):
        store = opened_on(whole, clock_ms=clock_ms)
        for number in range(20):
            store.put(b"%02d" % number, b"v", sync=True)
        store.close()
    (name,) = (name for name in whole.listdir("/store/journal") if name.endswith(".log"))
    whole.mkdir("/copy")
    whole.link(f"/store/journal/{name}", "/copy/log")
    whole.sync_dir("/copy")
    shared = whole.files()["/copy/log"]
    for point in range(1, 1000):
        disk = whole.after_crash("all")
        told, begun = 20, []
        with one_thread("cut"):
            disk.crash_at(disk.ops + point)
            with suppress(SimCrash):
                begun.append(opened_on(disk, clock_ms=clock_ms))
                while told < 24:
                    begun[0].put(b"%02d" % told, b"v", sync=True)
                    told += 1
                begun[0].close()
            for store in begun:
                forget(store)
        disk, cut = disk.after_crash(mode, SEED + point), disk.crashed
        with one_thread("look"):
            store = opened_on(disk, clock_ms=clock_ms)
            found = list(store.keys())
            assert found == [b"%02d" % number for number in range(len(found))], point
            assert told <= len(found) <= told + 1, point
            assert store.verify().ok, point
            store.close()
        assert disk.files()["/copy/log"] == shared, point
        if not cut:
            assert told == 24
            return
    raise AssertionError("more operations than there can be")
