"""Small puts into a map of the file that is being written, instead of by calls."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from whole_store import WallClock, active_file, killed, no_hang, opened, rolled, settle, taken

import octavo
from octavo.actors.writing.room_ahead import NO_MAP, WIDE_FROM_BYTES
from octavo.files.door import write_map
from octavo.files.door.disk import AppendFile, RealDisk

LARGE = {"roll_count": 1 << 19, "push_rows": 1 << 17, "push_bytes": 1 << 30, "sync": "none",
         "roll_size_bytes": 64 << 20, "compression": "none"}  # fmt: skip
SEED = 20261128
SIZE = 500


def key(n: int) -> bytes:
    return b"%06d" % n


def value(n: int, size: int = SIZE) -> bytes:
    return random.Random(SEED + n).randbytes(size)


class Counted(RealDisk):
    """Knows how many records were written by calls: what is no zeros."""

    calls = 0

    def create(self, path: str) -> AppendFile:
        file = super().create(path)
        pwrite = file.pwrite

        def write(data: bytes, at: int) -> int:
            self.calls += any(data)
            return pwrite(data, at)

        file.pwrite = write
        return file


def active(store: octavo.Store) -> Any:
    return store._inker.active


def with_write_map(path: Path, disk: RealDisk | None = None, **given: object) -> octavo.Store:
    """A store whose next puts go into a write map, and that has all keys below its last sqn."""
    store = opened(path, disk, **{**LARGE, "clock_ms": WallClock(1e12), **given})
    while active(store).write_map[1] < taken(store) + 20 * SIZE:
        store.put(key(store.last_sqn), value(store.last_sqn))
        assert taken(store) < 2 * WIDE_FROM_BYTES
    return store


def whole(store: octavo.Store, count: int) -> bool:
    return len(store) == count and all(store.get(key(n)) == value(n) for n in range(0, count, 7))


@pytest.mark.parametrize("how", ["put", "batch", "metadata", "delete"])
def test_what_is_small_is_written_without_a_call(tmp_path: Path, how: str) -> None:
    disk = Counted()
    with no_hang(), with_write_map(tmp_path / "s", disk) as store:
        count, before = store.last_sqn, disk.calls
        for n in range(count, count + 3):
            if how == "put":
                store.put(key(n), value(n))
            elif how == "metadata":
                store.put(key(n), value(n), metadata=b"more", ttl=1000)
            elif how == "batch":
                with store.batch() as batch:
                    batch.put("", key(n), value(n))
                    batch.put("other", key(n), b"")
            else:
                store.delete(key(n - 3))
        assert disk.calls == before
        content = active_file(store).read_bytes()
        assert any(content[taken(store) - SIZE : taken(store)])
        assert not any(content[taken(store) :])
        if how == "delete":
            assert [key(n) in store for n in range(count - 4, count)] == [True, *[False] * 3]
        else:
            assert whole(store, count + 3)
        assert store.verify().ok


def test_what_a_killed_store_wrote_so_is_there(tmp_path: Path) -> None:
    with no_hang():
        store = with_write_map(tmp_path / "s")
        count = store.last_sqn
        store.put(key(count), value(count))
        image = killed(store, tmp_path / "image")
        store.close()
        with opened(image, **LARGE) as again:
            assert whole(again, count + 1)
            assert again.stats()["notes"] == []
            assert again.verify().ok


@pytest.mark.parametrize("part", [1, 9, 20, 33, 40, 60, 200, SIZE])
def test_of_a_record_that_was_being_written_nothing_is_found(tmp_path: Path, part: int) -> None:
    """A copy of memory goes on to its end unless the process is killed in it."""
    with no_hang():
        store = with_write_map(tmp_path / "s")
        count, began = store.last_sqn, taken(store)
        store.put(key(count), value(count))
        ended = taken(store)
        image = killed(store, tmp_path / "image")
        file = image / "journal" / active_file(store).name
        store.close()
        with open(file, "r+b") as broken:
            broken.seek(began + part)
            broken.write(bytes(ended - began - part))
        with opened(image, **LARGE) as again:
            assert whole(again, count)
            assert key(count) not in again
            assert again.put(b"next", b"") > count
            assert again.verify().ok


def test_another_process_finds_what_was_written_so(tmp_path: Path) -> None:
    with no_hang(), with_write_map(tmp_path / "s") as store:
        count = store.last_sqn
        store.put(key(count), value(count))
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            assert reader.get(key(count)) == value(count)
            assert len(reader) == count + 1


def test_a_write_map_is_left_after_a_moment(tmp_path: Path) -> None:
    clock, disk = WallClock(1e12), Counted()
    with no_hang(), with_write_map(tmp_path / "s", disk, clock_ms=clock) as store:
        count, before = store.last_sqn, disk.calls
        clock.now += 99
        store.put(key(count), value(count))
        assert disk.calls == before
        clock.now += 1
        store.put(key(count + 1), value(count + 1))
        with store.batch() as batch:
            batch.put("", key(count + 2), value(count + 2))
            batch.put("other", b"key", b"")
        assert disk.calls == before + 2
        assert whole(store, count + 3)


def test_what_is_large_is_written_by_calls(tmp_path: Path) -> None:
    disk = Counted()
    with no_hang(), opened(tmp_path / "s", disk, **LARGE) as store:
        for n in range(1000):
            store.put(key(n), value(n, 5000))
            assert active(store).write_map is NO_MAP
        assert disk.calls >= 1000


def test_a_put_behind_a_write_maps_end_is_written_by_a_call(tmp_path: Path) -> None:
    disk = Counted()
    with no_hang(), with_write_map(tmp_path / "s", disk) as store:
        count, before = store.last_sqn, disk.calls
        long = active(store).write_map[1] - taken(store)
        assert long < 1 << 20
        store.put(b"long", bytes(long))
        store.put(key(count), value(count))
        assert disk.calls > before
        assert (store.get(b"long"), store.get(key(count))) == (bytes(long), value(count))
        assert store.verify().ok


def test_a_put_that_failed_in_it_shuts_it(tmp_path: Path) -> None:
    """What it left is cut off; who wrote where a file was cut would be killed."""

    class Broken:
        def __setitem__(self, place: slice, data: bytes) -> None:
            mapped[place.start : place.stop - 10] = data[:-10]
            raise MemoryError

    with no_hang(), with_write_map(tmp_path / "s") as store:
        count = store.last_sqn
        mapped, end, until_ms = active(store).write_map
        active(store).write_map = Broken(), end, until_ms
        with pytest.raises(MemoryError):
            store.put(key(count), value(count))
        assert active(store).write_map is NO_MAP
        assert not any(active_file(store).read_bytes()[taken(store) :])
        store.put(key(count), value(count))
        assert whole(store, count + 1)
        assert store.verify().ok


@pytest.mark.parametrize("how", ["rolled", "closed"])
def test_no_map_to_write_into_outlives_its_file(tmp_path: Path, how: str) -> None:
    with no_hang():
        store = with_write_map(tmp_path / "s")
        file, count = active(store), store.last_sqn
        if how == "rolled":
            rolled(store)
            assert file.write_map is NO_MAP
            settle(store)
            assert store.put(key(count), value(count)) > count
        store.close()
        assert file.write_map is NO_MAP
        with opened(tmp_path / "s", **LARGE) as again:
            assert whole(again, count + (how == "rolled"))


def test_a_closed_file_says_that_it_changed(tmp_path: Path) -> None:
    """What is put into a map changes no time of a file by itself, and who copies what changed
    would leave it out."""
    with no_hang():
        store = with_write_map(tmp_path / "s")
        path = active_file(store)
        store.put(b"last", b"")
        os.utime(path, (1, 1))
        store.close()
        (found,) = path.parent.glob(f"{path.stem}.*")
        assert found.stat().st_mtime > 1


# ---------------------------------------------------------------- of files


def written(tmp_path: Path) -> AppendFile:
    file = RealDisk().create(str(tmp_path / "file"))
    file.pwrite_all(bytes(100_000), 0)
    return file


def test_what_is_put_into_a_write_map_is_in_the_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    mapped = file.write_map(50_001, 100_000)
    assert mapped is not None
    mapped[60_000:60_005] = b"hello"
    assert file.pread(7, 59_999) == b"\0hello\0"
    assert len(mapped) == 100_000
    file.close()


def on(type_: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(write_map, "type_of", lambda fd: type_)

    return patch


@pytest.mark.parametrize(
    "without",
    [
        on("btrfs"),
        on(""),
        lambda patch: patch.setattr(write_map, "sys", SimpleNamespace(platform="darwin")),
        lambda patch: patch.setattr(write_map, "_POPULATE_WRITE", 9999),
    ],
    ids=["one that writes elsewhere", "one not told", "macOS", "a system before 5.14"],
)
def test_where_a_page_may_kill_there_is_no_write_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: Callable[[pytest.MonkeyPatch], None]
) -> None:
    without(monkeypatch)
    file = written(tmp_path)
    assert file.write_map(50_001, 100_000) is None
    file.close()


def test_a_file_that_was_cut_meanwhile_has_none(tmp_path: Path) -> None:
    file = written(tmp_path)
    os.truncate(tmp_path / "file", 70_000)
    assert file.write_map(50_001, 100_000) is None
    file.close()
    assert file.write_map(50_001, 70_000) is None
