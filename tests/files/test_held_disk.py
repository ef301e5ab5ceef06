"""Directories that this process alone sees, of files that it holds open."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import threading
from pathlib import Path

import pytest
from descriptors import descriptors

from octavo.files.door import file_lock
from octavo.files.door.disk import FileLock, RealDisk
from octavo.files.door.held_disk import HeldDisk
from octavo.files.errors import StoreLocked


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "söurce"
    path.write_bytes(b"0123456789")
    return str(path)


def test_what_was_linked_is_read_after_it_was_unlinked(source: str, tmp_path: Path) -> None:
    disk, made = HeldDisk(), str(tmp_path / "made")
    disk.mkdir(made)
    disk.link(source, f"{made}/a")
    os.unlink(source)
    assert bytes(disk.map(f"{made}/a")) == b"0123456789"
    assert bytes(disk.map_growing(f"{made}/a")) == b"0123456789"
    assert disk.pread(f"{made}/a", 3, 8) == b"89"
    assert disk.read(f"{made}/a", 10) == b"0123456789"
    assert disk.opened_to_read(f"{made}/a")(2, 1) == b"12"
    assert disk.size(f"{made}/a") == 10
    disk.sync_file(f"{made}/a")
    assert os.listdir(tmp_path) == []


def test_names_are_given_and_taken_as_on_any_disk(source: str, tmp_path: Path) -> None:
    disk, made = HeldDisk(), str(tmp_path / "made")
    disk.mkdir(made)
    disk.link(source, f"{made}/a")
    with pytest.raises(FileExistsError):
        disk.link(source, f"{made}/a")
    with pytest.raises(FileExistsError):
        disk.create(f"{made}/a")
    disk.rename(f"{made}/a", f"{made}/b")
    disk.write_atomically(f"{made}/c", b"new")
    disk.write_atomically(f"{made}/c", b"newer")
    assert disk.listdir(made) == ["b", "c"]
    assert disk.read(f"{made}/c", 9) == b"newer"
    assert disk.exists(made)
    assert disk.exists(f"{made}/b")
    assert not disk.exists(f"{made}/a")
    for missing in (
        lambda: disk.map(f"{made}/a"),
        lambda: disk.size(f"{made}/a"),
        lambda: disk.unlink(f"{made}/a"),
        lambda: disk.rename(f"{made}/a", f"{made}/d"),
        lambda: disk.opened_to_read(f"{made}/a"),
    ):
        with pytest.raises(FileNotFoundError) as error:
            missing()
        assert error.value.filename == f"{made}/a"
    disk.unlink(f"{made}/b")
    disk.unlink(f"{made}/c")
    disk.rmdir(made)
    assert not disk.exists(made)


def test_a_copy_of_a_file_moves_no_position_that_another_thread_reads_at(
    source: str, tmp_path: Path
) -> None:
    disk, made = HeldDisk(), str(tmp_path / "made")
    disk.mkdir(made)
    disk.link(source, f"{made}/a")
    held = disk._made[made]["a"]
    os.lseek(held, 3, os.SEEK_SET)
    assert bytes(disk.map_growing(f"{made}/a", 1)) == b"\x00123456789"
    assert os.lseek(held, 0, os.SEEK_CUR) == 3


def test_descriptors_go_with_the_names_and_with_the_disk(source: str, tmp_path: Path) -> None:
    disk, made = HeldDisk(), str(tmp_path / "made")
    disk.mkdir(made)
    disk.link(source, f"{made}/a")
    disk.link(source, f"{made}/b")
    disk.write_atomically(f"{made}/c", b"new")
    assert len(descriptors(source)) == 2
    disk.unlink(f"{made}/a")
    assert len(descriptors(source)) == 1
    assert disk.read(f"{made}/c", 9) == b"new"
    del disk
    assert not descriptors(source)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")
def test_what_is_written_is_in_memory_where_no_file_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refused)
    disk, made = HeldDisk(), str(tmp_path / "made")
    disk.mkdir(made)
    disk.write_atomically(f"{made}/a", b"new")
    assert disk.read(f"{made}/a", 3) == b"new"


def test_what_is_in_no_directory_of_its_own_is_the_file_systems(
    source: str, tmp_path: Path
) -> None:
    disk = HeldDisk()
    disk.create(f"{tmp_path}/x").close()
    disk.rename(f"{tmp_path}/x", f"{tmp_path}/y")
    assert disk.listdir(str(tmp_path)) == sorted(os.listdir(tmp_path)) == ["söurce", "y"]
    disk.unlink(f"{tmp_path}/y")
    assert disk.read(source, 10) == b"0123456789"
    with pytest.raises(OSError, match="ross-device"):
        disk.link(source, f"{tmp_path}/z")


def test_a_file_system_that_never_writes_needs_no_fsync(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    for name in ("sync_file", "sync_dir"):
        monkeypatch.setattr(RealDisk, name, refused)
    disk = HeldDisk()
    disk.sync_file(source)
    disk.sync_dir(str(tmp_path))


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_sync_that_failed_is_told(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def failed(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("sync_file", "sync_dir"):
        monkeypatch.setattr(RealDisk, name, failed)
    disk = HeldDisk()
    for call in (lambda: disk.sync_file(source), lambda: disk.sync_dir(str(tmp_path))):
        with pytest.raises(OSError, match=os.strerror(number)):
            call()


@pytest.fixture
def only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a lock whose file can be opened to read only, as long as ``file_lock`` tries."""
    path = tmp_path / "LOCK"
    path.touch()
    plain = file_lock.open_regular

    def opened(path: str, flags: int) -> int:
        if flags & os.O_RDWR and threading.current_thread().name != "owner":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return plain(path, flags)

    monkeypatch.setattr(file_lock, "open_regular", opened)
    return str(path)


def as_owner(path: str) -> FileLock | StoreLocked:
    found: list[FileLock | StoreLocked] = []

    def run() -> None:
        try:
            found.append(RealDisk().lock(path))
        except StoreLocked as locked:
            found.append(locked)

    owner = threading.Thread(target=run, name="owner")
    owner.start()
    owner.join()
    return found[0]


def test_who_only_reads_locks_an_owner_out_and_is_locked_out_by_one(only_read: str) -> None:
    lock = RealDisk().lock_to_read(only_read)
    assert isinstance(as_owner(only_read), StoreLocked)
    lock.release()
    lock = as_owner(only_read)  # type: ignore[assignment]
    with pytest.raises(StoreLocked):
        RealDisk().lock_to_read(only_read)
    lock.release()


def test_where_no_lock_can_be_made_the_directory_is_locked_for_those_who_only_read(
    only_read: str,
) -> None:
    os.unlink(only_read)
    lock, other = RealDisk().lock_to_read(only_read), RealDisk().lock_to_read(only_read)
    directory = os.open(os.path.dirname(only_read), os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.release()
    other.release()
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(StoreLocked, match="is locked by another opener"):
        RealDisk().lock_to_read(only_read)
    os.close(directory)
