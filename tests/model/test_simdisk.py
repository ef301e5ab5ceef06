"""The simulated disk loses what it must lose, keeps what it must keep, and fails on demand."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import CRASH_POINTS, MODES, READS, SimCrash, SimDisk
from simimage import SECTOR_BYTES

from octavo.files.door.disk import Disk
from octavo.files.errors import StoreLocked

SEEDS = range(40)


def put(disk: Disk, path: str, content: bytes, *, sync: bool = False) -> None:
    file = disk.create(path)
    file.write_all(content)
    if sync:
        file.sync()
    file.close()


def images(disk: SimDisk, mode: str) -> list[dict[str, bytes]]:
    return [disk.after_crash(mode, seed).files() for seed in SEEDS]


# ---------------------------------------------------------------- what survives


def test_nothing_is_durable_before_a_sync() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    assert disk.after_crash("nothing").files() == {}


def test_all_keeps_everything() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    assert disk.after_crash("all").files() == {"/a": b"x"}


def test_syncing_a_new_file_does_not_make_its_name_durable() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x", sync=True)
    assert disk.after_crash("nothing").files() == {}


def test_syncing_the_directory_does_not_make_the_bytes_durable() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    disk.sync_dir("/")
    assert disk.after_crash("nothing").files() == {"/a": b""}


@pytest.mark.parametrize("mode", MODES)
def test_what_was_synced_with_its_name_survives_every_crash(mode: str) -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    put(disk, "/d/a", b"x" * 2000, sync=True)
    disk.sync_dir("/d")
    assert images(disk, mode) == [{"/d/a": b"x" * 2000}] * len(SEEDS)


def test_sync_file_makes_bytes_durable_that_another_descriptor_wrote() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    disk.sync_file("/a")
    disk.sync_dir("/")
    assert disk.after_crash("nothing").files() == {"/a": b"x"}


def test_mkdir_is_durable_all_the_way_down() -> None:
    disk = SimDisk()
    disk.mkdir("/x/y/z")
    assert disk.after_crash("nothing").listdir("/x/y") == ["z"]


def test_mkdir_makes_durable_what_a_killed_process_left() -> None:
    disk = SimDisk()
    disk.crash_at(3)  # the first two sync the root and make the directory
    with pytest.raises(SimCrash):
        disk.mkdir("/x")
    found = disk.after_kill()
    found.mkdir("/x/y")
    assert found.after_crash("nothing").listdir("/x") == ["y"]


def test_a_kill_loses_nothing_and_makes_nothing_durable() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    lock = disk.lock("/lock")
    found = disk.after_kill()
    assert found.read("/a", 10) == b"x"
    assert found.after_crash("nothing").files() == {}
    found.lock("/lock").release()
    lock.release()


def test_a_killed_process_does_nothing_any_more() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.after_kill()
    with pytest.raises(SimCrash):
        file.write(b"x")


def test_a_random_subset_has_holes_and_whole_writes() -> None:
    disk = SimDisk()
    put(disk, "/a", b"", sync=True)
    disk.sync_dir("/")
    file = disk.reopen("/a", 0)
    for letter in b"abcd":
        file.write_all(bytes([letter]) * 3)
    found = {image["/a"] for image in images(disk, "random_subset")}
    assert b"\0\0\0bbb\0\0\0ddd" in found or b"aaa\0\0\0ccc" in found
    assert {len(each) % 3 for each in found} == {0}
    assert len(found) > 5


def test_a_torn_write_survives_by_whole_sectors() -> None:
    disk = SimDisk()
    put(disk, "/a", b"", sync=True)
    disk.sync_dir("/")
    disk.reopen("/a", 0).write_all(b"x" * (4 * SECTOR_BYTES))
    found = {image["/a"] for image in images(disk, "torn")}
    partial = [each for each in found if 0 < each.count(b"x") < 4 * SECTOR_BYTES]
    assert partial
    for image in found:
        for at in range(0, len(image), SECTOR_BYTES):
            assert image[at : at + SECTOR_BYTES] in (b"x" * SECTOR_BYTES, bytes(SECTOR_BYTES))


def test_a_torn_file_may_have_its_length_without_its_bytes() -> None:
    disk = SimDisk()
    put(disk, "/a", b"", sync=True)
    disk.sync_dir("/")
    disk.reopen("/a", 0).write_all(b"x" * 100)
    assert bytes(100) in {image["/a"] for image in images(disk, "torn")}


def test_a_torn_overwrite_keeps_the_old_bytes_of_the_other_sectors() -> None:
    disk = SimDisk()
    put(disk, "/a", b"o" * (2 * SECTOR_BYTES), sync=True)
    disk.sync_dir("/")
    disk.reopen("/a", 2 * SECTOR_BYTES).pwrite_all(b"n" * (2 * SECTOR_BYTES), 0)
    found = {image["/a"] for image in images(disk, "torn")}
    old, new = b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES
    assert found == {old + old, old + new, new + old, new + new}


def test_what_was_written_behind_a_lost_truncation_is_lost_with_it() -> None:
    disk = SimDisk()
    put(disk, "/a", b"old-tail", sync=True)
    disk.sync_dir("/")
    disk.reopen("/a", 3).write_all(b"!")
    found = {image["/a"] for image in images(disk, "random_subset")}
    assert found == {b"old-tail", b"old", b"old!"}


def test_names_in_order_never_show_a_later_change_without_an_earlier_one() -> None:
    disk = SimDisk()
    for name in "abc":
        put(disk, f"/{name}", b"")
    found = {tuple(image) for image in images(disk, "random_subset")}
    assert found == {(), ("/a",), ("/a", "/b"), ("/a", "/b", "/c")}


def test_reordered_names_survive_one_without_the_other() -> None:
    disk = SimDisk()
    for name in "ab":
        put(disk, f"/{name}", b"")
    found = {tuple(image) for image in images(disk, "names_reordered")}
    assert found == {(), ("/a",), ("/b",), ("/a", "/b")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["/b", "/d/b"])
@pytest.mark.parametrize("synced", ["", "/", "/d"])
def test_a_rename_never_loses_the_file(mode: str, target: str, synced: str) -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    put(disk, "/a", b"x", sync=True)
    disk.sync_dir("/")
    disk.rename("/a", target)
    if synced:
        disk.sync_dir(synced)
    for image in images(disk, mode):
        assert image
        assert set(image) <= {"/a", target}


@pytest.mark.parametrize("mode", MODES)
def test_a_rename_that_was_synced_is_there(mode: str) -> None:
    disk = SimDisk()
    put(disk, "/a", b"new", sync=True)
    put(disk, "/b", b"old", sync=True)
    disk.sync_dir("/")
    disk.rename("/a", "/b")
    disk.sync_dir("/")
    assert images(disk, mode) == [{"/b": b"new"}] * len(SEEDS)


@pytest.mark.parametrize("mode", MODES)
def test_a_replaced_file_is_the_old_or_the_new_one(mode: str) -> None:
    disk = SimDisk()
    put(disk, "/a", b"new", sync=True)
    put(disk, "/b", b"old", sync=True)
    disk.sync_dir("/")
    disk.rename("/a", "/b")
    assert {image["/b"] for image in images(disk, mode)} <= {b"old", b"new"}


@pytest.mark.parametrize("mode", MODES)
def test_a_renamed_directory_is_in_one_place(mode: str) -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    disk.mkdir("/other")
    put(disk, "/d/a", b"x", sync=True)
    disk.sync_dir("/d")
    disk.rename("/d", "/other/e")
    for image in images(disk, mode):
        assert image in ({"/d/a": b"x"}, {"/other/e/a": b"x"})


def test_an_unlink_that_was_not_synced_comes_back() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x", sync=True)
    disk.sync_dir("/")
    disk.unlink("/a")
    assert disk.after_crash("nothing").files() == {"/a": b"x"}
    disk.sync_dir("/")
    assert disk.after_crash("nothing").files() == {}


@pytest.mark.parametrize("mode", MODES)
def test_two_names_are_one_file_after_a_crash_too(mode: str) -> None:
    disk = SimDisk()
    put(disk, "/a", b"x", sync=True)
    disk.link("/a", "/b")
    disk.sync_dir("/")
    found = disk.after_crash(mode)
    assert found.links("/a") == 2
    found.reopen("/a", 1).write_all(b"y")
    assert found.read("/b", 10) == b"xy"


def test_a_directory_that_is_lost_takes_its_synced_files_with_it() -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    disk.rename("/d", "/e")
    put(disk, "/e/a", b"x", sync=True)
    disk.sync_dir("/e")
    assert disk.after_crash("nothing").files() == {"/d/a": b"x"}


def test_the_same_mode_and_seed_give_the_same_disk() -> None:
    disk = SimDisk()
    for name in "abcdef":
        put(disk, f"/{name}", bytes(3000))
    for mode in MODES:
        assert images(disk, mode) == images(disk, mode)


def test_after_crash_leaves_the_disk_as_it_was() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    found = disk.after_crash("all")
    found.reopen("/a", 0).close()
    assert disk.files() == {"/a": b"x"}
    assert disk.after_crash("nothing").files() == {}


def test_after_a_crash_what_was_found_is_durable() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    assert disk.after_crash("all").after_crash("nothing").files() == {"/a": b"x"}


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'some'"):
        SimDisk().after_crash("some")


def test_locks_end_with_the_power() -> None:
    disk = SimDisk()
    lock = disk.lock("/lock")
    disk.after_crash("all").lock("/lock").release()
    with pytest.raises(StoreLocked):
        disk.lock("/lock")
    lock.release()


# ---------------------------------------------------------------- crashing


def test_the_chosen_operation_and_all_later_ones_crash() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    disk.crash_at(disk.ops + 2)
    file = disk.reopen("/a", 1)
    with pytest.raises(SimCrash):
        file.write(b"y")
    for call in (lambda: disk.create("/b"), lambda: disk.read("/a", 9), lambda: file.pread(1, 0)):
        with pytest.raises(SimCrash):
            call()
    assert disk.files() == {"/a": b"x"}


def test_close_and_release_never_crash() -> None:
    disk = SimDisk()
    file, lock = disk.create("/a"), disk.lock("/lock")
    disk.crash_at(disk.ops + 1)
    with pytest.raises(SimCrash):
        file.sync()
    file.close()
    lock.release()


def test_a_crash_is_no_exception_that_error_handling_could_swallow() -> None:
    assert not issubclass(SimCrash, Exception)


def test_a_crash_point_in_the_past_is_refused() -> None:
    disk = SimDisk()
    put(disk, "/a", b"x")
    with pytest.raises(ValueError, match="done already"):
        disk.crash_at(1)


def test_every_change_is_a_crash_point_and_no_reading_is() -> None:
    disk = SimDisk()
    counted = []
    disk.mkdir("/empty")
    file = disk.create("/a")
    steps: list[tuple[str, Callable[[], object]]] = [
        ("write", lambda: file.write(b"x")),
        ("pwrite", lambda: file.pwrite(b"x", 0)),
        ("sync", file.sync),
        ("truncate", lambda: file.truncate(0)),
        ("reopen", lambda: disk.reopen("/a", 0)),
        ("link", lambda: disk.link("/a", "/b")),
        ("rename", lambda: disk.rename("/b", "/c")),
        ("unlink", lambda: disk.unlink("/c")),
        ("rmdir", lambda: disk.rmdir("/empty")),
        ("sync_dir", lambda: disk.sync_dir("/")),
        ("sync_file", lambda: disk.sync_file("/a")),
        ("lock", lambda: disk.lock("/lock")),
        ("create", lambda: disk.create("/z")),
        ("map", lambda: disk.map("/a")),
        ("read", lambda: disk.read("/a", 9)),
        ("pread", lambda: disk.pread("/a", 9, 0)),
        ("size", lambda: disk.size("/a")),
        ("exists", lambda: disk.exists("/a")),
        ("links", lambda: disk.links("/a")),
        ("listdir", lambda: disk.listdir("/")),
        ("free_bytes", lambda: disk.free_bytes("/")),
        ("check_supported", lambda: disk.check_supported("/")),
        ("hold", lambda: disk.hold("/")),
        ("sync_held", lambda: disk.sync_dir("/")),
    ]
    for name, step in steps:
        before = disk.ops
        step()
        counted.append((name, disk.ops - before))
    assert counted == [(name, int(name in CRASH_POINTS)) for name, _ in steps]
    assert {name for name, _ in steps} | {"mkdir"} == CRASH_POINTS | READS


def crash_everywhere(
    prepare: Callable[[SimDisk], None], run: Callable[[SimDisk], None]
) -> list[SimDisk]:
    """The disks that may be found when ``run`` is cut at each of its operations."""
    whole = SimDisk()
    prepare(whole)
    first = whole.ops + 1
    run(whole)
    found = [whole.after_crash(mode, seed) for mode in MODES for seed in range(5)]
    for number in range(first, whole.ops + 1):
        disk = SimDisk()
        prepare(disk)
        disk.crash_at(number)
        with pytest.raises(SimCrash):
            run(disk)
        found += [disk.after_crash(mode, seed) for mode in MODES for seed in range(5)]
    return found


def with_old_file(disk: SimDisk) -> None:
    disk.mkdir("/d")
    disk.write_atomically("/d/a", b"o" * 1500)


def test_write_atomically_leaves_the_old_or_the_new_file_at_every_crash() -> None:
    found = crash_everywhere(with_old_file, lambda disk: disk.write_atomically("/d/a", b"n" * 1500))
    contents = {disk.files()["/d/a"] for disk in found}
    assert contents == {b"o" * 1500, b"n" * 1500}


def test_write_atomically_works_again_after_every_crash() -> None:
    found = crash_everywhere(with_old_file, lambda disk: disk.write_atomically("/d/a", b"n" * 1500))
    for disk in found:
        disk.write_atomically("/d/a", b"again")
        assert disk.after_crash("nothing").files() == {"/d/a": b"again"}


@pytest.mark.parametrize("mode", MODES)
def test_write_atomically_is_durable_when_it_returns(mode: str) -> None:
    disk = SimDisk()
    with_old_file(disk)
    disk.write_atomically("/d/a", b"new")
    assert images(disk, mode) == [{"/d/a": b"new"}] * len(SEEDS)


class NoFileSync(SimDisk):
    def _sync(self, *_: object) -> None:
        pass


class NoDirectorySync(SimDisk):
    def sync_dir(self, path: str) -> None:
        pass


@pytest.mark.parametrize("careless", [NoFileSync, NoDirectorySync])
def test_a_forgotten_sync_is_noticed(careless: type[SimDisk]) -> None:
    disk = careless()
    with_old_file(disk)
    disk.write_atomically("/d/a", b"new")
    assert any(image != {"/d/a": b"new"} for mode in MODES for image in images(disk, mode))


# ---------------------------------------------------------------- failing


@pytest.mark.parametrize("name", sorted(CRASH_POINTS | READS))
def test_every_operation_can_be_made_to_fail(name: str) -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.mkdir("/empty")
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: disk.create("/b"),
        "reopen": lambda: disk.reopen("/a", 0),
        "write": lambda: file.write(b"x"),
        "pwrite": lambda: file.pwrite(b"x", 0),
        "sync": file.sync,
        "truncate": lambda: file.truncate(0),
        "rename": lambda: disk.rename("/a", "/b"),
        "link": lambda: disk.link("/a", "/b"),
        "unlink": lambda: disk.unlink("/a"),
        "mkdir": lambda: disk.mkdir("/d"),
        "rmdir": lambda: disk.rmdir("/empty"),
        "sync_dir": lambda: disk.sync_dir("/"),
        "hold": lambda: disk.hold("/"),
        "sync_held": lambda: (disk.hold("/"), disk.sync_dir("/")),
        "sync_file": lambda: disk.sync_file("/a"),
        "lock": lambda: disk.lock("/lock"),
        "map": lambda: disk.map("/a"),
        "read": lambda: disk.read("/a", 9),
        "pread": lambda: file.pread(9, 0),
        "size": lambda: disk.size("/a"),
        "exists": lambda: disk.exists("/a"),
        "links": lambda: disk.links("/a"),
        "listdir": lambda: disk.listdir("/"),
        "free_bytes": lambda: disk.free_bytes("/"),
        "check_supported": lambda: disk.check_supported("/"),
    }
    disk.fail(name, 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output") as raised:
        calls[name]()
    assert raised.value.errno == errno.EIO
    assert disk.files() == {"/a": b""}
    calls[name]()


def test_the_nth_call_fails_and_no_other() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.fail("write", 3, errno.ENOSPC)
    file.write(b"1")
    file.write(b"2")
    with pytest.raises(OSError, match="No space"):
        file.write(b"3")
    file.write(b"4")
    assert disk.read("/a", 10) == b"124"


def test_a_lasting_failure_lasts_until_it_is_healed() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.fail("write", 2, errno.ENOSPC, lasting=True)
    file.write(b"1")
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            file.write(b"x")
    disk.heal()
    file.write(b"2")
    assert disk.read("/a", 10) == b"12"


def test_a_short_write_takes_the_first_bytes() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.shorten(1, 2)
    assert file.write(b"hello") == 2
    file.write_all(b"llo")
    assert disk.read("/a", 10) == b"hello"


def test_a_full_disk_leaves_a_part_of_a_write() -> None:
    disk = SimDisk()
    file = disk.create("/a")
    disk.shorten(1, 2)
    disk.fail("write", 2, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        file.write_all(b"hello")
    assert disk.read("/a", 10) == b"he"


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_sync_drops_the_bytes_and_the_next_one_says_it_is_fine(mode: str) -> None:
    disk = SimDisk()
    put(disk, "/a", b"old", sync=True)
    disk.sync_dir("/")
    file = disk.reopen("/a", 3)
    file.write_all(b"lost")
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert file.pread(10, 0) == b"oldlost"
    file.sync()
    assert images(disk, mode) == [{"/a": b"old"}] * len(SEEDS)


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_directory_sync_drops_the_names(mode: str) -> None:
    disk = SimDisk()
    put(disk, "/a", b"x", sync=True)
    disk.sync_dir("/")
    disk.rename("/a", "/b")
    disk.fail("sync_dir", 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_dir("/")
    disk.sync_dir("/")
    assert disk.exists("/b")
    assert images(disk, mode) == [{"/a": b"x"}] * len(SEEDS)


def test_write_atomically_survives_a_failure_of_each_of_its_calls() -> None:
    for name in ("create", "write", "sync", "rename", "sync_dir"):
        disk = SimDisk()
        with_old_file(disk)
        disk.fail(name, 1, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.write_atomically("/d/a", b"new")
        kept = b"new" if name == "sync_dir" else b"o" * 1500
        assert disk.files() == {"/d/a": kept}, name
        assert disk.open_files() == []


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="'fsync'"):
        SimDisk().fail("fsync", 1, errno.EIO)


def test_open_files_shows_what_was_not_closed() -> None:
    disk = SimDisk()
    first, second = disk.create("/a"), disk.create("/b")
    assert disk.open_files() == ["/a", "/b"]
    first.close()
    del second
    gc.collect()
    assert disk.open_files() == []


# ---------------------------------------------------------------- any sequence

STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.binary(max_size=4)),
    st.tuples(st.just("rename"), st.sampled_from("abc"), st.sampled_from("abc")),
    st.tuples(st.just("unlink"), st.sampled_from("abc")),
    st.tuples(st.just("sync"), st.sampled_from("abc")),
    st.tuples(st.just("sync_dir")),
)


def run(disk: SimDisk, steps: list[tuple[Any, ...]]) -> None:
    for name, *arguments in steps:
        try:
            if name == "put":
                put(disk, f"/{arguments[0]}", arguments[1])
            elif name == "rename":
                disk.rename(f"/{arguments[0]}", f"/{arguments[1]}")
            elif name == "unlink":
                disk.unlink(f"/{arguments[0]}")
            elif name == "sync":
                disk.sync_file(f"/{arguments[0]}")
            else:
                disk.sync_dir("/")
        except OSError:
            continue


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(STEPS, max_size=20))
def test_all_is_what_was_seen(steps: list[tuple[Any, ...]]) -> None:
    disk = SimDisk()
    run(disk, steps)
    assert disk.after_crash("all").files() == disk.files()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(STEPS, max_size=20))
def test_with_everything_synced_every_image_is_what_was_seen(steps: list[tuple[Any, ...]]) -> None:
    disk = SimDisk()
    run(disk, steps)
    for path in disk.files():
        disk.sync_file(path)
    disk.sync_dir("/")
    for mode in MODES:
        assert disk.after_crash(mode, 1).files() == disk.files()


def test_a_map_of_a_file_that_is_being_written_shows_what_is_written_later() -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    file = disk.create("/d/f.log")
    file.pwrite(bytes(100), 0)
    image = disk.after_kill()
    file = image.reopen("/d/f.log", 100)
    mapped = image.map("/d/f.log")
    file.pwrite(b"written", 40)
    file.pwrite(b"beyond", 97)
    assert (mapped[40:47], mapped[95:], len(mapped)) == (b"written", b"\0\0bey", 100)
