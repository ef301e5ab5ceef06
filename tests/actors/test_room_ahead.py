"""Room on the disk that a journal file is given ahead, once it is going to be long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from whole_store import killed, no_hang, opened, rolled, settle

from octavo.files.door.disk import RealDisk
from octavo.files.door.file_system import finds_room_late

MIB = 1 << 20
LARGE = {"roll_size_bytes": 64 * MIB, "roll_count": 1 << 19, "push_rows": 1 << 17}


def allocated(path: Path) -> int:
    """Bytes that the journal's files take on the disk, as far as the file system tells; 0 on one
    that the store asks for nothing: some take more ahead by themselves."""
    if not finds_room_late(str(path)):
        return 0
    return sum(512 * file.stat().st_blocks for file in (path / "journal").glob("*.*"))


def length(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "journal").glob("*.*"))


def test_a_file_is_given_room_once_and_only_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(RealDisk, "set_aside", lambda _, path, room: asked.append((path, room)))
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        store.put_many((b"%d" % i, bytes(1000)) for i in range(3000))
        assert asked == []
        store.put_many((b"%d" % i, bytes(1000)) for i in range(9000))
        active = store._inker.active
        assert active is not None
        assert asked == [(active.path, 64 * MIB)]


def test_a_file_that_is_synced_all_the_time_is_given_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(RealDisk, "set_aside", lambda _, path, room: asked.append(path))
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        active = store._inker.active
        assert active is not None
        active.commit.syncs = 1000  # in 6 MB
        store.put_many((b"%d" % i, bytes(1000)) for i in range(6000))
        assert asked == []


def test_a_sealed_file_keeps_no_more_room_than_it_needs(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        store.put_many((b"%d" % i, bytes(1000)) for i in range(6000))
        assert all(store.get(b"%d" % i) == bytes(1000) for i in range(0, 6000, 97))
        rolled(store)
        settle(store)
    os.sync()  # else the file system may not yet know what it takes
    assert allocated(tmp_path / "s") < length(tmp_path / "s") + MIB


def test_what_a_killed_store_was_given_is_given_back(tmp_path: Path) -> None:
    with no_hang():
        store = opened(tmp_path / "s", **LARGE)
        store.put_many((b"%d" % i, bytes(1000)) for i in range(6000))
        path = killed(store, tmp_path / "killed")
        store.close()
        with opened(path, **LARGE) as again:
            assert len(list(again.keys())) == 6000
        os.sync()
        assert allocated(path) < length(path) + MIB
