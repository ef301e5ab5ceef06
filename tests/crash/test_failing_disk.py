"""Writes that a real file system takes, and its device refuses later: an fsync tells of that, once,
and what is read meanwhile was never written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from loop_disk import NotHere
from said_loudly import or_say_so
from thin_disk import ThinDisk

import octavo

VALUE = b"value" * 200
LIFE = """
import sys, octavo
store = octavo.open(sys.argv[1], worker=False)
store.put(b"first", b"durable", sync=True)
store.put_many((b"%03d" % n, b"value" * 200) for n in range(300))
print("written", flush=True)
sys.stdin.read()
"""


def _told_of_it_alone(journal: Path) -> int:
    """What an fsync says that the store's process would have begun, and been killed within."""
    [file] = journal.glob("*.log")
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        return error.errno or 0
    finally:
        os.close(fd)
    return 0


def test_a_failed_fsync_that_a_killed_process_alone_was_told_of_is_not_believed_later() -> None:
    disk = or_say_so("a device that runs out of room", ThinDisk, NotHere)
    if disk is None:
        return
    try:
        _killed_and_opened_again(disk)
    finally:
        disk.close()


def _killed_and_opened_again(disk: ThinDisk) -> None:
    path = disk.path / "s"
    words = [sys.executable, "-c", LIFE, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as life:
        assert life.stdout is not None
        assert life.stdout.readline() == b"written\n"
        disk.leave(0)
        assert _told_of_it_alone(path / "journal")
        assert not _told_of_it_alone(path / "journal")  # as it is then: nobody else is told
        life.kill()
    disk.make_room()
    with octavo.open(path, worker=False) as store:
        assert len(store) == 301
        store.put(b"last", b"durable", sync=True)
        store.sync()
    disk.unmount()
    disk.mount()
    with octavo.open(path, worker=False) as store:
        assert store.stats()["notes"] == []
        assert [len(store), store[b"first"], store[b"last"]] == [302, b"durable", b"durable"]
        assert all(store[b"%03d" % n] == VALUE for n in range(300))
        assert store.verify().ok
