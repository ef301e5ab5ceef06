"""What an end at a bad moment left lying about goes with the next opening."""

from __future__ import annotations

import pytest
from look import clock_ms
from one_thread import forget, one_thread, opened
from simdisk import SimDisk
from whole_store import rolled

from octavo.files.journal import cdb


def journal_files(disk: SimDisk) -> set[str]:
    return {name for name in disk.listdir("/store/journal") if name.endswith((".log", ".cdb"))}


def written(disk: SimDisk, path: str, content: bytes) -> None:
    file = disk.create(path)
    file.write_all(content)
    file.close()


def test_a_journal_file_without_a_record_whose_numbers_another_one_has_is_removed() -> None:
    """A power cut takes back its removal, which nothing waits for. One that has more stays: it may
    be all that is left of something."""
    disk = SimDisk()
    with one_thread("left over") as pool:
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"1")
        rolled(store)
        pool.go_on()
        base = store._inker.manifest.entries[0].base_sqn
        forget(store)
        disk = disk.after_kill()
        begun, cut, more = (f"{base:016x}-{number:016x}.log" for number in (1, 2, 3))
        written(disk, f"/store/journal/{begun}", b"h" * cdb.RECORDS_AT)
        written(disk, f"/store/journal/{cut}", b"")
        written(disk, f"/store/journal/{more}", b"h" * cdb.RECORDS_AT + b"more")
        store = opened(disk, clock_ms=clock_ms)
        assert journal_files(disk) & {begun, cut, more} == {more}
        assert dict(store.items()) == {b"a": b"1"}
        store.close()


@pytest.mark.parametrize("name", ["CONSUMERS", "OCTAVO", "journal/UPDATING", "ledger/1.sst"])
def test_what_was_being_written_is_removed(name: str) -> None:
    disk = SimDisk()
    with one_thread("left over") as pool:
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"1")
        store.consumer("mail", since=0)
        pool.go_on()
        forget(store)
        disk = disk.after_kill()
        written(disk, f"/store/{name}.tmp", b'{"form')
        store = opened(disk, clock_ms=clock_ms)
        assert (store.consumers(), store.get(b"a")) == ({"mail": 0}, b"1")
        assert not disk.exists(f"/store/{name}.tmp")
        store.close()
