"""What is read of a journal file while its owner writes is all that came before, and no less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from whole_store import opened

import octavo
from octavo.files.door import maps
from octavo.files.door.disk import RealDisk
from octavo.pipeline.feed_files import JournalLook


def read_only(path: str) -> int:
    with octavo.open(path, read_only=True) as reader:
        assert len(reader) == reader.sqn
        return reader.sqn


def feed(path: str) -> int:
    look = JournalLook(RealDisk(), path)
    newest = look.newest()
    assert sum(len(places) for _, places in look._places.values()) == newest
    return newest


@pytest.mark.parametrize("read", [read_only, feed])
def test_a_record_is_not_seen_without_the_one_before_it(
    read: Callable[[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that the system lets wait in the midst of zeros, which stand behind the records,
    finds behind them what was written meanwhile."""
    with opened(tmp_path / "s", sync="none") as store:
        store.put(b"a", b"1")
        file = store._inker.active
        assert file is not None
        at = file.offsets[-1]
        with open(file.path, "r+b") as lengthened:
            lengthened.truncate(at + 4096)
        met = []

        plain = maps._pread_into

        def waiting(fd: int, room: memoryview, begin: int) -> int:
            if met:
                return plain(fd, room, begin)
            met.append(True)
            passed = at + 40 - begin
            taken = plain(fd, room[:passed], begin)
            store.put(b"b", b"2" * 100)
            store.put(b"c", b"3")
            return taken + plain(fd, room[passed:], begin + passed)

        monkeypatch.setattr(maps, "_pread_into", waiting)
        assert read(store.path) in (1, 3)
        assert met
        assert read(store.path) == 3
