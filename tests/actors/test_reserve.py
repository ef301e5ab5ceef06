"""The low-space reserve is there in full, or is made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import octavo
from octavo.actors.writing import reserve
from octavo.files.door.disk import RealDisk
from octavo.files.errors import StorageFull, storage_error


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 4096)


@pytest.mark.parametrize("there", [None, 0, 100])
def test_one_whose_making_was_cut_short_is_made(there: int | None, tmp_path: Path) -> None:
    file = tmp_path / reserve.RESERVE
    if there is not None:
        file.write_bytes(bytes(there))
    reserve.put_by(RealDisk(), str(tmp_path))
    assert file.stat().st_size == 4096


def test_one_that_is_there_stays(tmp_path: Path) -> None:
    reserve.put_by(RealDisk(), str(tmp_path))
    made = (tmp_path / reserve.RESERVE).stat()
    reserve.put_by(RealDisk(), str(tmp_path))
    assert (tmp_path / reserve.RESERVE).stat().st_ino == made.st_ino


def test_one_that_a_copy_made_a_hole_of_takes_its_room_again(tmp_path: Path) -> None:
    file = tmp_path / reserve.RESERVE
    file.touch()
    os.truncate(file, 4096)
    reserve.put_by(RealDisk(), str(tmp_path))
    assert file.stat().st_blocks * 512 >= 4096


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
def test_it_is_given_up_where_the_disk_is_full_and_not_for_want_of_descriptors_or_memory(
    tmp_path: Path, reason: int
) -> None:
    file = tmp_path / reserve.RESERVE
    reserve.put_by(RealDisk(), str(tmp_path))
    calls = []

    def call() -> None:
        calls.append(file.exists())
        error = OSError(reason, "told by the system")
        raise storage_error(error, "a write") from error

    with pytest.raises(StorageFull):
        reserve.with_reserve(RealDisk(), str(tmp_path), call, reserve.OPENING)
    assert calls == ([True, False] if reason == errno.ENOSPC else [True])
    assert file.exists() is (reason != errno.ENOSPC)


def test_a_record_is_given_a_part_of_it_at_a_time_until_there_is_room(tmp_path: Path) -> None:
    file = tmp_path / reserve.RESERVE
    reserve.put_by(RealDisk(), str(tmp_path))
    left = []

    def call() -> None:
        left.append(file.stat().st_size if file.exists() else 0)
        if left[-1] > 1024:
            raise OSError(errno.ENOSPC, "told by the system")

    share = reserve.Share(2, 0)
    reserve.with_reserve(RealDisk(), str(tmp_path), call, share)
    assert left == [4096, 3072, 2048, 1024]
    reserve.with_reserve(RealDisk(), str(tmp_path), call, share)
    assert left[4:] == [1024]


def test_records_leave_room_for_a_compaction_and_that_for_an_opening(tmp_path: Path) -> None:
    file = tmp_path / reserve.RESERVE
    reserve.put_by(RealDisk(), str(tmp_path))
    for share, leaves in ((reserve.RECORD, 2048), (reserve.COMPACTION, 512)):
        while reserve.given_up(RealDisk(), str(tmp_path), share):
            assert file.stat().st_size >= leaves
        assert file.stat().st_size == leaves
    assert not reserve.given_up(RealDisk(), str(tmp_path), reserve.RECORD)
    assert reserve.given_up(RealDisk(), str(tmp_path), reserve.OPENING)
    assert not file.exists()


def test_what_is_left_of_it_stays_while_there_is_not_plenty_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / reserve.RESERVE
    file.write_bytes(bytes(1000))
    monkeypatch.setattr(reserve, "SHARE", 1 << 62)
    reserve.put_by(RealDisk(), str(tmp_path))
    assert file.stat().st_size == 1000


@pytest.mark.parametrize("before", [0, 1000])
def test_it_takes_no_more_than_it_had_where_a_quota_leaves_no_room_for_all_of_it(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / reserve.RESERVE
    if before:
        file.write_bytes(bytes(before))
    plain = RealDisk.create_zeros

    def within_quota(self: RealDisk, path: str, length: int) -> None:
        plain(self, path, min(length, 2000))
        if length > 2000:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)

    monkeypatch.setattr(RealDisk, "create_zeros", within_quota)
    reserve.put_by(RealDisk(), str(tmp_path))
    assert (file.stat().st_size if file.exists() else 0) == before


def test_a_store_that_was_closed_while_work_was_waited_for_says_so(tmp_path: Path) -> None:
    store = octavo.open(tmp_path / "s")

    def delete() -> int:
        if store.closed:
            return store.delete(b"k")
        store.close()  # as another thread may
        raise StorageFull("no room")

    with pytest.raises(octavo.Closed):
        store._running.with_reserve(delete, reserve.RECORD)


def test_what_another_thread_gives_up_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve.put_by(RealDisk(), str(tmp_path))
    file = tmp_path / reserve.RESERVE
    size = RealDisk.size

    def and_then_given_up(self: RealDisk, path: str) -> int:
        found = size(self, path)
        os.truncate(file, 100)
        return found

    monkeypatch.setattr(RealDisk, "size", and_then_given_up)
    assert reserve.given_up(RealDisk(), str(tmp_path), reserve.RECORD)
    assert file.stat().st_size == 100
    assert not reserve.given_up(RealDisk(), str(tmp_path), reserve.RECORD)


def test_without_a_descriptor_for_a_part_of_it_all_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve.put_by(RealDisk(), str(tmp_path))

    def reopen(self: RealDisk, path: str, length: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(RealDisk, "reopen", reopen)
    assert reserve.given_up(RealDisk(), str(tmp_path), reserve.RECORD)
    assert not (tmp_path / reserve.RESERVE).exists()
