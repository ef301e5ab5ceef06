"""Zeros that a journal file which is synced all the time has behind its records: nobody takes them
for anything."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from simdisk import SimDisk
from whole_store import active_file, ahead, killed, no_hang, opened, rolled, settle

import octavo
from octavo.actors.writing.pace import LOOK_EVERY
from octavo.actors.writing.room_ahead import SYNCED_AHEAD_BYTES, RoomAhead
from octavo.files.door.disk import AppendFile, RealDisk
from octavo.files.journal import cdb
from octavo.pipeline.feed_files import JournalLook

LARGE = {"roll_count": 1 << 19, "push_rows": 1 << 17, "push_bytes": 1 << 30, "sync": "always"}


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
            assert 0 <= ahead(store) <= SYNCED_AHEAD_BYTES
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


@pytest.mark.parametrize("how", ["rolled", "closed", "killed"])
def test_no_file_gets_shorter_for_others_may_have_a_map_of_it(tmp_path: Path, how: str) -> None:
    with no_hang():
        store = lengthened(tmp_path / "s")
        end = store._inker.active.offsets[-1]  # type: ignore[union-attr]
        path = active_file(store)
        if how == "killed":
            path = killed(store, tmp_path / "image") / "journal" / path.name
        mapped = RealDisk().map(str(path))
        if how != "rolled":
            store.close()
            store = opened(path.parent.parent, **LARGE)
            assert (ahead(store) > 0) == (how == "closed")
        rolled(store)
        settle(store)
        sealed = path.with_suffix(".cdb")
        assert sealed.stat().st_size >= len(mapped)
        trailer, offsets = cdb.sealed_offsets(sealed.read_bytes(), str(sealed))
        assert (trailer.tables_at, offsets[-1]) == (end, end)
        # What was not closed is copied as it is opened: this map is of the file before, as it was.
        last = sealed.read_bytes()[len(mapped) - 1 : len(mapped)]
        assert mapped[-1:] == (last if how != "killed" else b"\0")
        assert store.verify().ok
        store.close()


def test_a_file_of_few_records_is_filled_up_as_it_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with no_hang(), opened(path, **LARGE) as store:
        for n in range(20):
            store.put(b"%d" % n, b"value")
        assert ahead(store) > SYNCED_AHEAD_BYTES - 1000
        length = active_file(store).stat().st_size
        sealed = active_file(store).with_suffix(".cdb")
        rolled(store)
        settle(store)
        assert sealed.stat().st_size == length
        assert [store.get(b"%d" % n) for n in range(20)] == [b"value"] * 20
        assert store.verify().ok
        tool = shutil.which("cdb")
        assert tool, "tinycdb is not installed: apt-get install tinycdb"
        found = subprocess.run([tool, "-s", sealed], capture_output=True, check=False)
        assert found.stdout.startswith(b"number of records: 21\n")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "the zeros, too"])
def test_what_a_failed_put_left_in_them_is_zeros_again(
    tmp_path: Path, fails: bool, times: int
) -> None:
    class Failing(RealDisk):
        def create(self, path: str) -> AppendFile:
            file = super().create(path)
            pwrite = file.pwrite

            def some(data: bytes, at: int) -> int:
                if nth and not nth.pop():
                    pwrite(bytes(data)[: len(data) // 2], at)
                    raise OSError(errno.EIO if fails else errno.ENOSPC, "no")
                return pwrite(data, at)

            file.pwrite = some
            return file

    nth: list[int] = []
    with no_hang(), opened(tmp_path / "s", Failing(), **LARGE) as store:
        for n in range(20):
            store.put(b"%d" % n, b"value")
        end, length = store._inker.active.offsets[-1], active_file(store).stat().st_size  # type: ignore[union-attr]
        nth += [0] * times
        with pytest.raises(octavo.StorageFailed if fails else octavo.StorageFull):
            store.put(b"fails", b"v" * 100)
        content = active_file(store).read_bytes()
        assert len(content) == (length if times == 1 else end)  # else it was cut
        assert not any(content[end:])
        assert store.get(b"fails") is None


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
        maps = 0

        def map_growing(self, path: str, start: int = 0) -> object:  # type: ignore[override]
            self.maps += 1
            return super().map_growing(path, start)

    with no_hang(), lengthened(tmp_path / "s") as store:
        disk = Counting()
        look = JournalLook(disk, store.path)
        for _ in range(5):
            assert look.newest() == store.last_sqn
        assert disk.maps == 1


def test_a_reader_of_another_process_sees_the_records_and_no_more(tmp_path: Path) -> None:
    with (
        no_hang(),
        lengthened(tmp_path / "s") as store,
        octavo.open(store.path, read_only=True) as reader,
    ):
        assert list(reader.items()) == list(store.items())
        rolled(store)
        settle(store)
        assert reader.get(b"0") == b"value"
        assert list(reader.items()) == list(store.items())


def test_a_disk_without_room_for_them_takes_the_puts_all_the_same() -> None:
    disk = SimDisk()

    refused = []
    pwrite = disk._pwrite

    def without_zeros(cursor: object, buf: bytes, offset: int) -> int:
        if len(buf) == SYNCED_AHEAD_BYTES and not any(buf):
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


@pytest.mark.parametrize("room", [0, 1000])
@pytest.mark.parametrize("looks", ["lengthen", "widen"])
def test_a_file_reaches_no_further_than_was_written(tmp_path: Path, looks: str, room: int) -> None:
    file = RealDisk().create(str(tmp_path / "file"))
    records = bytes(4 << 20)
    file.pwrite_all(records, 0)
    write, ahead = file.pwrite, RoomAhead()
    ahead.begin(1, 100, 0)

    def full(data: bytes, at: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "full")
        return write(data[:room], at)

    def look(count: int, taken: int) -> int:
        syncs = count if looks == "lengthen" else 0
        if looks == "lengthen":
            return ahead.lengthen(file, count, taken, syncs)
        return ahead.widen(file, count, taken, syncs, 1 << 30, now_ms=0)[0]

    file.pwrite = full
    assert look(5000, len(records)) > 10, "not at every put"
    file.pwrite = write
    ahead.cut(file, len(records), len(records) + 10)  # there is room again: none was needed
    assert os.stat(file.path).st_size == len(records) + room
    file.pwrite_all(bytes(800), len(records))
    look(5001, len(records) + 800)
    with open(file.path, "rb") as found:  # with nothing left out before its end
        assert found.seek(0, os.SEEK_HOLE) == found.seek(0, os.SEEK_END) == ahead.end
    assert ahead.end > len(records) + 1000
    file.close()
