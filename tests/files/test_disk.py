"""What every disk promises: one suite for the operating system and for the simulated disk."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import tempfile
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk, RealDisk, directory_of
from octavo.files.errors import Corruption, OctavoError, StoreLocked


@dataclass
class Place:
    """A disk and an empty directory on it."""

    disk: Disk
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, content: bytes = b"") -> str:
        path = self.path(name)
        file = self.disk.create(path)
        file.write_all(content)
        file.close()
        return path


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealDisk(), str(tmp_path))
    disk = SimDisk()
    disk.mkdir("/store")
    return Place(disk, "/store")


# ---------------------------------------------------------------- open files


def test_a_created_file_is_empty(place: Place) -> None:
    assert place.disk.size(place.put("a")) == 0


def test_create_refuses_a_name_that_is_taken(place: Place) -> None:
    path = place.put("a", b"kept")
    with pytest.raises(FileExistsError):
        place.disk.create(path)
    assert place.disk.read(path, 100) == b"kept"


def test_create_in_a_missing_directory_raises_file_not_found(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.create(place.path("none/a"))


def test_writes_go_to_the_end_and_can_be_read_at_once(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    assert file.write(b"hello ") == 6
    file.write_all(b"world")
    assert file.pread(5, 6) == b"world"
    file.close()


def test_pread_of_an_open_file_is_short_where_the_file_ends(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"hello")
    assert file.pread(10, 3) == b"lo"
    assert file.pread(10, 5) == b""
    file.close()


def test_pwrite_leaves_the_end_where_it_is(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"0123456789")
    file.pwrite_all(b"ab", 2)
    file.write_all(b"x")
    assert file.pread(100, 0) == b"01ab456789x"
    file.close()


def test_a_write_behind_the_end_leaves_zeros_between(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.pwrite_all(b"x", 4)
    assert file.pread(100, 0) == b"\0\0\0\0x"
    file.close()


@pytest.mark.parametrize(
    "buf", [b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), memoryview(array("H", [1, 2]))]
)
def test_write_all_takes_any_contiguous_buffer(
    place: Place, buf: bytes | bytearray | memoryview
) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(buf)
    file.pwrite_all(buf, 4)
    assert file.pread(100, 0) == bytes(buf) * 2
    file.close()


def test_write_all_of_nothing_writes_nothing(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"")
    file.pwrite_all(memoryview(b""), 100)
    assert place.disk.size(file.path) == 0
    file.close()


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_write_all_goes_on_after_short_writes(place: Place, step: int) -> None:
    file = place.disk.create(place.path("a"))
    whole, data = file.write, array("H", range(50))
    file.write = lambda buf: whole(memoryview(buf).cast("B")[:step])
    file.write_all(memoryview(data))
    assert file.pread(1000, 0) == data.tobytes()
    file.close()


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_pwrite_all_goes_on_after_short_writes(place: Place, step: int) -> None:
    file = place.disk.create(place.path("a"))
    whole, data = file.pwrite, array("H", range(50))
    file.pwrite = lambda buf, offset: whole(memoryview(buf).cast("B")[:step], offset)
    file.pwrite_all(memoryview(data), 7)
    assert file.pread(1000, 7) == data.tobytes()
    file.close()


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write = lambda buf: 0
    with pytest.raises(OSError, match="took nothing"):
        file.write_all(b"x")
    file.close()


def test_truncate_cuts_and_writing_goes_on_there(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"0123456789")
    file.truncate(4)
    file.write_all(b"x")
    assert place.disk.read(file.path, 100) == b"0123x"
    file.close()


def test_truncate_beyond_the_end_lengthens_nothing(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"01")
    file.truncate(3)
    file.write_all(b"x")
    assert place.disk.read(file.path, 100) == b"01x"
    file.close()


def test_sync_of_an_open_file_returns_with_its_bytes_there(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"x")
    file.sync()
    file.close()
    place.disk.sync_file(file.path)
    assert place.disk.read(file.path, 1) == b"x"


def test_a_sync_that_was_waited_for_has_the_bytes_there(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"x")
    wait = file.begin_sync()
    file.close()
    wait()
    assert place.disk.read(file.path, 1) == b"x"


def test_close_is_idempotent(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.close()
    file.close()
    assert file.fd == -1


@pytest.mark.parametrize("call", ["write", "write_all", "pread", "pwrite_all", "sync", "truncate"])
def test_every_call_on_a_closed_file_is_a_bad_descriptor(place: Place, call: str) -> None:
    file = place.disk.create(place.path("a"))
    file.close()
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: file.write(b"x"),
        "write_all": lambda: file.write_all(b"x"),
        "pread": lambda: file.pread(1, 0),
        "pwrite_all": lambda: file.pwrite_all(b"x", 0),
        "sync": file.sync,
        "truncate": lambda: file.truncate(0),
    }
    with pytest.raises(OSError, match="closed") as raised:
        calls[call]()
    assert raised.value.errno == errno.EBADF
    assert raised.value.filename == file.path


def test_reopen_goes_on_at_the_length_given(place: Place) -> None:
    file = place.disk.reopen(place.put("a", b"0123456789"), 10)
    file.write_all(b"x")
    assert file.pread(100, 0) == b"0123456789x"
    file.close()


def test_reopen_cuts_off_what_is_behind(place: Place) -> None:
    path = place.put("a", b"0123456789")
    place.disk.reopen(path, 4).close()
    assert place.disk.read(path, 100) == b"0123"


def test_reopen_refuses_a_file_shorter_than_told(place: Place) -> None:
    path = place.put("a", b"0123")
    with pytest.raises(Corruption) as raised:
        place.disk.reopen(path, 5)
    assert (raised.value.file, raised.value.offset) == (path, 4)
    assert place.disk.read(path, 100) == b"0123"


# ---------------------------------------------------------------- reading


def test_map_shows_the_whole_file(place: Place) -> None:
    assert place.disk.map(place.put("a", b"hello"))[:] == b"hello"


def test_map_of_an_empty_file_is_empty(place: Place) -> None:
    assert place.disk.map(place.put("a")) == b""


def test_a_map_outlives_the_name_of_its_file(place: Place) -> None:
    path = place.put("a", b"hello")
    view = memoryview(place.disk.map(path))
    place.disk.unlink(path)
    gc.collect()
    assert bytes(view[1:3]) == b"el"


def test_a_map_cannot_be_written(place: Place) -> None:
    assert memoryview(place.disk.map(place.put("a", b"hello"))).readonly


def test_read_gives_a_file_of_exactly_the_limit(place: Place) -> None:
    assert place.disk.read(place.put("a", b"hello"), 5) == b"hello"


def test_read_refuses_a_file_above_the_limit(place: Place) -> None:
    path = place.put("a", b"hello")
    with pytest.raises(Corruption) as raised:
        place.disk.read(path, 4)
    assert (raised.value.file, raised.value.expected, raised.value.found) == (path, 4, 5)


def test_pread_of_a_path_gives_the_part_and_no_more_than_there_is(place: Place) -> None:
    path = place.put("a", b"hello")
    assert place.disk.pread(path, 3, 1) == b"ell"
    assert place.disk.pread(path, 3, 4) == b"o"
    assert place.disk.pread(path, 3, 99) == b""


def test_pread_of_a_path_takes_no_memory_for_a_length_the_file_does_not_have(place: Place) -> None:
    assert place.disk.pread(place.put("a", b"hello"), 1 << 60, 1) == b"ello"


READERS: dict[str, Callable[[Disk, str], object]] = {
    "map": lambda disk, path: disk.map(path),
    "map_growing": lambda disk, path: disk.map_growing(path),
    "read": lambda disk, path: disk.read(path, 1),
    "pread": lambda disk, path: disk.pread(path, 1, 0),
    "size": lambda disk, path: disk.size(path),
    "links": lambda disk, path: disk.links(path),
    "listdir": lambda disk, path: disk.listdir(path),
    "unlink": lambda disk, path: disk.unlink(path),
    "rmdir": lambda disk, path: disk.rmdir(path),
    "rename": lambda disk, path: disk.rename(path, path + "2"),
    "link": lambda disk, path: disk.link(path, path + "2"),
    "reopen": lambda disk, path: disk.reopen(path, 0),
    "sync_file": lambda disk, path: disk.sync_file(path),
    "hold_file": lambda disk, path: disk.hold_file(path),
    "sync_dir": lambda disk, path: disk.sync_dir(path),
    "free_bytes": lambda disk, path: disk.free_bytes(path),
    "check_supported": lambda disk, path: disk.check_supported(path),
}


@pytest.mark.parametrize("call", READERS)
def test_a_missing_file_raises_file_not_found(place: Place, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        READERS[call](place.disk, place.path("none"))


@pytest.mark.parametrize(
    "call", ["map", "map_growing", "read", "pread", "reopen", "sync_file", "link", "hold_file"]
)
def test_a_directory_is_not_taken_for_a_file(place: Place, call: str) -> None:
    place.disk.mkdir(place.path("d"))
    with pytest.raises(Corruption, match="found directory"):
        READERS[call](place.disk, place.path("d"))


def test_a_directory_is_not_locked_as_a_file(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    with pytest.raises(Corruption, match="found directory"):
        place.disk.lock(place.path("d"))


def test_a_directory_is_not_unlinked_as_a_file(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    with pytest.raises(IsADirectoryError):
        place.disk.unlink(place.path("d"))


@pytest.mark.parametrize("call", ["listdir", "sync_dir"])
def test_a_file_is_not_taken_for_a_directory(place: Place, call: str) -> None:
    with pytest.raises(NotADirectoryError):
        READERS[call](place.disk, place.put("a"))


def test_exists_tells_files_directories_and_nothing_apart(place: Place) -> None:
    path = place.put("a")
    assert place.disk.exists(path)
    assert place.disk.exists(place.root)
    assert not place.disk.exists(place.path("b"))
    assert not place.disk.exists(path + "/below-a-file")


def test_listdir_is_sorted(place: Place) -> None:
    for name in ("b", "c", "a", "B"):
        place.put(name)
    assert place.disk.listdir(place.root) == ["B", "a", "b", "c"]


# ---------------------------------------------------------------- names


def test_rename_replaces_the_target(place: Place) -> None:
    place.disk.rename(place.put("a", b"new"), place.put("b", b"old"))
    assert place.disk.listdir(place.root) == ["b"]
    assert place.disk.read(place.path("b"), 100) == b"new"


def test_rename_between_two_names_of_one_file_does_nothing(place: Place) -> None:
    path = place.put("a")
    place.disk.link(path, place.path("b"))
    place.disk.rename(path, place.path("b"))
    assert place.disk.listdir(place.root) == ["a", "b"]


def test_a_file_that_is_open_goes_with_its_new_name(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    place.disk.rename(place.path("a"), place.path("b"))
    file.write_all(b"x")
    file.close()
    assert place.disk.read(place.path("b"), 100) == b"x"


def test_a_directory_is_renamed_with_what_is_in_it(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    place.put("d/a", b"x")
    place.disk.rename(place.path("d"), place.path("e"))
    assert place.disk.read(place.path("e/a"), 100) == b"x"


def test_link_gives_one_file_two_names(place: Place) -> None:
    path = place.put("a", b"x")
    place.disk.link(path, place.path("b"))
    assert (place.disk.links(path), place.disk.links(place.path("b"))) == (2, 2)
    place.disk.unlink(path)
    assert place.disk.links(place.path("b")) == 1
    assert place.disk.read(place.path("b"), 100) == b"x"


def test_link_refuses_a_name_that_is_taken(place: Place) -> None:
    with pytest.raises(FileExistsError):
        place.disk.link(place.put("a"), place.put("b"))


def test_an_open_file_is_readable_after_its_name_is_gone(place: Place) -> None:
    file = place.disk.create(place.path("a"))
    file.write_all(b"x")
    place.disk.unlink(file.path)
    assert file.pread(1, 0) == b"x"
    file.close()


def test_mkdir_makes_the_parents_too(place: Place) -> None:
    place.disk.mkdir(place.path("x/y/z"))
    assert place.disk.listdir(place.path("x/y")) == ["z"]


def test_mkdir_of_a_directory_that_exists_changes_nothing(place: Place) -> None:
    place.put("a")
    place.disk.mkdir(place.root)
    assert place.disk.listdir(place.root) == ["a"]


def test_mkdir_refuses_where_a_file_is_in_the_way(place: Place) -> None:
    path = place.put("a")
    for within in ("", "/b/c"):
        with pytest.raises(NotADirectoryError):
            place.disk.mkdir(path + within)


# ---------------------------------------------------------------- composed calls


def test_write_atomically_creates_and_replaces(place: Place) -> None:
    for content in (b"first", b"second"):
        place.disk.write_atomically(place.path("a"), content)
        assert place.disk.read(place.path("a"), 100) == content
    assert place.disk.listdir(place.root) == ["a"]


def test_write_atomically_does_not_write_into_what_a_crash_left(place: Place) -> None:
    left = place.put("a" + TEMPORARY_SUFFIX, b"left")
    place.disk.link(left, place.path("other-name"))
    place.disk.write_atomically(place.path("a"), b"new")
    assert place.disk.read(place.path("other-name"), 100) == b"left"


def test_write_atomically_cleans_up_where_it_cannot_finish(place: Place) -> None:
    place.disk.mkdir(place.path("d"))
    with pytest.raises(IsADirectoryError):
        place.disk.write_atomically(place.path("d"), b"x")
    assert place.disk.listdir(place.root) == ["d"]


@pytest.mark.parametrize(
    ("path", "directory"),
    [("/a/b", "/a"), ("/a/b/", "/a"), ("/a", "/"), ("/", "/"), ("a/b", "a"), ("a", "."), ("", ".")],
)
def test_directory_of_a_name(path: str, directory: str) -> None:
    assert directory_of(path) == directory


# ---------------------------------------------------------------- locks and the rest


def test_a_lock_keeps_a_second_opener_of_this_process_out(place: Place) -> None:
    lock = place.disk.lock(place.path("lock"))
    with pytest.raises(StoreLocked) as raised:
        place.disk.lock(place.path("lock"))
    assert place.path("lock") in str(raised.value)
    assert str(os.getpid()) in str(raised.value)
    lock.release()


def test_a_released_lock_can_be_taken_again(place: Place) -> None:
    first = place.disk.lock(place.path("lock"))
    first.release()
    second = place.disk.lock(place.path("lock"))
    first.release()  # idempotent: does not let go of the second one
    with pytest.raises(StoreLocked):
        place.disk.lock(place.path("lock"))
    second.release()


def test_a_forgotten_lock_is_released(place: Place) -> None:
    place.disk.lock(place.path("lock"))
    gc.collect()
    place.disk.lock(place.path("lock")).release()


def test_of_many_threads_one_gets_the_lock(place: Place) -> None:
    start, held, refused = threading.Barrier(8), [], []

    def race() -> None:
        start.wait()
        try:
            held.append(place.disk.lock(place.path("lock")))
        except StoreLocked as error:
            refused.append(error)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 7)
    held[0].release()


def test_there_is_room(place: Place) -> None:
    assert place.disk.free_bytes(place.root) > 0


def test_check_supported_leaves_nothing_behind(place: Place) -> None:
    place.disk.check_supported(place.root)
    assert place.disk.listdir(place.root) == []


# ---------------------------------------------------------------- both alike

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/a", "a/x"])
CONTENT = st.binary(max_size=6)
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), NAMES, CONTENT),
    st.tuples(st.just("append"), NAMES, st.integers(0, 5), CONTENT),
    st.tuples(st.just("write_atomically"), NAMES, CONTENT),
    st.tuples(st.sampled_from(["rename", "link"]), NAMES, NAMES),
    st.tuples(st.sampled_from(["unlink", "mkdir", "listdir", "exists"]), NAMES),
    st.tuples(st.sampled_from(["map", "sync_file", "sync_dir"]), NAMES),
    st.tuples(st.just("read"), NAMES, st.integers(0, 6)),
    st.tuples(st.just("pread"), NAMES, st.integers(0, 6), st.integers(0, 6)),
)
Operation = tuple[Any, ...]


def outcome(place: Place, operation: Operation) -> object:
    """What a caller sees of one operation: its answer or the kind of its error."""
    name, *given_arguments = operation
    arguments: list[Any] = [
        place.path(each) if isinstance(each, str) else each for each in given_arguments
    ]
    try:
        if name == "put":
            return place.put(operation[1], arguments[1]).removeprefix(place.root)
        if name == "append":
            file = place.disk.reopen(arguments[0], arguments[1])
            file.write_all(arguments[2])
            file.close()
            return None
        answer = getattr(place.disk, name)(*arguments)
    except OSError as error:
        return type(error), error.errno
    except OctavoError as error:
        return type(error)
    return bytes(answer) if isinstance(answer, bytes | mmap.mmap) else answer


def tree(place: Place, directory: str) -> list[tuple[str, bytes, int]]:
    found = []
    for name in place.disk.listdir(directory):
        path = f"{directory}/{name}"
        try:
            found.extend(tree(place, path))
        except NotADirectoryError:
            content = place.disk.read(path, 1 << 20)
            found.append((path.removeprefix(place.root), content, place.disk.links(path)))
    return found


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(OPERATIONS, max_size=25))
def test_the_simulated_disk_answers_as_the_real_one(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        real, simulated = Place(RealDisk(), directory), Place(SimDisk(), "/store")
        simulated.disk.mkdir("/store")
        for operation in operations:
            assert outcome(simulated, operation) == outcome(real, operation), operation
        assert tree(simulated, simulated.root) == tree(real, real.root)
