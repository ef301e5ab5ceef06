"""Reads of files whose pages are not in memory: the same answers, by other ways."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest
from descriptors import descriptors
from whole_store import rolled, settle

import octavo
from octavo.actors.journal_file import JournalFile
from octavo.files.door.disk import RealDisk
from octavo.files.errors import StorageFailed
from octavo.files.kernels import cold_pages
from octavo.files.kernels.cold_pages import COLD

SEED = 25
SIZES = (0, 1, 100, 5_000, 70_000)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read waits for a device, as far as can be told."""
    monkeypatch.setattr(COLD, "reads", count().__next__)
    monkeypatch.setattr(COLD, "left", 8)


def filled(path: Path) -> tuple[octavo.Store, dict[bytes, bytes]]:
    """A store with puts of each kind in several sealed files, and what a get is to give."""
    print("seed", SEED)
    rng = random.Random(SEED)
    expected: dict[bytes, bytes] = {}
    store = octavo.open(path)
    for file in range(4):
        for i in range(60):
            key = b"%03d-%d" % (i, file % 3)
            size = rng.choice(SIZES)
            value = rng.randbytes(size) if i % 2 else bytes(size)
            store.put(key, value, **({"metadata": b"m" * i} if i % 5 == 0 else {}))
            expected[key] = value
        store.delete(b"010-%d" % (file % 3))
        expected.pop(b"010-%d" % (file % 3))
        store.put(b"expires-%d" % file, b"later", ttl=3600)
        expected[b"expires-%d" % file] = b"later"
        rolled(store)
    return saved(store), expected


def saved(store: octavo.Store) -> octavo.Store:
    """The store, opened again, so that all of it is in sealed files and in the ledger."""
    rolled(store)
    settle(store)
    store.close()
    again = octavo.open(store.path, max_open_files=16, read_cache_bytes=0)
    settle(again)
    assert not again._bookie.view.recent.rows
    return again


def of_store(store: octavo.Store) -> octavo.Store:
    return store


def of_snapshot(store: octavo.Store) -> octavo.Snapshot:
    return store.snapshot()


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("reads_of", [of_store, of_snapshot])
def test_each_read_gives_what_it_gives_of_files_in_memory(
    tmp_path: Path, reads_of: Callable[[octavo.Store], octavo.Store]
) -> None:
    store, expected = filled(tmp_path / "s")
    with store:
        reads = reads_of(store)
        keys = [*sorted(expected), b"absent", b"010-0"]
        assert [reads.get(key) for key in keys] == [expected.get(key) for key in keys]
        assert reads.get_many(keys) == [expected.get(key) for key in keys]
        assert list(reads.items()) == sorted(expected.items())
        assert list(reads.items(reverse=True)) == sorted(expected.items(), reverse=True)
        behind = [item for item in sorted(expected.items()) if item[0] >= b"03"]
        assert list(islice(reads.items(b"03"), 5)) == behind[:5]


@pytest.mark.usefixtures("cold")
def test_reads_in_the_order_of_the_journal_give_the_same(tmp_path: Path) -> None:
    store, expected = filled(tmp_path / "s")
    with store, store.snapshot() as snapshot:
        assert {item.key: item.value for item in snapshot.items_by_sqn()} == expected
        assert {key for _, key, _ in snapshot.heads_by_sqn()} == set(expected)
        newest = {change.key: change.value for change in store.changes(0)}
        assert {key: newest[key] for key in expected} == expected


@pytest.mark.usefixtures("cold")
def test_values_are_read_by_system_calls_once_reads_wait_for_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, expected = filled(tmp_path / "s")
    with store:
        lengths = counted_preads(monkeypatch)
        assert store.get(b"001-1") == expected[b"001-1"]
        assert len(lengths) == 1


def test_values_come_from_maps_as_long_as_reads_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, expected = filled(tmp_path / "s")
    with store:
        lengths = counted_preads(monkeypatch)
        assert [store.get(key) for key in expected] == list(expected.values())
        assert lengths == []


def counted_preads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    lengths: list[int] = []

    def opened_to_read(self: RealDisk, path: str) -> Callable[[int, int], bytes]:
        fd = os.open(path, os.O_RDONLY)

        def pread(length: int, offset: int) -> bytes:
            lengths.append(length)
            return os.pread(fd, length, offset)

        return pread

    monkeypatch.setattr(RealDisk, "opened_to_read", opened_to_read)
    return lengths


@pytest.mark.usefixtures("cold")
def test_a_file_is_open_twice_no_longer_than_it_is_there(tmp_path: Path) -> None:
    store, expected = filled(tmp_path / "s")
    with store:
        for key in expected:
            store.get(key)
        # Sixteen may be mapped, so two may be open once more.
        assert 1 <= sum(file.pread is not None for file in files_of(store)) <= 2
        for key in expected:
            store.put(key, b"new")
        again = saved(store)
    with again:
        assert again.get_many(expected) == [b"new"] * len(expected)
        again.compact()
        assert again.get_many(expected) == [b"new"] * len(expected)
    assert not descriptors(tmp_path / "s")


def files_of(store: octavo.Store) -> tuple[JournalFile, ...]:
    return store._bookie.view.journal.files


@pytest.mark.usefixtures("cold")
def test_where_no_descriptor_is_left_for_it_the_map_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(self: RealDisk, path: str) -> Callable[[int, int], bytes]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    store, expected = filled(tmp_path / "s")
    with store:
        monkeypatch.setattr(RealDisk, "opened_to_read", no_more)
        assert [store.get(key) for key in expected] == list(expected.values())


@pytest.mark.usefixtures("cold")
def test_a_device_that_cannot_be_read_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RealDisk, path: str) -> Callable[[int, int], bytes]:
        def pread(length: int, offset: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return pread

    store, _ = filled(tmp_path / "s")
    with store:
        monkeypatch.setattr(RealDisk, "opened_to_read", broken)
        with pytest.raises(StorageFailed, match=r"journal/.*Input/output error"):
            store.get(b"001-1")


@pytest.mark.usefixtures("cold")
def test_a_wrong_byte_is_detected(tmp_path: Path) -> None:
    store, expected = filled(tmp_path / "s")
    key = next(key for key, value in expected.items() if len(value) == 5_000 and any(value))
    store.close()
    for path in (tmp_path / "s" / "journal").glob("*.cdb"):
        content = bytearray(path.read_bytes())
        if (at := content.find(expected[key])) >= 0:
            content[at + 2_500] ^= 1
            path.write_bytes(content)
    with octavo.open(tmp_path / "s") as store, pytest.raises(octavo.Corruption):
        store.get(key)


@pytest.mark.usefixtures("cold")
def test_a_scan_that_is_broken_off_has_asked_for_few_values(
    tmp_path: Path, asked: list[int]
) -> None:
    store = octavo.open(tmp_path / "s")
    store.put_many((b"%05d" % i, bytes([i & 255]) * 100) for i in range(20_000))
    with saved(store) as store:
        found = list(islice(store.items(), 50))
    assert len(found) == 50
    assert 0 < len(asked) <= 64 + 10


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each advice to the system began."""
    places: list[int] = []
    ask = cold_pages.ask_to_read

    def noted(mapped: object, low: int, high: int) -> None:
        places.append(low)
        ask(mapped, low, high)  # type: ignore[arg-type]

    monkeypatch.setattr("octavo.actors.reading.values_ahead.ask_to_read", noted)
    return places


def test_a_get_has_its_record_read_and_no_more_around_it(tmp_path: Path) -> None:
    """With maps as the system makes them 200 values of 8 KiB have 25 MiB read and more."""
    print("seed", SEED)
    rng = random.Random(SEED)
    path = tmp_path / "s"
    store = octavo.open(path)
    store.put_many((b"%05d" % i, rng.randbytes(8192)) for i in range(8_000))
    saved(store).close()
    with octavo.open(tmp_path / "other") as other:  # so that all modules are loaded
        other.put(b"key", b"value")
        assert other.get(b"key")
    for file in path.rglob("*.*"):
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    before = read_bytes()
    with octavo.open(path) as store:
        for i in rng.sample(range(8_000), 200):
            assert len(store[b"%05d" % i]) == 8192
    read = read_bytes() - before
    if not read:
        pytest.skip("this file system has no device, or does not tell what was read of it")
    assert read < 12 << 20


def read_bytes() -> int:
    with open("/proc/self/io") as counts:
        return next(int(line.split()[1]) for line in counts if line.startswith("read_bytes"))
