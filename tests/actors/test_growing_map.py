"""Reads of the file that is being written: through a map, which goes as far as it once went."""

from __future__ import annotations

import errno
import gc
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from beside import until
from whole_store import opened, rolled

import octavo
from octavo.actors import journal_file
from octavo.actors.journal_file import JournalFile
from octavo.actors.reading.growing_map import GrowingMap


def being_written(store: octavo.Store) -> JournalFile:
    active = store._inker.active
    assert active is not None
    return active


def no_call(length: int, offset: int) -> NoReturn:
    raise AssertionError(f"a system call for {length} bytes at {offset}")


def test_reads_of_recent_values_soon_need_no_system_call(tmp_path: Path) -> None:
    expected = {b"%03d" % i: b"value %d" % i * (i + 1) for i in range(100)}
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.put_many(expected)
        assert {key: store.get(key) for key in expected} == expected
        being_written(store).file.pread = no_call  # type: ignore[union-attr]
        assert {key: store.get(key) for key in expected} == expected
        assert [store.head(key).size for key in expected] == list(map(len, expected.values()))


def test_what_is_written_behind_the_map_is_read(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        for number in range(300):
            store.put(b"%03d" % number, b"value %d" % number)
            for back in (0, number // 2, number):
                assert store.get(b"%03d" % (number - back)) == b"value %d" % (number - back)
        assert 0 < len(being_written(store).growing.mapped) <= being_written(store).offsets[-1]


def test_what_is_longer_than_a_system_call_reads_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_READ_BYTES", 1000)
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.put("long", b"1" * 1500)
        pread = being_written(store).file.pread  # type: ignore[union-attr]
        being_written(store).file.pread = lambda length, at: pread(  # type: ignore[union-attr]
            min(length, 1000), at
        )
        assert store.get("long") == b"1" * 1500
        assert list(store.values()) == [b"1" * 1500]


def test_a_read_that_a_device_breaks_off_is_no_damage(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        value = os.urandom(5_000)
        store.put("key", value)
        active = being_written(store)
        pread = active.file.pread  # type: ignore[union-attr]

        def to_a_place(length: int, at: int) -> bytes:
            if at >= 2_500:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return pread(min(length, 2_500 - at), at)

        active.file.pread = to_a_place  # type: ignore[union-attr]
        with pytest.raises(octavo.StorageFailed, match="Input/output error"):
            store.get("key")
        active.file.pread = pread  # type: ignore[union-attr]
        assert store.get("key") == value


def test_what_stands_where_a_failed_write_was_cut_off_is_read(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.put(b"first", b"1" * 5000)
        active = being_written(store)
        write = active.file.pwrite  # type: ignore[union-attr]

        def half(data: bytes, at: int) -> NoReturn:
            write(data[: len(data) // 2], at)
            active.growing.up_to(active.offsets[-1] + len(data) // 2)  # the map goes that far
            raise OSError(errno.ENOSPC, "no space left")

        active.file.pwrite = half  # type: ignore[assignment,union-attr]
        with pytest.raises(octavo.StorageFull):
            store.put(b"failed", b"2" * 1000)
        active.file.pwrite = write  # type: ignore[union-attr]
        store.put(b"after", b"3" * 900)
        assert (store.get(b"first"), store.get(b"after")) == (b"1" * 5000, b"3" * 900)
        assert b"failed" not in store


def test_a_file_that_was_rolled_keeps_no_map_of_its_growing(tmp_path: Path) -> None:
    expected = {b"%03d" % i: b"value %d" % i for i in range(100)}
    with opened(tmp_path / "s", read_cache_bytes=0, roll_count=4096) as store:
        store.put_many(expected)
        assert {key: store.get(key) for key in expected} == expected
        active = being_written(store)
        assert len(active.growing.mapped)
        rolled(store)
        assert active.growing.mapped == b""
        assert {key: store.get(key) for key in expected} == expected


def as_a_read_begins(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Have another thread do it while the next read behind the map is about to call the system."""
    missed = GrowingMap.missed

    def late(growing: GrowingMap) -> object:
        monkeypatch.undo()
        other = threading.Thread(target=what)
        other.start()
        other.join()
        return missed(growing)

    monkeypatch.setattr(GrowingMap, "missed", late)


def test_what_is_being_read_as_its_file_is_sealed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.put(b"key", b"value")
        active = being_written(store)

        def sealed() -> None:
            rolled(store)
            until(lambda: active.file is None, "the file is sealed")

        as_a_read_begins(monkeypatch, sealed)
        assert store.get(b"key") == b"value"
        assert being_written(store) is not active


@pytest.mark.parametrize("read", ["get", "head", "items"])
def test_what_is_being_read_as_the_store_is_closed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    store = opened(tmp_path / "s", read_cache_bytes=0)
    store.put(b"key", b"value")
    as_a_read_begins(monkeypatch, store.close)
    with pytest.raises(octavo.Closed):
        {"get": store.get, "head": store.head, "items": lambda _: list(store.items())}[read](b"key")


def test_where_no_map_is_to_be_had_the_old_one_stays() -> None:
    maps = [b"12345678"]

    def map_now() -> bytes:
        if not maps:
            raise OSError(errno.EMFILE, "no descriptor left")
        return maps.pop()

    growing = GrowingMap(map_now, map_now)
    assert growing.up_to(8) == b"12345678"
    assert {growing.missed() for _ in range(100)} == {b"12345678"}
    with pytest.raises(OSError, match="no descriptor left"):
        growing.up_to(9)


@contextmanager
def no_descriptor() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what others left must not give one back in here
    gc.disable()
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("read", ["items", "arrow"])
def test_a_scan_without_a_descriptor_for_it_says_so(tmp_path: Path, read: str) -> None:
    def scanned() -> int:
        if read == "arrow":
            with store.snapshot() as snap:
                return snap.to_arrow().read_all().num_rows
        return len(list(store.items()))

    with octavo.open(tmp_path / "s", read_cache_bytes=0) as store:
        store.put_many((b"%04d" % number, bytes(500)) for number in range(2000))
        assert scanned() == 2000
        store.put_many((b"%04d" % number, bytes(500)) for number in range(2000))
        with no_descriptor(), pytest.raises(octavo.StorageFull, match="raise the limit"):
            scanned()
        assert scanned() == 2000
