"""Bytes that a device does not give back: a read tells of them, and a map is never touched there,
for that would end the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bad_sectors import BadSectors, SalvagedBadSectors

import octavo
from octavo import repairing
from octavo.actors.bookie import Bookie
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.actors.opening.startup import Running
from octavo.files.door.unreadable import SalvageDisk, Unreadable
from octavo.repairing import Repair, repair_on
from octavo.verify import verify

KEYS = 600
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A closed store: sealed journal files, a ledger file, an unsealed file with 100 records."""
    with octavo.open(tmp_path / "s", roll_count=256) as store:
        for n in range(KEYS):
            store.put(b"%03d" % n, b"%03d" % n * 100)
        store._running.bookie.call(Bookie.push)
    return str(tmp_path / "s")


def first(path: str, kind: str) -> str:
    return str(min(Path(path).glob(kind)))


@contextmanager
def opened(path: str, disk: BadSectors) -> Iterator[Running]:
    running = startup.start(path, Options(create=False, worker=False), disk)
    try:
        yield running
    finally:
        shutdown.stop(running)


def told(path: str, at: int) -> str:
    return f"{path} at offset {at}: the device does not give it back"


@pytest.mark.parametrize("kind", ["journal/*.cdb", "ledger/*.sst"])
def test_verify_tells_where_a_file_cannot_be_read_and_looks_at_the_others(
    path: str, kind: str
) -> None:
    disk = BadSectors()
    file = first(path, kind)
    with opened(path, disk) as running:
        disk.spoil(file, 2 * PAGE, 2 * PAGE + 1)
        report = verify(running, lambda *_: None)
    assert report.problems[0].startswith(told(file, 2 * PAGE))
    assert report.problems[1].startswith("ledger and journal: not compared")
    assert len(report.problems) == 2
    assert report.journal_files + report.ledger_files == 3


@pytest.mark.parametrize("kind", ["journal/*.cdb", "ledger/*.sst"])
def test_a_reader_verifies_so_too(path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = BadSectors()
    file = first(path, kind)
    with octavo.open(path, read_only=True) as reader:
        monkeypatch.setattr(reader, "_disk", disk)
        disk.spoil(file, 0, 1)  # its link has the same inode
        report = reader.verify()
    assert report.problems[0].startswith(told(file, 0))
    assert not report.ok


def keys_lost(done: Repair) -> list[bytes | None]:
    return [lost.key for lost in done.files.lost]


def test_repair_saves_what_can_be_read_of_a_sealed_journal_file(path: str) -> None:
    disk = SalvagedBadSectors()
    file = first(path, "journal/*.cdb")
    disk.spoil(file, 3 * PAGE, 4 * PAGE)
    done = repair_on(disk, path)
    assert done.verified.ok
    lost = {each.sqn - 1 for each in done.files.lost}
    assert 10 < len(lost) < 16  # a page of records of 356 bytes
    assert done.files.moved  # the original is kept
    with octavo.open(path) as store:
        wanted = {b"%03d" % n: b"%03d" % n * 100 for n in range(KEYS) if n not in lost}
        assert dict(store.items()) == wanted


def test_what_a_process_cannot_read_for_another_reason_is_no_damage(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is gone, say: nothing is taken for lost, or written anew without it."""

    def gone(disk: SalvageDisk, path: str) -> Callable[[int, int], bytes]:
        def fail(length: int, offset: int) -> bytes:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

        return fail

    before = {file: file.read_bytes() for file in Path(path).rglob("*.*")}
    with monkeypatch.context() as patched:
        patched.setattr(SalvageDisk, "opened_to_read", gone)
        with pytest.raises(OSError, match="Stale"):
            repair_on(SalvageDisk(), path)
    assert {file: file.read_bytes() for file in Path(path).rglob("*.*")} == before
    with octavo.open(path) as store:
        assert len(list(store.keys())) == KEYS


@pytest.mark.parametrize(
    "kind", ["ledger/*.sst", "ledger/manifest/*", "journal/manifest/*", "OCTAVO"]
)
def test_repair_makes_anew_what_the_journal_tells(path: str, kind: str) -> None:
    disk = SalvagedBadSectors()
    for file in Path(path).glob(kind):
        disk.spoil(str(file), 0, PAGE)
    done = repair_on(disk, path)
    assert done.ok
    assert any(why.startswith(told(first(path, "OCTAVO"), 0)) for why in disk.found.values()) == (
        kind == "OCTAVO"
    )
    with octavo.open(path) as store:
        assert len(store) == KEYS
        assert store.verify().ok


def test_repair_saves_what_can_be_read_of_an_unsealed_file(path: str) -> None:
    disk = SalvagedBadSectors()
    file = first(path, "journal/*.log")
    disk.spoil(file, 2 * PAGE, 3 * PAGE)
    done = repair_on(disk, path)
    assert done.verified.ok
    assert not done.ok
    lost = {each.sqn - 1 for each in done.files.lost}
    assert 10 < len(lost) < 16
    assert min(lost) >= 512
    assert [moved for moved in done.files.moved if ".log" in moved]
    with octavo.open(path) as store:
        assert set(store.keys()) == {b"%03d" % n for n in range(KEYS) if n not in lost}


def test_a_repair_tells_what_could_not_be_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SalvagedBadSectors()
    file = first(path, "ledger/*.sst")
    disk.spoil(file, PAGE, 2 * PAGE)
    monkeypatch.setattr(repairing, "SalvageDisk", lambda: disk)
    done = octavo.repair(path)
    assert done.ok
    assert [note for note in done.files.notes if note.startswith(told(file, PAGE))]


def test_an_unsealed_file_that_cannot_be_read_refuses_an_opening(path: str) -> None:
    disk = BadSectors()
    file = first(path, "journal/*.log")
    disk.spoil(file, 2 * PAGE, 3 * PAGE)
    with (
        pytest.raises(Unreadable, match="saves what else there is"),
        opened(path, disk),
    ):
        pass
    disk.bad.clear()
    with opened(path, disk) as running:  # and changed nothing
        assert verify(running, lambda *_: None).keys == KEYS


def test_bytes_that_stand_for_others_are_told_apart_from_an_end(path: str) -> None:
    """Zeros at the end of an unsealed file are no records."""
    disk = SalvagedBadSectors()
    file = first(path, "journal/*.log")
    disk.spoil(file, 0, 1)
    whole = bytes(disk.map(file))
    assert whole[:PAGE].strip(b"\0") == whole[:PAGE]
    assert whole[PAGE:] == Path(file).read_bytes()[PAGE:]
    assert whole[:PAGE] != Path(file).read_bytes()[:PAGE]


def test_other_errors_pass(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SalvagedBadSectors()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(disk, "_refuse", refuse)
    with pytest.raises(PermissionError):
        repair_on(disk, path)
