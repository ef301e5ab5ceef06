"""What macOS, other machines and newer Pythons do otherwise, as far as it can be feigned."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption
from octavo.files.jobs import worker

DISK = RealDisk()


def test_a_link_of_a_symbolic_link_does_not_lead_out_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS os.link follows them, and with newer Pythons everywhere, unless told not to."""
    real = os.link

    def follows(source: str, target: str, *, follow_symlinks: bool = True) -> None:
        followed = os.path.realpath(source) if follow_symlinks else source
        real(followed, target, follow_symlinks=False)

    monkeypatch.setattr(os, "link", follows)
    (tmp_path / "outside").write_bytes(b"somebody's")
    (tmp_path / "a").symlink_to(tmp_path / "outside")
    DISK.link(str(tmp_path / "a"), str(tmp_path / "b"))
    assert os.stat(tmp_path / "outside").st_nlink == 1
    with pytest.raises(Corruption, match="symbolic link"):
        DISK.map(str(tmp_path / "b"))


def test_a_directory_is_told_from_what_may_not_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux answers EISDIR, macOS as POSIX has it."""
    real = os.unlink

    def refuses(path: str) -> None:
        try:
            real(path)
        except IsADirectoryError:
            raise PermissionError(errno.EPERM, "Operation not permitted", path) from None

    monkeypatch.setattr(os, "unlink", refuses)
    with pytest.raises(IsADirectoryError) as told:
        DISK.unlink(str(tmp_path))
    assert told.value.filename == str(tmp_path)


def test_a_socket_is_told_from_what_the_system_does_not_support(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is opened Linux says ENXIO, macOS EOPNOTSUPP."""
    real = os.open

    def refuses(path: str, *how: int) -> int:
        try:
            return real(path, *how)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported", path) from None
            raise

    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    monkeypatch.setattr(os, "open", refuses)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("a")
        with pytest.raises(Corruption, match="socket"):
            DISK.map("a")


@pytest.mark.parametrize("most", [10_240, 61_440, 1 << 20])
def test_a_worker_begins_where_the_system_allows_fewer_files_than_the_limit_says(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """macOS says that there is no limit, and has one."""
    limits = [256, resource.RLIM_INFINITY]

    def set_limits(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    worker._allow_many_files()
    assert min(most, worker._MOST_FILES) // 2 < limits[0] <= most
    assert limits[1] == resource.RLIM_INFINITY


_WITHOUT_HANG_UPS = """
import select, threading
from octavo.files.jobs import table, worker

class Poll:
    def register(self, fd, events): ...
    def poll(self): threading.Event().wait()

select.poll = Poll
worker.BEAT_SECONDS = 0.01
table.JOBS["endless"] = lambda disk: threading.Event().wait()
worker.main()
"""


def test_a_worker_leaves_in_the_middle_of_a_job_where_hang_ups_are_not_told() -> None:
    """macOS's poll tells of none to who asks for nothing else."""
    command = [sys.executable, "-c", _WITHOUT_HANG_UPS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError
        worker.pass_by_what_was_printed(process.stdout)
        worker.send(process.stdin, {"job": "endless", "arguments": {}})
        assert worker.receive(process.stdout) == ({worker.ALIVE: True}, [])
        process.stdin.close()
        process.stdout.close()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


_REFUSES_LONG_CALLS = """
import errno, fcntl, os, sys
sys.platform = "darwin"
fcntl.F_FULLFSYNC, real = -1, fcntl.fcntl
fcntl.fcntl = lambda fd, what, *more: real(fd, what, *more) if what >= 0 else os.fsync(fd)
MOST = 1 << 20

def refusing(call, size_of):
    def made(fd, what, at):
        if size_of(what) > MOST:
            raise OSError(errno.EINVAL, "Invalid argument")
        return call(fd, what, at)
    return made

def size(data):
    return memoryview(data).nbytes

os.pread = refusing(os.pread, int)
os.pwrite = refusing(os.pwrite, size)
os.preadv = refusing(os.preadv, lambda parts: sum(map(size, parts)))
os.pwritev = refusing(os.pwritev, lambda parts: sum(map(size, parts)))

import octavo
from octavo.actors import journal_file, open_files
from octavo.files.door import maps, open_file
from octavo.files.door.disk import RealDisk
open_file.MOST_BYTES = maps.MOST_BYTES = MOST
journal_file._READ_BYTES = open_files._MOST_BYTES = MOST // 2

path, rng = sys.argv[1], __import__("random").Random(7)
large = [rng.randbytes(size) for size in (MOST - 100, MOST, 3 * MOST + 1)]
small = [rng.randbytes(10) for _ in range(40)]
expected = dict(enumerate([*large, *small, *large, *small]))
with octavo.open(path, compact_every_seconds=None) as store:
    for number in range(3):
        store.put(str(number), expected[number])
    store.put_many((str(number), expected[number]) for number in range(3, 60))
    with store.batch() as batch:
        for number in range(60, len(expected)):
            batch.put("", str(number), expected[number])
    with octavo.open(path, read_only=True) as reader:
        for number, value in expected.items():
            if reader[str(number)] != value or store[str(number)] != value:
                raise SystemExit(f"{number} differs")
    store.backup(path + " copied", copy=True)
for each in (path, path + " copied"):
    with octavo.open(each) as store:
        if not store.verify().ok or len(store) != len(expected):
            raise SystemExit(f"{each}: damage")
for file in os.scandir(path + "/journal"):
    if file.is_file():
        whole = open(file.path, "rb").read()
        if RealDisk().pread(file.path, len(whole), 0) != whole:
            raise SystemExit(f"{file.name} differs")
print("done")
"""


def test_what_is_longer_than_the_system_takes_in_a_call_is_written_and_read(tmp_path: Path) -> None:
    """More than 2 GiB is refused by macOS, with EINVAL; here it is 1 MiB."""
    command = [sys.executable, "-c", _REFUSES_LONG_CALLS, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


_FULL_SYNCS = """
import errno, fcntl, os, sys
sys.platform = "darwin"
fcntl.F_FULLFSYNC, asked, plain = 51, [], []
answers = [0, OSError(errno.ENOTSUP, "?"), OSError(errno.EIO, "?"), MemoryError(),
           OSError(errno.ENOTTY, "?")]

def fcntl_(fd, what):
    asked.append(what)
    answer = answers.pop(0)
    if isinstance(answer, BaseException):
        raise answer
    return answer

fcntl.fcntl, fsync = fcntl_, os.fsync
os.fsync = plain.append
from octavo.files.door.open_file import sync_data, sync_directory

def told(call):
    try:
        call(7)
    except OSError as error:
        return error.errno == errno.EIO
    return None

print(told(sync_data), told(sync_directory), told(sync_data), told(sync_directory), end=" ")
os.fsync = fsync
print(told(lambda _: sync_data(9999)), set(asked), plain)
"""


def test_a_sync_is_one_of_the_drive_where_fsync_is_not_and_a_failed_one_is_told() -> None:
    """On macOS. What has no such sync is synced as it can be; want of memory hides no failure."""
    done = subprocess.run([sys.executable, "-c", _FULL_SYNCS], capture_output=True, text=True)
    assert done.stdout == "None None True True False {51} [7]\n", done.stderr


_REFUSES_TO_TELL = """
import os, resource, sys

def refused(*_):
    raise OSError(int(sys.argv[2]), os.strerror(int(sys.argv[2])))

resource.getrlimit = resource.getrusage = os.preadv = refused

import octavo
from octavo.files.jobs import worker
worker._allow_many_files()
with octavo.open(sys.argv[1], worker=False) as store:
    store.put_many((str(n), bytes([n]) * 3000) for n in range(200))
    with octavo.open(sys.argv[1], read_only=True) as reader:
        assert dict(reader.items()) == dict(store.items()) and len(reader) == 200
with octavo.open(sys.argv[1], worker=False) as store:
    assert store["7"] == bytes([7]) * 3000 and store.verify().ok
"""


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_sandbox_that_does_not_tell_of_limits_and_reads_is_no_hindrance(
    tmp_path: Path, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSES_TO_TELL, str(tmp_path / "s"), str(code)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["flock", "fdatasync", "fsync"])
def test_a_sandbox_that_refuses_what_a_store_needs_is_told_by_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """And a reader that cannot sync for it leaves nobody else a mark of an fsync that failed."""

    def refuses(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    octavo.open(tmp_path / "old").close()
    with octavo.open(tmp_path / "s") as store, monkeypatch.context() as patch:
        store.put("a", b"1")
        patch.setattr(fcntl if call == "flock" else os, call, refuses)
        with pytest.raises(octavo.OctavoError, match=f"{call} is refused .*sandbox"):
            octavo.open(tmp_path / "old")
        with pytest.raises(octavo.Misuse, match=f"{call}.*sandbox"):
            octavo.open(tmp_path / "new")
        if call != "flock":  # which tells others of the reader, and no more
            with pytest.raises(octavo.Misuse, match=f"{call} is refused .*sandbox"):
                octavo.open(tmp_path / "s", read_only=True)
        patch.undo()
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            assert reader["a"] == b"1"
    octavo.open(tmp_path / "old").close()
