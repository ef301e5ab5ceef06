"""Stores that this process may only read: read-only mounts, other users' stores, full disks."""

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from descriptors import descriptors
from full_disk import SmallDisk
from loop_disk import LoopDisk, NotHere
from whole_store import flush, opened, rolled, settle
from without_links import refuse_links

import octavo
from octavo.cli.commands import cli
from octavo.files import wall_clock
from octavo.files.door.disk import AppendFile, RealDisk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe") as store:
        store.put_many((f"{n:04}", b"%d" % n * 50) for n in range(2000))
        flush(store)
        store.put_many((f"{n:04}", b"new %d" % n) for n in range(0, 2000, 7))
        yield store


def contents(source: octavo.Store | octavo.Snapshot) -> dict[bytes, bytes]:
    return dict(source.items())


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC])
def test_what_cannot_be_linked_is_held_open(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_links(monkeypatch, number)
    want = contents(store)
    with octavo.open(store.path, read_only=True) as reader:
        assert contents(reader) == want
        assert reader.last_sqn == store.last_sqn
        assert len(list(reader.changes())) == store.last_sqn
        assert reader.stats()["journal"]["records"] == store.last_sqn
    assert not os.path.exists(f"{store.path}/snapshots")


def test_links_that_are_refused_one_by_one_leave_no_directory(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: RealDisk, source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(RealDisk, "link", refused)  # as of files of another user
    with octavo.open(store.path, read_only=True) as reader:
        assert contents(reader) == contents(store)
        assert os.listdir(f"{store.path}/snapshots") == []


def test_files_that_its_owner_removed_are_read_on(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    rolled(store)
    want = contents(store)
    with octavo.open(store.path, read_only=True, max_open_files=8) as reader:
        before = set(os.listdir(f"{store.path}/journal") + os.listdir(f"{store.path}/ledger"))
        store.put_many((f"{n:04}", b"later") for n in range(2000))
        rolled(store)
        flush(store)
        store.compact()
        after = set(os.listdir(f"{store.path}/journal") + os.listdir(f"{store.path}/ledger"))
        assert before - after
        assert contents(reader) == want
        assert contents(store) != want


def test_one_that_is_held_open_has_no_lease(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    with octavo.open(store.path, read_only=True) as reader:
        now_ms = wall_clock.wall_clock_ms() + 10 * 365 * 86_400_000
        monkeypatch.setattr(reader._pinned, "_clock_ms", lambda: now_ms)
        assert reader["0001"] == b"1" * 50
        reader.renew()
        assert reader["0002"] == b"2" * 50


def test_descriptors_of_those_closed_or_dropped_are_let_go_of(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    settle(store)  # whose owner opens and closes files, too
    with octavo.open(store.path, read_only=True) as reader:
        assert reader["0001"] == b"1" * 50
    gc.disable()  # or how many are left would be up to that
    try:
        before, counts = len(descriptors(store.path)), []
        reader = octavo.open(store.path, read_only=True)
        for _ in range(8):
            reader = reader.newest()
            assert reader["0001"] == b"1" * 50
            counts.append(len(descriptors(store.path)))
        reader.close()
        octavo.open(store.path, read_only=True).close()  # those before it, which were dropped
        assert len(descriptors(store.path)) == before
    finally:
        gc.enable()
    assert max(counts[3:]) == counts[3]


def test_a_want_of_descriptors_says_what_to_do_and_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    with opened(tmp_path / "s") as store:
        for n in range(40):
            store.put(f"{n}", b"v")
            rolled(store)
    before, (soft, hard) = descriptors(tmp_path), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 20, hard))
    try:
        with ExitStack() as left, ExitStack() as taken:
            for _ in range(10):
                left.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            with suppress(OSError):
                while True:
                    taken.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            left.close()
            with pytest.raises(octavo.StorageFull, match="raise the limit"):
                octavo.open(store.path, read_only=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors(tmp_path) == before
    with octavo.open(store.path, read_only=True) as reader:
        assert len(reader) == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system forks no processes")
def test_a_child_reads_on_whatever_its_parent_closes(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    reader = octavo.open(store.path, read_only=True)
    want = contents(store)
    goes, go = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.read(goes, 1)
            status = 0 if contents(reader) == want else 2
        finally:
            os._exit(status)
    reader.close()
    os.write(go, b"1")
    _, status = os.waitpid(child, 0)
    for each in (goes, go):
        os.close(each)
    assert os.waitstatus_to_exitcode(status) == 0


def test_commands_read_what_they_may_not_write(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    refuse_links(monkeypatch)

    def refused(_: RealDisk, path: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(RealDisk, "lock", refused)
    found = CliRunner().invoke(cli, ["get", store.path, "0001"])
    assert (found.exit_code, found.stdout_bytes) == (0, b"1" * 50)
    found = CliRunner().invoke(cli, ["put", store.path, "0001", "x"])
    assert found.exit_code == 2
    assert "with a command that only reads, to read and search it" in found.stderr


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    try:
        disk = SmallDisk(32 << 10)
    except NotHere as missing:
        pytest.skip(f"NOT RUN: {missing}")
    yield disk
    disk.close()


def test_a_store_on_a_read_only_mount_is_read(
    store: octavo.Store, small_disk: SmallDisk, tmp_path: Path
) -> None:
    want = contents(store)
    store.close()
    there = small_disk.path / "s"
    shutil.copytree(store.path, there)
    small_disk.only_read()
    with pytest.raises(octavo.Misuse, match="read_only=True"):
        octavo.open(there)
    with octavo.open(there, read_only=True) as reader:
        assert contents(reader) == want
    octavo.restore(there, tmp_path / "copy", copy=True)
    with octavo.open(tmp_path / "copy") as restored:
        assert contents(restored) == want


def test_a_store_on_a_full_disk_is_read_by_others(small_disk: SmallDisk) -> None:
    with opened(small_disk.path / "s") as store:
        store.put_many((f"{n:04}", b"%d" % n * 50) for n in range(2000))
        small_disk.fill()
        with octavo.open(store.path, read_only=True) as reader:
            assert contents(reader) == contents(store)


def test_where_there_is_no_room_for_temporary_files_that_is_told(
    store: octavo.Store, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk.path))
    small_disk.fill()
    with pytest.raises(octavo.StorageFull, match=r"temporary file.*free some space"):
        octavo.open(store.path, read_only=True)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_could_not_be_synced_is_not_believed_where_no_mark_can_be_left(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failures = [OSError(number, os.strerror(number))]
    sync, create = RealDisk.sync_file, RealDisk.create

    def fails_once(disk: RealDisk, path: str) -> None:
        if failures and path.endswith(".log"):
            raise failures.pop()
        sync(disk, path)

    def is_full(disk: RealDisk, path: str) -> AppendFile:
        if path.endswith("/UNSYNCED"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(disk, path)

    want = contents(store)
    store.close()
    with monkeypatch.context() as broken:
        broken.setattr(RealDisk, "sync_file", fails_once)
        broken.setattr(RealDisk, "create", is_full)
        for _ in range(2):  # a second fsync would say that all is well
            with pytest.raises(octavo.StorageFailed, match="fsync failed"):
                octavo.open(store.path, read_only=True)
    assert not failures
    with octavo.open(store.path) as again:
        assert any("written anew" in note for note in again.stats()["notes"])
    with octavo.open(store.path, read_only=True) as reader:
        assert contents(reader) == want


@pytest.fixture
def failing_disk() -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk("ext4")
    except NotHere as missing:
        pytest.skip(f"NOT RUN: {missing}")
    yield disk
    disk.close()


def test_what_a_file_system_that_failed_has_not_written_is_not_read(
    failing_disk: LoopDisk, tmp_path: Path
) -> None:
    store = opened(failing_disk.path / "s")
    try:
        store.put(b"a", b"durable", sync=True)
        store.put(b"a", b"not durable")
        try:
            failing_disk.fail()
        except NotHere as missing:
            pytest.skip(f"NOT RUN: {missing}")
        # And who reads this is not sent to an opening for writing, of which there can be none.
        with pytest.raises(octavo.StorageFailed, match=r"fsync failed.*octavo restore --copy"):
            octavo.open(store.path, read_only=True)
    finally:
        with suppress(octavo.StorageFailed):  # or this would be told in place of what went wrong
            store.close()
    assert octavo.restore(store.path, tmp_path / "elsewhere", copy=True).sqn in (1, 2)
