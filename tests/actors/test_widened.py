"""Zeros that a journal file which is put to a few KB at a time, and not synced, has behind its
records: the system finds memory for much at once."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from whole_store import active_file, ahead, killed, no_hang, opened, rolled, settle, taken

import octavo
from octavo.actors.writing.room_ahead import LARGE_BYTES, WIDE_FROM_BYTES
from octavo.files.door import open_file
from octavo.files.door.disk import AppendFile, RealDisk
from octavo.files.journal import cdb

MIB = 1 << 20
LARGE = {"roll_count": 1 << 19, "push_rows": 1 << 17, "push_bytes": 1 << 30, "sync": "none",
         "roll_size_bytes": 64 * MIB, "compression": "none"}  # fmt: skip
SEED = 20261122


def value(n: int, size: int = 5000) -> bytes:
    return random.Random(SEED + n).randbytes(size)


def key(n: int) -> bytes:
    return b"%06d" % n


def widened(path: Path, disk: RealDisk | None = None) -> tuple[octavo.Store, int]:
    """A store whose active file has room ahead for some records more, and how many keys it has."""
    store = opened(path, disk, **LARGE)
    n = 0
    while taken(store) < 2 * MIB or ahead(store) < cdb.AHEAD_BYTES // 4:
        store.put(key(n), value(n))
        n += 1
        assert n < 2000
    return store, n


class Patched(RealDisk):
    """Of the next write of a record ``how`` makes what it likes: (the write, data, place)."""

    def __init__(self, how: Callable[..., int], of: str = "pwrite") -> None:
        self.how = how
        self.of = of
        self.nth: list[int] = []

    def create(self, path: str) -> AppendFile:
        file = super().create(path)
        if self.of == "pwrite":
            pwrite = file.pwrite

            def write(data: bytes, at: int) -> int:
                if self.nth and not self.nth.pop():
                    return self.how(pwrite, bytes(data), at)
                return pwrite(data, at)

            file.pwrite = write
        return file


@pytest.mark.parametrize(("size", "puts", "most"), [(5000, 2000, 120), (1000, 9000, 60)])
def test_of_many_puts_few_change_the_files_length(
    tmp_path: Path, size: int, puts: int, most: int
) -> None:
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        lengths = set()
        for n in range(puts):
            store.put(key(n), value(n, size))
            lengths.add(active_file(store).stat().st_size)
            assert 0 <= ahead(store) <= min(cdb.AHEAD_BYTES, taken(store) >> 3)
            if taken(store) < WIDE_FROM_BYTES:
                assert ahead(store) == 0
        assert len(lengths) < WIDE_FROM_BYTES / size + most  # of some 9 MiB
        content = active_file(store).read_bytes()
        assert not any(content[taken(store) :])
        assert all(store.get(key(n)) == value(n, size) for n in range(0, puts, 37))


@pytest.mark.parametrize(
    ("how", "puts", "size"),
    [
        ("small", 9000, 100),
        ("large", 40, LARGE_BYTES + 1),
        ("together", 20, 5000),
        ("synced", 120, 20_000),
    ],
)
def test_what_gains_nothing_by_it_is_given_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, puts: int, size: int
) -> None:
    monkeypatch.setattr(
        open_file, "finds_room_once", lambda fd: False
    )  # what is small gains by them
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        for n in range(puts):
            if how == "together":
                store.put_many((key(n * 100 + part), value(part)) for part in range(30))
            store.put(key(n), value(n, size), sync=how == "synced")
            assert ahead(store) == 0
        assert taken(store) > WIDE_FROM_BYTES


def test_a_file_that_is_synced_no_more_is_given_room(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        for n in range(400):
            store.put(key(n), value(n), sync=n % 4 == 0)
        assert ahead(store) == 0
        for n in range(400, 1200):
            store.put(key(n), value(n))
        assert ahead(store) > 0


def test_a_killed_store_is_found_without_a_note(tmp_path: Path) -> None:
    with no_hang():
        store, count = widened(tmp_path / "s")
        last = store.last_sqn
        image = killed(store, tmp_path / "image")
        store.close()
        with opened(image, **LARGE) as again:
            assert len(again) == count
            assert again.stats()["notes"] == []
            assert again.put(b"next", b"") > last
            assert again.verify().ok


def test_a_closed_store_goes_on_in_the_room_it_has(tmp_path: Path) -> None:
    with no_hang():
        store, count = widened(tmp_path / "s")
        name, length = active_file(store).name, active_file(store).stat().st_size
        store.close()
        with opened(tmp_path / "s", **LARGE) as again:
            assert again.stats()["notes"] == []
            again.put(b"next", value(1))
            assert active_file(again).name == name
            assert active_file(again).stat().st_size == length
            assert len(again) == count + 1
            assert again.verify().ok


def test_a_file_is_sealed_over_its_room(tmp_path: Path) -> None:
    with no_hang():
        store, count = widened(tmp_path / "s")
        path, end = active_file(store), taken(store)
        length = path.stat().st_size
        rolled(store)
        settle(store)
        sealed = path.with_suffix(".cdb")
        assert sealed.stat().st_size >= length
        trailer, offsets = cdb.sealed_offsets(sealed.read_bytes(), str(sealed))
        assert (trailer.tables_at, offsets[-1]) == (end, end)
        assert all(store.get(key(n)) == value(n) for n in range(0, count, 17))
        assert store.verify().ok
        store.close()


def test_what_a_failed_put_left_in_it_is_zeros_again(tmp_path: Path) -> None:
    def broken(pwrite: Callable[..., int], data: bytes, at: int) -> int:
        pwrite(data[: len(data) // 2], at)
        raise OSError(errno.ENOSPC, "no")

    disk = Patched(broken)
    with no_hang():
        store, count = widened(tmp_path / "s", disk)
        end, length = taken(store), active_file(store).stat().st_size
        disk.nth.append(0)
        with pytest.raises(octavo.StorageFull):
            store.put(b"fails", value(0))
        content = active_file(store).read_bytes()
        assert len(content) == length
        assert not any(content[end:])
        store.put(b"goes well", value(1))
        assert (store.get(b"fails"), store.get(b"goes well")) == (None, value(1))
        assert len(store) == count + 1
        store.close()


@pytest.mark.parametrize("room_ahead", [True, False])
def test_a_put_that_wrote_nothing_needs_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_ahead: bool
) -> None:
    """A btrfs behind its quota writes nothing, not even over zeros, and cuts no file, not even at
    the length that it has."""

    def refused(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with no_hang():
        if room_ahead:
            store, count = widened(tmp_path / "s")
        else:
            store, count = opened(tmp_path / "s", **LARGE), 1
            store.put(key(0), value(0))
        file = store._inker.active.file  # type: ignore[union-attr]
        assert file is not None
        write = file.pwrite
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", refused)
            file.pwrite = refused
            for put in (store.put, store.delete):
                with pytest.raises(octavo.StorageFull, match="free some space"):
                    put(key(0), *([value(1)] if put == store.put else []))
            file.pwrite = write
            store.put(b"goes well", value(1))
            found = active_file(store)
            RealDisk().reopen(str(found), found.stat().st_size).close()
        assert (store.get(key(0)), store.get(b"goes well")) == (value(0), value(1))
        assert len(store) == count + 1
        assert store.verify().ok
        store.close()


def test_room_that_cannot_be_had_costs_no_put(tmp_path: Path) -> None:
    class Full(RealDisk):
        refused = 0

        def create(self, path: str) -> AppendFile:
            file = super().create(path)
            pwrite = file.pwrite

            def write(data: bytes, at: int) -> int:
                if len(data) >= 64 << 10 and not any(data):
                    self.refused += 1
                    raise OSError(errno.ENOSPC, "full")
                return pwrite(data, at)

            file.pwrite = write
            return file

    disk = Full()
    with no_hang(), opened(tmp_path / "s", disk, **LARGE) as store:
        for n in range(600):
            store.put(key(n), value(n))
        assert disk.refused
        assert len(store) == 600
        assert store.verify().ok


SIZE = 40_000
"""From APART_BYTES on: what stands before a value and the value are written as they are."""


@pytest.mark.parametrize("many", [False, True])
def test_a_write_of_parts_that_the_system_cuts_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    def some(file: AppendFile, parts: list[bytes], at: int) -> int:
        calls.append(len(parts))
        return file.pwrite(b"".join(parts)[:777], at)

    calls: list[int] = []
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        file = store._inker.active.file  # type: ignore[union-attr]
        monkeypatch.setattr(type(file), "pwrite_parts", some)
        if many:
            store.put_many((key(n), value(n, SIZE)) for n in range(20))
        else:
            for n in range(20):
                store.put(key(n), value(n, SIZE))
        assert calls
        assert [store.get(key(n)) for n in range(20)] == [value(n, SIZE) for n in range(20)]
        assert store.verify().ok


def test_a_write_that_was_cut_short_is_not_finished_where_a_sync_failed_meanwhile(
    tmp_path: Path,
) -> None:
    def some(data: bytes, at: int) -> int:
        active.failed = octavo.StorageFailed("a sync failed")
        return write(data[:9], at)

    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        store.put(b"before", value(0))
        active = store._inker.active
        assert active is not None
        assert active.file is not None
        write, end = active.file.pwrite, taken(store)
        active.file.pwrite = some
        with pytest.raises(octavo.StorageFailed, match="a sync failed"):
            store.put(b"key", value(1))
        active.file.pwrite = write
        assert taken(store) == end
        assert b"key" not in store


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_write_of_parts_that_fails_leaves_nothing_or_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool, error: int
) -> None:
    def broken(file: AppendFile, parts: list[bytes], at: int) -> int:
        whole = b"".join(parts)
        file.pwrite(whole[: len(whole) * 2 // 3], at)
        raise OSError(error, "no")

    told = octavo.StorageFull if error == errno.ENOSPC else octavo.StorageFailed
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        store.put(b"before", value(0, SIZE))
        file = store._inker.active.file  # type: ignore[union-attr]
        pairs = [(key(n), value(n, SIZE)) for n in range(20)]
        with monkeypatch.context() as patch:
            patch.setattr(type(file), "pwrite_parts", broken)
            with pytest.raises(told):
                store.put_many(pairs) if many else store.put(*pairs[0])
        there = [n for n in range(20) if key(n) in store]
        assert there == (list(range(len(there))) if many else [])
        assert 0 < len(there) < 20 or not many
        assert [store.get(key(n)) for n in there] == [value(n, SIZE) for n in there]
        assert active_file(store).stat().st_size == taken(store)
        if error == errno.ENOSPC:
            store.put(b"after", value(1, SIZE))
            assert store.get(b"after") == value(1, SIZE)
        assert store.verify().ok
