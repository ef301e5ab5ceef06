"""destroy: the store goes, and nothing else does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_runs import octavo as run
from simdisk import SimDisk
from simfaults import SimCrash

import octavo
from octavo.actors.opening import startup
from octavo.actors.opening.options import Options
from octavo.destroying import destroy_on
from octavo.files.door.disk import RealDisk
from octavo.manifest.snapshot_draft import Draft
from octavo.store import Store


def made(path: Path) -> Path:
    with octavo.open(path) as store:
        store.put_many((b"%d" % n, b"v") for n in range(100))
    return path


def test_a_destroyed_store_leaves_nothing(tmp_path: Path) -> None:
    octavo.destroy(made(tmp_path / "s"))
    assert not (tmp_path / "s").exists()


def test_what_is_not_the_store_s_stays(tmp_path: Path) -> None:
    made(tmp_path / "s")
    (tmp_path / "s" / "mine.txt").write_text("keep")
    octavo.destroy(tmp_path / "s")
    assert [file.name for file in (tmp_path / "s").iterdir()] == ["mine.txt"]


def test_what_openings_that_were_killed_left_goes_too(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    for name in (
        "OCTAVO.tmp",
        "CONSUMERS.tmp",
        ".octavo-probe-7-f52c",
        ".octavo-probe-7-f52c-link",
    ):
        (path / name).write_bytes(b"octavo")
    octavo.destroy(path)
    assert not path.exists()


class Watched(RealDisk):
    """Has somebody look before each name is taken away."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look

    def unlink(self, path: str) -> None:
        self._look()
        super().unlink(path)

    def rmdir(self, path: str) -> None:
        self._look()
        super().rmdir(path)


def test_who_reads_it_meanwhile_is_told_of_no_damage(tmp_path: Path) -> None:
    answers: list[bytes] = []
    looks = after = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == after:  # the first read, which opens what there is
            with suppress(octavo.SnapshotExpired):
                answers.append(reader[b"7"])

    while looks >= after:
        looks, after = 0, after + 1
        path = made(tmp_path / "s")
        reader = octavo.open(path, read_only=True)
        destroy_on(Watched(look), str(path))
        assert not path.exists()
    assert 0 < len(answers) < after - 1
    assert set(answers) == {b"v"}


def test_who_begins_to_read_it_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    refused = []

    def look() -> None:
        try:
            octavo.open(path, read_only=True).close()
        except octavo.OctavoError as error:
            refused.append(error)

    destroy_on(Watched(look), str(path))
    assert refused
    assert not path.exists()


def test_names_that_come_and_go_as_it_is_destroyed_stop_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "s")
    octavo.open(path, read_only=True)  # and its links stay

    class Disturbed(RealDisk):
        come = gone = False

        def rmdir(self, path: str) -> None:
            if path.endswith("/snapshots") and not self.come:
                self.come = True
                Path(path, "1").mkdir()
            if path == str(tmp_path / "s"):
                Path(path, "snapshots").mkdir()
            super().rmdir(path)

        def unlink(self, path: str) -> None:
            if path.endswith(".log") and "/snapshots/" in path and not self.gone:
                self.gone = True
                super().unlink(path)
            super().unlink(path)

    disk = Disturbed()
    destroy_on(disk, str(path))
    assert disk.come
    assert disk.gone
    assert os.listdir(path) == ["snapshots"]  # for who made it to remove


def test_nor_does_the_folder_of_one_who_came_too_late_that_goes_just_then(tmp_path: Path) -> None:
    path = made(tmp_path / "s")

    class Late(RealDisk):
        """Once the mark of a store is gone, somebody makes the folder, and takes it away."""

        def unlink(self, path: str) -> None:
            super().unlink(path)
            if path.endswith("/OCTAVO"):
                Path(path, "../snapshots").resolve().mkdir()

        def listdir(self, path: str) -> list[str]:
            if path.endswith("/snapshots") and not Path(path, "../OCTAVO").exists():
                Path(path).rmdir()
            return super().listdir(path)

    destroy_on(Late(), str(path))
    assert not path.exists()


@pytest.mark.parametrize("others", [[], ["mine.txt"]])
def test_who_begins_to_read_it_too_late_makes_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    path = made(tmp_path / "s")
    for name in others:
        (path / name).write_text("keep")
    begin = Draft.__init__

    def late(*arguments: Any) -> None:
        octavo.destroy(path)
        begin(*arguments)

    monkeypatch.setattr(Draft, "__init__", late)
    with pytest.raises(octavo.Misuse, match=r"No such file|no store"):
        octavo.open(path, read_only=True)
    assert path.exists() == bool(others)
    assert not others or os.listdir(path) == others


def test_links_out_of_a_store_are_not_followed(tmp_path: Path) -> None:
    made(tmp_path / "s")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine.txt").write_text("keep")
    (tmp_path / "s" / "journal" / "link").symlink_to(tmp_path / "outside")
    octavo.destroy(tmp_path / "s")
    assert (tmp_path / "outside" / "mine.txt").read_text() == "keep"


def test_a_store_that_a_link_leads_to_is_destroyed_and_the_directory_stays(tmp_path: Path) -> None:
    made(tmp_path / "s")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    octavo.destroy(tmp_path / "link")
    assert list((tmp_path / "s").iterdir()) == []
    with pytest.raises(octavo.Misuse, match="no store"):
        octavo.destroy(tmp_path / "link")


def test_a_store_on_a_disk_of_its_own_is_destroyed_and_the_directory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mounted(disk: RealDisk, path: str) -> None:
        if path == str(tmp_path / "s"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        rmdir(disk, path)

    rmdir = RealDisk.rmdir
    monkeypatch.setattr(RealDisk, "rmdir", mounted)
    octavo.destroy(made(tmp_path / "s"))
    assert list((tmp_path / "s").iterdir()) == []


class Immutable(RealDisk):
    """Has ledger files that may not be removed, as after ``chattr +i``."""

    def unlink(self, path: str) -> None:
        if path.endswith(".sst"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        super().unlink(path)


def test_a_file_that_may_not_be_removed_is_not_taken_for_a_directory(tmp_path: Path) -> None:
    with octavo.open(made(tmp_path / "s")) as store:
        store.compact()
    with pytest.raises(PermissionError, match=r"\.sst"):
        destroy_on(Immutable(), str(tmp_path / "s"))


def test_an_open_store_is_not_destroyed(tmp_path: Path) -> None:
    with octavo.open(made(tmp_path / "s")) as store:
        with pytest.raises(octavo.StoreLocked):
            octavo.destroy(tmp_path / "s")
        assert store[b"7"] == b"v"


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(octavo.Misuse, match="no store"):
        octavo.destroy(tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_a_destruction_that_was_cut_short_is_finished_by_another() -> None:
    crashes = 0
    while True:
        disk = SimDisk()
        store = Store(startup.start("/s", Options(worker=False), disk))
        store.put(b"k", b"v")
        store.close()
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            destroy_on(disk, "/s")
            break
        except SimCrash:
            left = disk.after_kill()
            if left.exists("/s/OCTAVO"):
                destroy_on(left, "/s")
            assert not left.exists("/s/journal")
            assert not left.exists("/s/ledger")
        crashes += 1
    assert crashes > 5


def test_the_command_asks_first(tmp_path: Path) -> None:
    made(tmp_path / "s")
    run("destroy", tmp_path / "s", stdin=b"n\n", code=1)
    assert (tmp_path / "s" / "OCTAVO").exists()
    run("destroy", tmp_path / "s", "--yes")
    assert not (tmp_path / "s").exists()


def test_a_lock_that_a_destruction_left_alone_goes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "LOCK").write_text("1\n")
    octavo.destroy(tmp_path / "s")
    assert not (tmp_path / "s").exists()
