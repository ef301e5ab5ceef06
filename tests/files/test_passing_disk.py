"""What a reader makes beside a store is not synced; all that it counts on is."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
from whole_store import active_file, flush, opened

import octavo
from octavo.files.door import open_file
from octavo.files.door.disk import RealDisk
from octavo.files.door.passing_disk import PassingDisk, passing
from octavo.manifest import published
from octavo.manifest.published import GRACE_MS


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of what was synced."""
    found: list[int] = []

    def noted(plain: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            found.append(os.fstat(fd).st_ino)
            plain(fd)

        return sync

    told = {name: noted(getattr(os, name)) for name in ("fsync", "fdatasync") if hasattr(os, name)}
    monkeypatch.setattr(open_file, "os", SimpleNamespace(**{**vars(os), **told}))
    return found


def inode(path: Path | str) -> int:
    return os.stat(path).st_ino


def test_a_look_syncs_the_end_of_the_journal_and_nothing_that_it_makes(
    tmp_path: Path, synced: list[int]
) -> None:
    with opened(tmp_path / "s") as store:
        store.put("a", b"1")
        flush(store)
        for n in range(300):
            store.put(f"k{n}", b"v")
        tail = active_file(store)
        journal, snapshots = Path(store.path, "journal"), Path(store.path, "snapshots")
        with octavo.open(store.path, read_only=True) as reader:
            assert {inode(tail), inode(journal)} <= set(synced)
            store.put("late", b"2")
            synced.clear()
            with reader.newest() as newer:
                assert newer["late"] == b"2"
                assert newer["k299"] == b"v"
                made = [snapshots, Path(newer._found.path), *Path(newer._found.path).iterdir()]
                names = {each.name for each in made if inode(each) in synced}
                assert any(name.startswith("side") for name in map(attrgetter("name"), made))
            assert names == {Path(tail).name}


def test_directories_above_are_durable_and_those_of_others_are_synced(
    tmp_path: Path, synced: list[int]
) -> None:
    disk = passing(RealDisk())
    disk.mkdir(f"{tmp_path}/snapshots/one", str(tmp_path))
    assert inode(tmp_path) in synced
    synced.clear()
    disk.write_atomically(f"{tmp_path}/snapshots/one/made", b"here")
    assert synced == []
    disk.write_atomically(f"{tmp_path}/snapshots/beside", b"there")
    assert inode(tmp_path / "snapshots") in synced
    assert inode(tmp_path / "snapshots" / "beside") in synced


def test_a_directory_that_is_gone_is_made_as_any_other_the_next_time(
    tmp_path: Path, synced: list[int]
) -> None:
    disk = passing(RealDisk())
    disk.mkdir(f"{tmp_path}/one")
    disk.rmdir(f"{tmp_path}/one")
    RealDisk().mkdir(f"{tmp_path}/one")
    synced.clear()
    disk.sync_dir(f"{tmp_path}/one")
    assert synced == [inode(tmp_path / "one")]


def test_nothing_is_made_where_the_store_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        passing(RealDisk()).mkdir_within(f"{tmp_path}/gone", "snapshots/one")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_none_of_the_systems_stays_as_it_is() -> None:
    disk = PassingDisk()
    assert passing(disk) is disk


def everything(found: octavo.PublishedSnapshot) -> list[tuple[bytes, bytes]]:
    with found.open() as reader:
        return list(reader.items())


@pytest.mark.parametrize("left", ["manifest alone", "nothing of the manifest", "a torn side file"])
def test_what_a_power_cut_leaves_of_a_reader_is_told_and_swept(tmp_path: Path, left: str) -> None:
    with opened(tmp_path / "s") as store:
        for n in range(300):
            store.put(f"k{n}", b"v")
        kept = tmp_path / "kept"
        with octavo.open(store.path, read_only=True) as reader:
            pin = Path(reader._found.path)
            shutil.copytree(pin, kept)
        for file in kept.iterdir():
            if left == "manifest alone" and file.name != "manifest":
                file.unlink()
            elif left == "a torn side file" and file.name.startswith("side"):
                file.write_bytes(bytes(file.stat().st_size))
            elif left == "nothing of the manifest" and file.name == "manifest":
                file.write_bytes(b"")
        shutil.copytree(kept, pin)
        listed = store.published()
        assert bool(listed) == (left != "nothing of the manifest")
        for each in listed:
            with pytest.raises(octavo.Corruption):
                everything(each)
        with octavo.open(store.path, read_only=True) as reader:  # which this does not disturb
            assert len(list(reader.keys())) == 300
            at = published.made_at(pin.name)
            assert at is not None
            over = at + 7200_000 + GRACE_MS
            assert pin.name in published.sweep(RealDisk(), store.path, over)
        assert not pin.exists()


def test_a_full_disk_has_the_files_held_open_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(disk: PassingDisk, path: str) -> None:
        raise OSError(errno.ENOSPC, "full", path)

    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
        monkeypatch.setattr(PassingDisk, "create", full)
        with octavo.open(store.path, read_only=True) as reader:
            assert reader["k"] == b"v"
        assert list(Path(store.path, "snapshots").iterdir()) == []
