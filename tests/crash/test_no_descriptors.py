"""No file descriptor is left, as a server has none under load, or no room for a map: what is
written goes on to the file that is there, and nothing of it is lost or half known."""

from __future__ import annotations

import errno
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from descriptors import descriptors

import octavo
from octavo.actors.journal_file import JournalFile
from octavo.actors.open_files import OpenFiles


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("how", ["put", "put_many", "batch"])
def test_writes_go_on_without_the_map_of_a_full_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, reason: int
) -> None:
    draw = random.Random(1).randbytes
    wanted: dict[bytes, bytes] = {}
    refused = []
    real = JournalFile.map_now

    def write(store: octavo.Store, name: bytes) -> None:
        pairs = {b"%s/%04d" % (name, n): draw(9000) for n in range(900)}  # 8 MB
        if how == "put":
            for key, value in pairs.items():
                store.put(key, value)
        elif how == "put_many":
            store.put_many(pairs)
        else:
            with store.batch() as batch:
                for key, value in pairs.items():
                    batch.put("", key, value)
        wanted.update(pairs)
        assert store.last_sqn == len(wanted)
        assert dict(store.items()) == wanted

    with octavo.open(tmp_path / "s", roll_size_bytes=1 << 20) as store:

        def none_left(file: JournalFile) -> object:
            if file is store._inker.active:
                refused.append(file.name)
                raise OSError(reason, "none is left", file.path)
            return real(file)

        with monkeypatch.context() as patch:
            patch.setattr(JournalFile, "map_now", none_left)
            write(store, b"meanwhile")
            assert len(list((tmp_path / "s" / "journal").glob("*.log"))) == 1  # no try left another
        first = store._inker.active
        assert first is not None
        assert set(refused) == {first.name}
        write(store, b"after")
        assert store._inker.active is not first
        assert store.verify().ok
    with octavo.open(tmp_path / "s") as store:
        assert dict(store.items()) == wanted
        assert store.stats()["notes"] == []


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.ENOMEM])
def test_a_file_is_mapped_where_there_is_room_for_one_map_alone(reason: int) -> None:
    mapped: list[int] = []
    room = 8

    class Numbered:
        def __init__(self, number: int) -> None:
            self.number = number

        def map_now(self) -> bytes:
            if len(mapped) >= room:
                raise OSError(reason, "none is left")
            mapped.append(self.number)
            return b""

        def forget_map(self) -> None:
            mapped.remove(self.number)

    files = OpenFiles(100)
    for number in range(8):
        files.opened(Numbered(number))
    room = 1
    files.opened(Numbered(8))
    assert mapped == [8]
    room = 0
    with pytest.raises(octavo.StorageFull, match="none is left"):
        files.opened(Numbered(9))


@contextmanager
def none_left() -> Iterator[None]:
    """This process opens nothing; what is open stays so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_name_of_a_new_journal_file_is_synced_without_a_descriptor(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put(b"k", b"v")
        with none_left():
            store.sync()
            store.put(b"k", b"w", sync=True)
        assert store.verify().ok
    with octavo.open(tmp_path / "s", worker=False) as store:
        assert store[b"k"] == b"w"
        assert store.stats()["notes"] == []


def test_an_opening_without_a_descriptor_says_so_and_leaves_none_open(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put(b"k", b"v")
    with none_left(), pytest.raises(octavo.StorageFull, match="raise the limit"):
        octavo.open(tmp_path / "s", worker=False)
    with octavo.open(tmp_path / "s", worker=False) as store:
        assert store[b"k"] == b"v"
        assert descriptors(tmp_path / "s")
    assert not descriptors(tmp_path / "s")
