"""Zeros that a journal file which is synced all the time has behind its records: nobody takes them
for anything."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from simdisk import SimDisk
from whole_store import killed, no_hang, opened, settle

import octavo
from octavo.actors.pace import LOOK_EVERY
from octavo.files import cdb
from octavo.files.disk import RealDisk
from octavo.pipeline.feed_files import JournalLook

LARGE = {"roll_count": 1 << 19, "push_rows": 1 << 17, "push_bytes": 1 << 30, "sync": "always"}


def active_file(store: octavo.Store) -> Path:
    active = store._inker.active
    assert active is not None
    return Path(active.path)


def ahead(store: octavo.Store) -> int:
    """Bytes of the active file behind its last record."""
    active = store._inker.active
    assert active is not None
    return Path(active.path).stat().st_size - active.offsets[-1]


def lengthened(path: Path, **given: object) -> octavo.Store:
    """A store whose active file has room ahead: of ``LOOK_EVERY`` keys and more."""
    store = opened(path, **{**LARGE, **given})
    store.put_many((b"many %d" % n, b"") for n in range(LOOK_EVERY - 10))
    n = 0
    while not ahead(store):
        store.put(b"%d" % n, b"value")
        n += 1
        assert n < 4 * LOOK_EVERY
    return store


def test_of_many_synced_puts_few_change_the_files_length(tmp_path: Path) -> None:
    with no_hang(), lengthened(tmp_path / "s") as store:
        lengths = set()
        for n in range(2000):
            store.put(b"%d" % n, bytes(40))
            lengths.add(active_file(store).stat().st_size)
            assert 0 <= ahead(store) <= cdb.AHEAD_BYTES
        assert len(lengths) <= 10  # some 170 KB


@pytest.mark.parametrize(("sync", "size"), [("none", 40), ("always", 40_000)])
def test_what_is_not_synced_in_small_pieces_is_not_lengthened(
    tmp_path: Path, sync: str, size: int
) -> None:
    with no_hang(), opened(tmp_path / "s", **{**LARGE, "sync": sync}) as store:
        for n in range(2 * LOOK_EVERY + 10):
            store.put(b"%d" % n, random.Random(n).randbytes(size))
            assert ahead(store) == 0


def test_a_killed_store_is_found_without_a_note(tmp_path: Path) -> None:
    with no_hang(), lengthened(tmp_path / "s") as store:
        keys, last = list(store.keys()), store.last_sqn
        image = killed(store, tmp_path / "image")
    with opened(image, **LARGE) as again:
        assert list(again.keys()) == keys
        assert again.stats()["notes"] == []
        assert ahead(again) == 0
        assert again.put(b"next", b"") > last
        assert again.verify().ok


@pytest.mark.parametrize("sync", ["always", "none"])
def test_a_closed_store_is_opened_again_without_a_note(tmp_path: Path, sync: str) -> None:
    with no_hang():
        with lengthened(tmp_path / "s") as store:
            last = store.last_sqn
        with opened(tmp_path / "s", **{**LARGE, "sync": sync}) as again:
            assert again.stats()["notes"] == []
            assert again.put(b"next", b"") == last + 1


@pytest.mark.parametrize("kept", [1, 20, 45, 50])
def test_a_record_that_breaks_off_in_front_of_the_zeros_is_a_torn_tail(
    tmp_path: Path, kept: int
) -> None:
    with no_hang(), lengthened(tmp_path / "s") as store:
        before = store.last_sqn
        begins = store._inker.active.offsets[-1]  # type: ignore[union-attr]
        store.put(b"torn", b"v" * 30)
        name = active_file(store).name
        image = killed(store, tmp_path / "image")
    file = image / "journal" / name
    data = bytearray(file.read_bytes())
    end = begins + kept
    data[end:] = bytes(len(data) - end)
    file.write_bytes(data)
    with octavo.open(image, read_only=True) as reader:
        assert reader.get(b"torn") is None
        assert reader.last_sqn == before
    with opened(image, **LARGE) as again:
        assert again.get(b"torn") is None
        (note,) = again.stats()["notes"]
        assert "torn tail" in note
        assert again.verify().ok


def test_a_sealed_file_has_none_of_them(tmp_path: Path) -> None:
    with no_hang(), lengthened(tmp_path / "s") as store:
        end = store._inker.active.offsets[-1]  # type: ignore[union-attr]
        path = active_file(store).with_suffix(".cdb")
        store._inker.roll()
        settle(store)
        trailer, offsets = cdb.sealed_offsets(path.read_bytes(), str(path))
        assert (trailer.tables_at, offsets[-1]) == (end, end)
        assert store.verify().ok


def test_a_feed_is_told_what_is_written_into_them(tmp_path: Path) -> None:
    with no_hang(), lengthened(tmp_path / "s") as store:
        look = JournalLook(RealDisk(), store.path)
        for n in range(20):
            assert look.newest() == store.last_sqn
            assert look.newest() == store.last_sqn
            length = active_file(store).stat().st_size
            store.put(b"fed %d" % n, b"value")
            assert active_file(store).stat().st_size == length


def test_a_feed_reads_no_more_than_it_must_where_nothing_came(tmp_path: Path) -> None:
    class Counting(RealDisk):
        copies = 0

        def copy(self, path: str, start: int) -> object:  # type: ignore[override]
            self.copies += 1
            return super().copy(path, start)

    with no_hang(), lengthened(tmp_path / "s") as store:
        disk = Counting()
        look = JournalLook(disk, store.path)
        for _ in range(5):
            assert look.newest() == store.last_sqn
        assert disk.copies == 1


def test_a_reader_of_another_process_sees_the_records_and_no_more(tmp_path: Path) -> None:
    with (
        no_hang(),
        lengthened(tmp_path / "s") as store,
        octavo.open(store.path, read_only=True) as reader,
    ):
        assert list(reader.items()) == list(store.items())
        store._inker.roll()  # is cut, while it is mapped there
        settle(store)
        assert reader.get(b"0") == b"value"
        assert list(reader.items()) == list(store.items())


def test_a_disk_without_room_for_them_takes_the_puts_all_the_same() -> None:
    disk = SimDisk()

    refused = []
    pwrite = disk._pwrite

    def without_zeros(cursor: object, buf: bytes, offset: int) -> int:
        if len(buf) == cdb.AHEAD_BYTES and not any(buf):
            refused.append(offset)
            raise OSError(errno.ENOSPC, "full")
        return pwrite(cursor, buf, offset)  # type: ignore[arg-type]

    disk._pwrite = without_zeros  # type: ignore[method-assign,assignment]
    with no_hang(), opened("/s", disk, **LARGE) as store:
        for n in range(3 * LOOK_EVERY):
            store.put(b"%d" % n, b"value")
        assert refused
        assert len(store) == 3 * LOOK_EVERY
        assert store.verify().ok
