"""How far a file is mapped, and how many maps and descriptors a process may have."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from descriptors import descriptors

from octavo.actors import open_files
from octavo.actors.open_files import OpenFiles
from octavo.files.door import maps
from octavo.files.door.disk import RealDisk
from octavo.files.lifecycle import State

FILES = 20
TB = 1 << 40


def test_a_map_holds_a_descriptor_only_before_3_13(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(FILES)]
    for path in paths:
        path.write_bytes(path.name.encode())
    mapped = [RealDisk().map(str(path)) for path in paths]
    held = len(descriptors(str(tmp_path)))
    assert [found[:] for found in mapped] == [path.name.encode() for path in paths]
    assert held == (FILES if maps.HOLDS_DESCRIPTOR else 0)


def test_a_copy_has_all_that_was_written_before_its_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended in two writes while the reading waits within the zeros that stood there."""
    path = tmp_path / "growing"
    path.write_bytes(b"first" + bytes(95))
    plain, met = maps._pread_into, list[int]()

    def waiting(fd: int, room: memoryview, begin: int) -> int:
        if met:
            return plain(fd, room, begin)
        met.append(begin)
        taken = plain(fd, room[: 50 - begin], begin)
        path.write_bytes(b"first" + b"second" * 10 + b"third" + bytes(30))
        return taken + plain(fd, room[50 - begin :], 50)

    monkeypatch.setattr(maps, "_pread_into", waiting)
    assert RealDisk().map_growing(str(path), 0)[:] == path.read_bytes()


def test_a_hole_that_makes_a_file_longer_than_a_stores_is_not_read(tmp_path: Path) -> None:
    disk, path = RealDisk(), tmp_path / "lengthened"
    path.write_bytes(b"all there is")
    os.truncate(path, TB)
    for found in (disk.map(str(path)), disk.map_growing(str(path)), disk.pread(str(path), TB, 0)):
        assert found[:].rstrip(b"\0") == b"all there is"
        assert len(found) == disk.size(str(path)) <= 1 << 16


def test_a_long_file_is_read_up_to_the_last_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        for place in (0, 3 << 30, 5 << 30):
            file.seek(place)
            file.write(b"data")
    assert RealDisk().size(str(path)) == (5 << 30) + 4
    assert RealDisk().map(str(path))[-4:] == b"data"


@pytest.mark.parametrize(
    ("descriptors_allowed", "by_descriptors"),
    [(1024, 512), (256, 128), (4, 8), (1 << 20, 1 << 14), (resource.RLIM_INFINITY, 1 << 14)],
)
@pytest.mark.parametrize("holds", [True, False])
def test_as_many_files_are_mapped_as_the_process_may_have(
    monkeypatch: pytest.MonkeyPatch, descriptors_allowed: int, by_descriptors: int, *, holds: bool
) -> None:
    monkeypatch.setattr(maps, "HOLDS_DESCRIPTOR", holds)
    monkeypatch.setattr(
        maps.resource, "getrlimit", lambda which: (descriptors_allowed, descriptors_allowed)
    )
    assert OpenFiles().limit == (by_descriptors if holds else 1 << 14)
    assert OpenFiles(100).limit == 100


def test_reads_by_calls_keep_an_eighth_of_half_the_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the number of maps: each of these holds a descriptor in any Python."""
    monkeypatch.setattr(maps, "HOLDS_DESCRIPTOR", False)
    monkeypatch.setattr(maps.resource, "getrlimit", lambda which: (64, 64))
    monkeypatch.setattr(open_files, "_all", set())  # stores that other tests left take their share

    class Called:
        path = "here"
        pread = None
        disk = RealDisk()
        state = State.SEALED

        def by_name(self, found: object) -> object:
            return lambda length, at: b"x" * length

    files = OpenFiles()
    many = [Called() for _ in range(5)]
    for file in many:
        assert files.read(file, 0, 3) == b"xxx"  # type: ignore[arg-type]
    assert sum(file.pread is not None for file in many) == 1  # 64 / 2 / 8 are kept, then others
