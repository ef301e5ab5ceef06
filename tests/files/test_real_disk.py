"""What only an operating system has: descriptors, other processes, FIFOs, poor file systems."""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from cutting_short import cut_short
from descriptors import descriptors

from octavo.files.door import disk as disk_module
from octavo.files.door import file_system, open_file, own_disk
from octavo.files.door.disk import AppendFile, Disk, RealDisk
from octavo.files.door.mounts import file_system_of, type_of
from octavo.files.door.own_disk import OwnDisk
from octavo.files.errors import Corruption, Misuse, StoreLocked

DISK = RealDisk()


def put(path: Path, content: bytes = b"") -> str:
    path.write_bytes(content)
    return str(path)


# ---------------------------------------------------------------- descriptors


def test_room_set_aside_changes_nothing_that_can_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = DISK.create(path)
    file.write_all(b"before")
    DISK.set_aside(path, 1 << 20)
    assert DISK.size(path) == 6
    file.write_all(b" after")
    file.close()
    assert DISK.read(path, 100) == b"before after"
    DISK.reopen(path, 12).close()
    assert os.stat(path).st_blocks < 512


@pytest.mark.parametrize("how", ["by the system", "written"])
def test_a_file_of_zeros_takes_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "written":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = str(tmp_path / "zeros")
    DISK.create_zeros(path, 1 << 20)
    assert DISK.read(path, 1 << 20) == bytes(1 << 20)
    with open(path, "r+b") as file:
        os.fsync(file.fileno())  # some file systems find room for what was written only then
    assert os.stat(path).st_blocks * 512 >= 1 << 20
    with pytest.raises(FileExistsError):
        DISK.create_zeros(path, 1)


@pytest.mark.parametrize("type_", ["ext4", "tmpfs"])
def test_room_is_asked_for_where_that_is_known_to_be_cheap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(file_system, "file_system_of", lambda path: f"{type_} (mounted on /)")
    monkeypatch.setattr(fcntl, "ioctl", lambda fd, code, room: asked.append(code))
    monkeypatch.setattr(RealDisk, "free_bytes", lambda disk, path: 8 << 20)
    path = put(tmp_path / "a")
    DISK.set_aside(path, (1 << 20) + 1)  # of which there is little
    assert asked == []
    DISK.set_aside(path, 1 << 20)
    assert asked == ([0x4030582A] if type_ == "ext4" else [])


def test_room_that_cannot_be_set_aside_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", failing(errno.ENOTTY))
    DISK.set_aside(put(tmp_path / "a"), 1 << 20)
    DISK.set_aside(str(tmp_path / "absent"), 1 << 20)


def test_descriptors_are_not_inherited_by_other_programs(tmp_path: Path) -> None:
    file = DISK.create(str(tmp_path / "a"))
    assert not os.get_inheritable(file.fd)
    file.close()
    again = DISK.reopen(str(tmp_path / "a"), 0)
    assert not os.get_inheritable(again.fd)
    again.close()


def test_what_the_system_gives_in_pieces_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does with more than 2 GiB."""
    plain = os.pread
    pieces = lambda fd, length, offset: plain(fd, min(length, 3), offset)  # noqa: E731
    monkeypatch.setattr(open_file, "_pread", pieces)
    path = put(tmp_path / "a", b"0123456789")
    assert DISK.read(path, 10) == b"0123456789"
    assert DISK.pread(path, 7, 2) == b"2345678"
    assert DISK.pread(path, 100, 4) == b"456789"


def test_every_descriptor_is_given_back(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    path = str(tmp_path / "d" / "a")
    DISK.mkdir(str(tmp_path / "d"))
    DISK.check_supported(str(tmp_path))
    DISK.write_atomically(path, b"x")
    DISK.read(path, 10)
    DISK.pread(path, 1, 0)
    DISK.sync_file(path)
    DISK.sync_dir(str(tmp_path))
    DISK.reopen(path, 1).close()
    DISK.lock(str(tmp_path / "lock")).release()
    mapped = DISK.map(path)
    del mapped
    for refused in (lambda: DISK.reopen(path, 100), lambda: DISK.read(path, 0)):
        with pytest.raises(Corruption):
            refused()
    gc.collect()
    assert descriptors(tmp_path) == before


def test_close_gives_the_descriptor_back(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    file = DISK.create(str(tmp_path / "a"))
    assert len(descriptors(tmp_path) - before) == 1
    file.close()
    assert descriptors(tmp_path) == before


@pytest.mark.parametrize(("where", "step"), [(os, "fstat"), (open_file, "closer")])
def test_a_file_that_finds_no_memory_as_it_is_opened_keeps_no_descriptor(
    tmp_path: Path, where: object, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = put(tmp_path / "a", b"x"), descriptors(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, step, without_memory)
        with pytest.raises(MemoryError):
            DISK.reopen(path, 1)
    assert descriptors(tmp_path) == before


def without_memory(*_: object) -> NoReturn:
    raise MemoryError


@pytest.mark.skipif(sys.platform == "darwin", reason="a sync is another call there")
def test_a_sync_that_finds_no_memory_keeps_no_descriptor_in_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, own = DISK.create(str(tmp_path / "a")), OwnDisk(DISK.lock(str(tmp_path / "LOCK")))
    before = descriptors(tmp_path)
    own.hold(str(tmp_path))
    monkeypatch.setattr(os, "fdatasync", without_memory)
    monkeypatch.setattr(os, "fsync", without_memory)
    with pytest.raises(OSError, match="no memory to say why") as of_file:
        file.sync()
    with pytest.raises(OSError, match="no memory to say why") as of_directory:
        own.sync_dir(str(tmp_path))
    file.close()
    own.let_go(str(tmp_path))
    assert of_file.value  # a store that failed keeps it
    assert of_directory.value
    assert len(before - descriptors(tmp_path)) == 1
    assert descriptors(tmp_path) <= before


def test_a_file_nobody_refers_to_is_closed(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    DISK.create(str(tmp_path / "a"))
    gc.collect()
    assert descriptors(tmp_path) == before


def test_closing_does_not_pull_the_file_from_under_a_read(tmp_path: Path) -> None:
    file = DISK.create(str(tmp_path / "a"))
    file.write_all(b"right")
    read, number = file.pread, int(file.fd)  # a reader about to make its call
    file.close()
    other = DISK.create(str(tmp_path / "b"))
    other.write_all(b"wrong")
    assert int(other.fd) != number
    assert read(5, 0) == b"right"
    other.close()


# ---------------------------------------------------------------- what is synced


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(what, name of the file or directory) of each sync and rename, in order."""
    done: list[tuple[str, str]] = []

    def spied(what: str, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            status = os.fstat(fd)
            done.append((what, f"{status.st_dev}:{status.st_ino}"))
            real(fd)

        return sync

    real_rename = os.rename

    def rename(source: str, target: str) -> None:
        done.append(("rename", os.path.basename(target)))
        real_rename(source, target)

    sync_data, sync_directory = open_file.sync_data, open_file.sync_directory
    monkeypatch.setattr(open_file, "sync_data", spied("data", sync_data))
    monkeypatch.setattr(disk_module, "sync_data", spied("data", sync_data))
    for module in (disk_module, own_disk):
        monkeypatch.setattr(module, "sync_directory", spied("directory", sync_directory))
    monkeypatch.setattr(os, "rename", rename)
    return done


def identity(path: Path) -> str:
    status = os.stat(path)
    return f"{status.st_dev}:{status.st_ino}"


def test_sync_asks_the_system_for_this_file(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    file = DISK.create(str(tmp_path / "a"))
    file.sync()
    file.close()
    DISK.sync_file(str(tmp_path / "a"))
    assert calls == [("data", identity(tmp_path / "a"))] * 2


def test_a_sync_that_is_begun_goes_on_beside_its_caller_though_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, synced = threading.Event(), []

    def sync(fd: int) -> None:
        assert goes_on.wait(60)
        synced.append((threading.current_thread(), os.fstat(fd).st_ino))

    monkeypatch.setattr(open_file, "sync_data", sync)
    file = DISK.create(str(tmp_path / "a"))
    wait = file.begin_sync()
    file.close()
    goes_on.set()
    wait()
    [(thread, number)] = synced
    assert thread is not threading.current_thread()
    assert number == os.stat(tmp_path / "a").st_ino


def test_waiting_for_a_sync_raises_what_it_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_file, "sync_data", failing(errno.EIO))
    file = DISK.create(str(tmp_path / "a"))
    wait = file.begin_sync()
    with pytest.raises(OSError, match="Input/output"):
        wait()
    file.close()
    with pytest.raises(OSError, match="the file was closed"):
        file.begin_sync()


def test_a_sync_of_which_nothing_is_heard_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread had no memory to begin it, or to say why it failed."""

    def no_memory(fd: int) -> None:
        raise MemoryError

    monkeypatch.setattr(open_file, "sync_data", no_memory)
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    file = DISK.create(str(tmp_path / "a"))
    wait = file.begin_sync()
    with pytest.raises(OSError, match="a sync failed, and there was no memory to say why"):
        wait()
    file.close()


@pytest.mark.parametrize("what", ["file", "file by its path", "directory", "directory held open"])
def test_a_sync_that_fails_without_memory_to_say_so_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Not for want of memory, after which it might be tried again, and would seem to go well."""

    def no_memory(fd: int) -> NoReturn:
        raise MemoryError

    file = DISK.create(str(tmp_path / "a"))
    own = OwnDisk(DISK.lock(str(tmp_path / "LOCK")))
    own.hold(str(tmp_path))
    syncs: dict[str, Callable[[], object]] = {
        "file": file.sync,
        "file by its path": lambda: DISK.sync_file(str(tmp_path / "a")),
        "directory": lambda: DISK.sync_dir(str(tmp_path)),
        "directory held open": lambda: own.sync_dir(str(tmp_path)),
    }
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, no_memory, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", no_memory)
    with pytest.raises(OSError, match="a sync failed, and there was no memory to say why"):
        syncs[what]()
    monkeypatch.undo()
    file.close()
    own.let_go(str(tmp_path))


def test_nobody_waits_for_a_sync_whose_thread_ended_before_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that finds no memory for its first step."""
    monkeypatch.setattr(open_file, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(_thread, "start_new_thread", lambda run, arguments: 1)
    file = DISK.create(str(tmp_path / "a"))
    wait = file.begin_sync()
    with pytest.raises(OSError, match="a sync failed, and there was no memory to say why"):
        wait()
    file.close()


def test_where_there_is_no_thread_to_be_had_a_sync_is_done_at_once(
    tmp_path: Path, calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(run: object, arguments: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    file = DISK.create(str(tmp_path / "a"))
    monkeypatch.setattr(_thread, "start_new_thread", start)
    wait = file.begin_sync()
    assert calls == [("data", identity(tmp_path / "a"))]
    wait()
    file.close()


def test_sync_dir_asks_the_system_for_this_directory(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    DISK.sync_dir(str(tmp_path))
    assert calls == [("directory", identity(tmp_path))]


def test_a_directory_that_is_held_open_is_synced_and_let_go(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    (tmp_path / "d").mkdir()
    own = own_disk.OwnDisk(DISK.lock(str(tmp_path / "LOCK")))
    for _ in range(2):
        own.hold(str(tmp_path / "d"))
    assert len(descriptors(tmp_path / "d")) == 1
    own.sync_dir(str(tmp_path / "d"))
    assert calls == [("directory", identity(tmp_path / "d"))]
    for _ in range(2):
        own.let_go(str(tmp_path / "d"))
    assert not descriptors(tmp_path / "d")


def test_a_file_that_is_missing_leaves_nothing_of_its_caller_to_the_collector(
    tmp_path: Path,
) -> None:
    own = own_disk.OwnDisk(DISK.lock(str(tmp_path / "LOCK")))

    class Local:
        pass

    def falls_back() -> weakref.ref[Local]:
        local = Local()
        with contextlib.suppress(FileNotFoundError):
            own.map(str(tmp_path / "sealed meanwhile"))
        return weakref.ref(local)

    gc.disable()
    try:
        assert falls_back()() is None
    finally:
        gc.enable()


def test_write_atomically_syncs_the_bytes_then_renames_then_syncs_the_directory(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    DISK.write_atomically(str(tmp_path / "a"), b"x")
    assert calls == [
        ("data", identity(tmp_path / "a")),
        ("rename", "a"),
        ("directory", identity(tmp_path)),
    ]


def test_mkdir_syncs_each_parent_after_making_the_child(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    DISK.mkdir(str(tmp_path / "x" / "y"))
    assert calls == [
        ("directory", identity(tmp_path.parent)),
        ("directory", identity(tmp_path)),
        ("directory", identity(tmp_path / "x")),
    ]


def test_mkdir_makes_durable_what_a_killed_process_left(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    (tmp_path / "x").mkdir()
    DISK.mkdir(str(tmp_path / "x"))
    assert calls == [("directory", identity(tmp_path))]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL])
def test_an_existing_directory_may_lie_in_one_we_cannot_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(disk_module, "sync_directory", failing(code))
    DISK.mkdir(str(tmp_path))


def test_a_failed_sync_of_an_existing_directory_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "sync_directory", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        DISK.mkdir(str(tmp_path))


def test_a_directory_whose_name_could_not_be_synced_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try would take it for durable as soon as any sync of its parent goes well."""
    syncs = iter([None, OSError(errno.EIO, os.strerror(errno.EIO))])

    def sync(fd: int) -> None:
        if (error := next(syncs)) is not None:
            raise error

    monkeypatch.setattr(disk_module, "sync_directory", sync)
    with pytest.raises(OSError, match="Input/output"):
        DISK.mkdir(str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


# ---------------------------------------------------------------- hostile directories

OPENERS: dict[str, Callable[[Disk, str], object]] = {
    "map": lambda disk, path: disk.map(path),
    "map_growing": lambda disk, path: disk.map_growing(path),
    "read": lambda disk, path: disk.read(path, 1),
    "pread": lambda disk, path: disk.pread(path, 1, 0),
    "reopen": lambda disk, path: disk.reopen(path, 0),
    "sync_file": lambda disk, path: disk.sync_file(path),
    "lock": lambda disk, path: disk.lock(path),
}


@pytest.mark.parametrize("call", OPENERS)
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path, call: str) -> None:
    """However often, as where it stands in an inbox: no descriptor of it is kept."""
    os.mkfifo(tmp_path / "a")
    with pytest.raises(Corruption, match="FIFO"):
        OPENERS[call](DISK, str(tmp_path / "a"))
    assert not descriptors(tmp_path)


@pytest.mark.parametrize("call", OPENERS)
def test_a_symbolic_link_is_refused_and_its_target_untouched(tmp_path: Path, call: str) -> None:
    put(tmp_path / "target", b"kept")
    os.symlink(tmp_path / "target", tmp_path / "a")
    with pytest.raises(Corruption, match="symbolic link"):
        OPENERS[call](DISK, str(tmp_path / "a"))
    assert (tmp_path / "target").read_bytes() == b"kept"


@pytest.mark.parametrize("call", OPENERS)
def test_a_socket_is_refused(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("a")
        with pytest.raises(Corruption, match="socket"):
            OPENERS[call](DISK, "a")


def test_a_symbolic_link_to_nowhere_takes_its_name(tmp_path: Path) -> None:
    os.symlink(tmp_path / "none", tmp_path / "a")
    assert DISK.exists(str(tmp_path / "a"))
    with pytest.raises(FileExistsError):
        DISK.create(str(tmp_path / "a"))


def test_the_store_itself_may_be_behind_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "store")
    DISK.mkdir(str(tmp_path / "store"))
    DISK.sync_dir(str(tmp_path / "store"))
    DISK.write_atomically(str(tmp_path / "store" / "a"), b"x")
    assert (tmp_path / "real" / "a").read_bytes() == b"x"


# ---------------------------------------------------------------- locks

HOLDER = """
import sys
from octavo.files.door.disk import RealDisk
lock = RealDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_another_process_is_named(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    with pytest.raises(StoreLocked, match=f"process {holder.pid}: close the store there"):
        DISK.lock(str(tmp_path / "lock"))


def test_a_killed_process_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    DISK.lock(str(tmp_path / "lock")).release()


def test_a_holder_that_left_no_number_is_still_a_holder(tmp_path: Path) -> None:
    path = put(tmp_path / "lock", b"\xff\xfegarbage")
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked, match="another opener"):
            DISK.lock(path)


def test_a_holder_of_the_same_number_in_another_container_is_not_called_this_process(
    tmp_path: Path,
) -> None:
    path = put(tmp_path / "lock", b"%d\n" % os.getpid())
    with open(path, "rb") as other:  # as of another process
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked, match=rf"process {os.getpid()}: .* in another container"):
            DISK.lock(path)


def test_a_lock_is_let_go_wherever_that_is_interrupted(tmp_path: Path) -> None:
    at, cut, before = 0, True, descriptors(tmp_path)
    while cut:
        at += 1
        lock = DISK.lock(str(tmp_path / "lock"))
        cut, _ = cut_short(lock.release, at)
        lock.release()  # as the second one of a closing that was cut short
        DISK.lock(str(tmp_path / "lock")).release()
    assert descriptors(tmp_path) == before
    assert at > 1


def test_a_lock_that_is_dropped_is_let_go_wherever_that_is_interrupted(tmp_path: Path) -> None:
    at, steps, before = 0, 1, descriptors(tmp_path)
    while at <= steps:
        at += 1
        locks = [DISK.lock(str(tmp_path / "lock"))]
        _, steps = cut_short(locks.clear, at)
        locks.clear()
        DISK.lock(str(tmp_path / "lock")).release()
    assert descriptors(tmp_path) == before


@contextlib.contextmanager
def in_child(body: Callable[[], bytes]) -> Iterator[bytes]:
    """Run ``body`` in a forked child that lives to the end of the block: its answer."""
    answer, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(send, body())
        finally:
            os.close(send)
            signal.pause()
            os._exit(0)
    os.close(send)
    try:
        yield os.read(answer, 100)
    finally:
        os.close(answer)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_forked_child_is_kept_out(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = DISK.lock(path)

    def body() -> bytes:
        try:
            DISK.lock(path)
        except StoreLocked:
            return b"refused"
        return b"let in"

    with in_child(body) as answer:
        assert answer == b"refused"
    lock.release()


def test_a_forked_child_cannot_release_its_parents_lock(tmp_path: Path) -> None:
    lock = DISK.lock(str(tmp_path / "lock"))

    def body() -> bytes:
        lock.release()
        return b"done"

    with in_child(body) as answer:
        assert answer == b"done"
        with pytest.raises(StoreLocked):
            DISK.lock(str(tmp_path / "lock"))
    lock.release()


def test_a_living_child_does_not_keep_a_released_lock(tmp_path: Path) -> None:
    lock = DISK.lock(str(tmp_path / "lock"))
    with in_child(lambda: b"living"):
        lock.release()
        DISK.lock(str(tmp_path / "lock")).release()


FORKER = """
import os, signal, sys
from octavo.files.door.disk import RealDisk
lock = RealDisk().lock(sys.argv[1])
forked, tell = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(tell, b"x")
    signal.pause()
os.read(forked, 1)
print(pid, flush=True)
sys.stdin.read()
"""


def test_a_child_that_outlives_a_killed_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", FORKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            DISK.lock(path).release()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_lock_on_a_file_that_was_replaced_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real = fcntl.flock
    replaced: list[int] = []

    def flock(fd: int, operation: int) -> None:
        real(fd, operation)
        if not replaced:
            path.unlink()
            path.touch()
            replaced.append(path.stat().st_ino)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = DISK.lock(str(path))
    with pytest.raises(StoreLocked, match="is locked by"):  # not: by a worker of a gone owner
        DISK.lock(str(path))
    assert [path.stat().st_ino] == replaced, "somebody else may have locked it"
    lock.release()


def test_a_full_disk_does_not_prevent_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", failing(errno.ENOSPC))
    DISK.lock(str(tmp_path / "lock")).release()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_that_cuts_no_file_leaves_one_that_is_not_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As btrfs does. Cut it must be where it is longer, and no other error is nothing."""
    path = str(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"12345")
    monkeypatch.setattr(os, "ftruncate", failing(code))
    with pytest.raises(OSError, match=os.strerror(code)):
        DISK.reopen(path, 4)
    if code == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(code)):
            DISK.reopen(path, 5)
    else:
        file = DISK.reopen(path, 5)
        file.write_all(b"6")
        file.close()
        assert (tmp_path / "file").read_bytes() == b"123456"


# ---------------------------------------------------------------- file systems that cannot


@pytest.mark.parametrize(
    ("module", "call", "code", "lacks"),
    [
        (os, "link", errno.EPERM, "hard links"),
        (os, "link", errno.EOPNOTSUPP, "hard links"),
        (fcntl, "flock", errno.ENOLCK, "flock"),
        (file_system, "sync_directory", errno.EINVAL, "sync of directories"),
    ],
)
def test_a_file_system_that_lacks_something_is_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    call: str,
    code: int,
    lacks: str,
) -> None:
    monkeypatch.setattr(module, call, failing(code))
    with pytest.raises(Misuse, match=lacks) as raised:
        DISK.check_supported(str(tmp_path))
    assert str(tmp_path) in str(raised.value)
    assert file_system_of(str(tmp_path)) in str(raised.value)
    assert os.listdir(tmp_path) == []


def test_a_flock_that_lets_everyone_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    with pytest.raises(Misuse, match="flock"):
        DISK.check_supported(str(tmp_path))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_is_not_taken_for_a_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", failing(code))
    with pytest.raises(OSError, match=os.strerror(code)) as raised:
        DISK.check_supported(str(tmp_path))
    assert raised.value.errno == code
    assert os.listdir(tmp_path) == []


def test_the_file_system_is_named_after_the_innermost_mount(tmp_path: Path) -> None:
    inner = tmp_path.resolve() / "with space"
    inner.mkdir()
    escaped = str(inner).replace(" ", "\\040")
    mounts = put(
        tmp_path / "mountinfo",
        (
            f"1 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n2 1 8:2 / {escaped} rw - vfat /dev/b rw\n"
        ).encode(),
    )
    assert file_system_of(str(inner / "store"), mounts) == f"vfat (mounted on {inner})"
    assert file_system_of("/elsewhere", mounts) == "ext4 (mounted on /)"


def test_the_file_system_of_an_open_file_is_the_one_with_its_device(tmp_path: Path) -> None:
    """Whatever was mounted over its path since."""
    with open(put(tmp_path / "file", b""), "rb") as file:
        device = os.fstat(file.fileno()).st_dev
        mounts = put(
            tmp_path / "mountinfo",
            (
                f"1 1 {os.major(device)}:{os.minor(device)} / /below rw shared:1 - xfs /dev/a rw\n"
                f"2 1 0:9999 / {tmp_path.resolve()} rw - ext4 /dev/b rw\n"
            ).encode(),
        )
        assert type_of(file.fileno(), mounts) == "xfs"
        with open(mounts, "wb") as others:
            others.write(b"2 1 0:9999 / / rw - ext4 /dev/b rw\n")
        assert type_of(file.fileno(), mounts) == ""
    assert type_of(-1, mounts) == ""


def test_a_system_that_does_not_tell_its_mounts_is_no_error(tmp_path: Path) -> None:
    assert file_system_of("/", str(tmp_path / "none")) == "a file system"
    with open(put(tmp_path / "file", b""), "rb") as file:
        assert type_of(file.fileno(), str(tmp_path / "none")) == ""


def test_an_unfinished_atomic_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "a", b"old")
    monkeypatch.setattr(open_file, "sync_data", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        DISK.write_atomically(path, b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_append_files_refer_to_their_calls_without_a_cycle(tmp_path: Path) -> None:
    gc.disable()
    try:
        before = descriptors(tmp_path)
        file: AppendFile | None = DISK.create(str(tmp_path / "a"))
        file = None
        assert file is None
        assert descriptors(tmp_path) == before
    finally:
        gc.enable()


def test_a_sync_that_fails_names_what_it_was_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a")
    file = DISK.create(path)
    own = OwnDisk(DISK.lock(str(tmp_path / "LOCK")))
    own.hold(str(tmp_path))
    for where in (open_file, disk_module, own_disk, file_system):
        for name in ("sync_data", "sync_directory"):
            monkeypatch.setattr(where, name, failing(errno.EIO), raising=False)
    calls: dict[str, list[Callable[[], object]]] = {
        path: [file.sync, lambda: DISK.sync_file(path)],
        str(tmp_path): [
            lambda: DISK.sync_dir(str(tmp_path)),
            lambda: own.sync_dir(str(tmp_path)),
            lambda: DISK._make_directory(str(tmp_path / "new")),
            lambda: DISK.check_supported(str(tmp_path)),
        ],
    }
    for named, tried in calls.items():
        for call in tried:
            with pytest.raises(OSError, match="Input/output") as told:
                call()
            assert told.value.filename == named
