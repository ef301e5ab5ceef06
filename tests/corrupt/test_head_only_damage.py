"""Damaged head-only stores: their ledger is the only one there is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from whole_store import flush, opened, rolled, settle

import octavo
from octavo.files.door.disk import Disk
from octavo.files.jobs import table
from octavo.files.ledger.few_maps import Told

ALL = {b"%03d" % n: b"value of %d" % n for n in range(300)}


def held(store: octavo.Store) -> dict[bytes, bytes]:
    return {row.key: row.value for row in store.head_bucket("b").rows()}


def made(path: Path, *, more: bool = True) -> dict[bytes, bytes]:
    """A closed store whose journal was trimmed; with ``more``, and went on. What is in it."""
    with opened(path, mode="head_only", push_rows=1 << 16) as store:
        bucket = store.head_bucket("b")
        for key, value in ALL.items():
            bucket.put(key, value)
        store.trim()
        if not more:
            return ALL
        bucket.put("later", b"1")
    return {**ALL, b"later": b"1"}


@pytest.mark.parametrize("more", [False, True])
def test_repair_knows_it_by_its_rows_where_the_identity_is_gone(tmp_path: Path, more: bool) -> None:
    wanted = made(tmp_path / "s", more=more)
    (tmp_path / "s" / "OCTAVO").unlink()
    assert octavo.repair(tmp_path / "s").ok
    with opened(tmp_path / "s") as store:
        assert held(store) == wanted


WAYS = {
    "open": lambda path: octavo.open(path),
    "only read": lambda path: octavo.open(path, read_only=True),
    "restore": lambda path: octavo.restore(path, path.parent / "restored"),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_ledger_is_gone_is_no_empty_store(tmp_path: Path, way: str) -> None:
    """Its journal was trimmed: nothing else has what was in it."""
    made(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "ledger")
    with pytest.raises(octavo.Corruption, match="the journal no longer has what was in it"):
        WAYS[way](tmp_path / "s")


def lacking(path: Path, *, persisted: bool) -> dict[bytes, bytes]:
    """A store that lacks a journal file, which its ledger has or not. What it still has."""
    with opened(path, mode="head_only", push_rows=1 << 16) as store:
        store.consumer("c", since=0)
        bucket = store.head_bucket("b")
        for number, (key, value) in enumerate(ALL.items()):
            bucket.put(key, value)
            if number % 100 == 99:
                rolled(store)
        settle(store)
        if persisted:
            flush(store)
    gone = sorted((path / "journal").glob("*.cdb"))[1]
    gone.unlink()
    return ALL if persisted else {k: v for k, v in ALL.items() if not b"100" <= k < b"200"}


@pytest.mark.parametrize("persisted", [False, True])
def test_one_that_lacks_a_journal_file_opens_after_a_repair_that_accepts_it(
    tmp_path: Path, persisted: bool
) -> None:
    wanted = lacking(tmp_path / "s", persisted=persisted)
    octavo.repair(tmp_path / "s", accept_missing=True)
    with opened(tmp_path / "s") as store:
        assert held(store) == wanted
        with pytest.raises(octavo.OctavoError, match=r"compacted|is missing"):
            list(store.changes(since=0))
        assert [change.sqn for change in store.changes(since=200)] == list(range(201, 301))


def test_a_feed_does_not_step_over_a_journal_file_that_is_missing(tmp_path: Path) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.consumer("c", since=0)
        for n in range(300):
            store.put(b"%d" % n, b"v")
            if n % 100 == 99:
                rolled(store)
        settle(store)
    sorted((tmp_path / "s" / "journal").glob("*.cdb"))[1].unlink()
    with opened(tmp_path / "s") as store:
        consumer = store.consumer("c")
        with pytest.raises(octavo.Corruption, match="the journal file is missing"):
            list(consumer.changes())
        assert len(list(store.changes(since=200))) == 100


def test_a_backup_is_not_brought_up_to_date_with_a_ledger_that_is_known_to_be_damaged(
    tmp_path: Path,
) -> None:
    wanted = made(tmp_path / "s")
    with opened(tmp_path / "s") as store:
        store.backup(tmp_path / "b")
    (file, *_) = sorted((tmp_path / "s" / "ledger").glob("*.sst"))
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    file.unlink()  # the backups have it as it was
    file.write_bytes(damaged)
    with opened(tmp_path / "s") as store:
        with pytest.raises(octavo.Corruption):
            held(store)
        settle(store)
        for path in (tmp_path / "b", tmp_path / "another"):
            with pytest.raises(octavo.Corruption, match="no backup is brought up to date"):
                store.backup(path)
    with opened(tmp_path / "b") as backup:
        assert held(backup) == wanted


def test_one_whose_ledger_is_known_to_be_damaged_opens_and_goes_on_once_the_file_is_back(
    tmp_path: Path,
) -> None:
    """It is not marked to be made anew, for nothing else has what is in it."""
    wanted = made(tmp_path / "s")
    (file, *_) = sorted((tmp_path / "s" / "ledger").glob("*.sst"))
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 3] ^= 1
    file.write_bytes(damaged)
    for _ in range(2):
        with opened(tmp_path / "s") as store, pytest.raises(octavo.Corruption):
            held(store)
    file.write_bytes(whole)
    with opened(tmp_path / "s") as store:
        assert held(store) == wanted


def test_where_a_ledger_file_is_missing_nothing_is_trimmed(tmp_path: Path) -> None:
    with opened(tmp_path / "s", mode="head_only", push_rows=1 << 16) as store:
        late = store.consumer("late", since=0)  # holds the journal for now
        for key, value in ALL.items():
            store.head_bucket("b").put(key, value)
        store.trim()
        [file] = (tmp_path / "s" / "ledger").glob("*.sst")
        file.unlink()
        late.drop()
        with pytest.raises(octavo.Corruption, match="nothing is trimmed") as told:
            store.trim()
        assert told.value.file == str(file)
    with opened(tmp_path / "s") as store:
        assert held(store) == ALL


@pytest.mark.parametrize(("worker", "which"), [(True, 0), (False, 0), (False, 1)])
def test_where_a_ledger_file_is_damaged_nothing_is_trimmed(
    tmp_path: Path, worker: bool, which: int
) -> None:
    with opened(tmp_path / "s", mode="head_only", push_rows=1 << 16, worker=worker) as store:
        late = store.consumer("late", since=0)  # holds the journal for now
        for number, (key, value) in enumerate(ALL.items(), 1):
            store.head_bucket("b").put(key, value)
            if number in (len(ALL) // 2, len(ALL)):
                store.trim()
        files = sorted((tmp_path / "s" / "ledger").glob("*.sst"))
        assert len(files) == 2
        file = files[which]
        with file.open("r+b") as damaged:
            damaged.seek(file.stat().st_size // 3)
            [byte] = damaged.read(1)
            damaged.seek(-1, 1)
            damaged.write(bytes([byte ^ 1]))
        late.drop()
        for _ in range(2):
            with pytest.raises(octavo.Corruption):
                store.trim()
        assert len(list(store.changes(since=0))) == len(ALL)
        file.unlink()  # the journal is to be read, and has it all
    with opened(tmp_path / "s") as store:
        assert held(store) == ALL


def test_where_a_ledger_file_is_known_to_be_damaged_nothing_more_is_trimmed(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s", mode="head_only", push_rows=1 << 16, worker=False) as store:
        late = store.consumer("late", since=0)  # holds the journal for now
        for number, (key, value) in enumerate(ALL.items()):
            store.head_bucket("b").put(key, value)
            if number % 100 == 99:
                rolled(store)
        store.trim()
        late.acknowledge(100)
        assert store.trim() > 0  # the ledger's file was seen to be whole, and is not read again
        [file] = (tmp_path / "s" / "ledger").glob("*.sst")
        with file.open("r+b") as damaged:
            damaged.seek(file.stat().st_size // 3)
            [byte] = damaged.read(1)
            damaged.seek(-1, 1)
            damaged.write(bytes([byte ^ 1]))
        with pytest.raises(octavo.Corruption):
            held(store)
        settle(store)
        late.drop()
        with pytest.raises(octavo.Corruption, match="nothing is trimmed"):
            store.trim()
        assert len(list(store.changes(since=100))) == 200


def test_trimming_reads_each_ledger_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    check = table.JOBS["check_ledger"]

    def noted(disk: Disk, *, ledger: str, files: list[Told]) -> dict[str, object]:
        read.extend(name for name, *_ in files)
        return check(disk, ledger=ledger, files=files)

    monkeypatch.setitem(table.JOBS, "check_ledger", noted)
    with opened(tmp_path / "s", mode="head_only", push_rows=1 << 16, worker=False) as store:
        bucket, late = store.head_bucket("b"), store.consumer("late", since=0)
        for number, (key, value) in enumerate(ALL.items()):
            bucket.put(key, value)
            if number % 100 == 99:
                rolled(store)
        store.trim()
        assert read == []  # nothing goes
        for sqn in (100, 200, 300):
            late.acknowledge(sqn)
            assert store.trim() > 0
        late.drop()
        bucket.put("another", b"1")
        store.trim()
        assert store.verify().ok
    assert len(read) == len(set(read)) == 2  # of the file, and of the next one
