"""Several stores of one process share what it may map, or have open, if nobody says how much each
may have."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from descriptors import descriptors
from whole_store import opened, rolled, settle

import octavo
from octavo.actors import open_files
from octavo.actors.open_files import OpenFiles
from octavo.files.door import maps

FILES = 60
pytestmark = pytest.mark.skipif(
    not maps.HOLDS_DESCRIPTOR, reason="maps hold no descriptors: there are enough for all"
)


def filled(path: Path) -> list[bytes]:
    with opened(path) as store:
        for number in range(FILES):
            store.put(b"%d" % number, b"of %d" % number)
            rolled(store)
        store._running.inker.call(lambda _: None)
    return [b"%d" % number for number in range(FILES)]


@contextmanager
def allowed(count: int) -> Iterator[None]:
    """So many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read(store: octavo.Store, keys: list[bytes]) -> None:
    for _ in range(9):  # so often until each file had its turn to be mapped
        for key in keys:
            assert store.get(key) == b"of " + key


def test_they_take_half_of_the_descriptors_together(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    keys, _, _ = (filled(tmp_path / name) for name in names)
    most = 2 * len(os.listdir("/dev/fd")) + 100
    with allowed(most):
        stores = [opened(tmp_path / name) for name in names]
        for store in stores:
            settle(store)  # or what is merged meanwhile, in this process, takes some, too
        held = len(descriptors(tmp_path))
        for store in stores:
            read(store, keys)
        with octavo.open(tmp_path / "a", read_only=True) as reader:
            for key in keys:
                assert reader.get(key) == b"of " + key
            mapped = sum(len(store._running.open_files) for store in stores)
            assert 0 < mapped <= most // 2
            # Some besides are for reads by calls: one in eight, and of the reader itself.
            assert len(descriptors(tmp_path)) - held <= most // 2 + most // 16 + 8
        for store in stores:
            assert store.verify().ok
            store.close()


def test_one_finds_room_where_another_has_taken_all(tmp_path: Path) -> None:
    keys = filled(tmp_path / "a")
    filled(tmp_path / "b")
    with (
        opened(tmp_path / "a", max_open_files=1000) as large,
        opened(tmp_path / "b", max_open_files=1000) as other,
    ):
        settle(large)
        settle(other)
        assert dict(large.items()).keys() == set(keys)
        assert len(large._running.open_files) > FILES
        other._running.open_files._shrink(0)
        taken = set(map(int, os.listdir("/dev/fd")))
        with allowed([number for number in range(1000) if number not in taken][20]):
            read(other, keys)
            assert 0 < len(large._running.open_files) < FILES
            assert dict(other.items()).keys() == set(keys)
            read(large, keys)
        assert other.verify().ok


def test_one_finds_room_to_scan_what_it_has_just_written_where_another_has_taken_all(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "a")
    with (
        opened(tmp_path / "a", max_open_files=1000) as large,
        octavo.open(tmp_path / "b", read_cache_bytes=0) as other,
    ):
        settle(large)
        other.put_many((b"%04d" % number, bytes(500)) for number in range(2000))
        assert len(list(large.items())) == FILES
        taken = set(map(int, os.listdir("/dev/fd")))
        with allowed(min(number for number in range(1000) if number not in taken)):
            assert len(list(other.items())) == 2000
        assert len(large._running.open_files) < FILES


def test_one_of_its_own_limit_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "_all", set())  # without what other tests have left open

    class File:
        def __init__(self, by: OpenFiles) -> None:
            self.mapped = True
            by.opened(self)

        def map_now(self) -> bytes:
            return b""

        def forget_map(self) -> None:
            self.mapped = False

    with allowed(2 * 20):
        own, first, second = OpenFiles(30), OpenFiles(), OpenFiles()
        kept = [File(own) for _ in range(30)]
        many = [File(first) for _ in range(40)]
        assert [file.mapped for file in many] == [False] * 20 + [True] * 20
        few = [File(second) for _ in range(6)]
        assert all(file.mapped for file in [*kept, *few])
        assert (len(own), len(first), len(second)) == (30, 14, 6)


def test_a_forked_child_asks_no_store_of_its_parent_to_let_go(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    with opened(tmp_path / "a") as store, octavo.open(tmp_path / "a", read_only=True) as reader:
        here = open_files._everyone()
        assert store._running.open_files in here
        assert reader._shared._open_files in here
        child = os.fork()
        if not child:  # a thread of the parent may have had the lock of any but the reader
            left = open_files._everyone()
            right = store._running.open_files not in left and reader._shared._open_files in left
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
