"""A process whose standard descriptors are closed, as some daemons': nothing that is printed goes
into a store's file, or between two messages of a worker's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import octavo
from octavo.files.jobs.worker import READY

OWNER = """
import os, sys
os.closerange(0, 3)
import octavo
store = octavo.open(sys.argv[1])
store.put_many((b"%d" % n, b"value") for n in range(1000))
for fd in range(3):
    try:
        os.write(fd, b"free(): invalid pointer")
    except OSError:
        pass
store.put(b"last", b"value")
store.compact()
assert store.verify().ok
jobs = store.stats()["jobs"]["totals"].values()
store.close()
os._exit(7 if jobs and not any(job["failures"] for job in jobs) else 8)
"""


def test_what_is_printed_goes_into_no_file_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s"
    done = subprocess.run(
        [sys.executable, "-c", OWNER, path], timeout=300, close_fds=True, check=False
    )
    assert done.returncode == 7
    with octavo.open(path) as store:
        assert store.stats()["notes"] == []
        assert len(list(store.keys())) == 1001
    for file in (path for path in path.rglob("*") if path.is_file()):
        assert b"free()" not in file.read_bytes(), file


def test_a_worker_without_a_place_for_messages_has_its_answers_for_itself() -> None:
    with subprocess.Popen(
        ["sh", "-c", f'exec "{sys.executable}" -m octavo.files.jobs.worker 2>&-'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(b"\x02\0\0\0\0\0\0\0{}")  # no job: it answers that
        worker.stdin.flush()
        assert worker.stdout.read(len(READY) + 4)
        if os.path.isdir("/proc/self/fd"):
            leads = {os.readlink(f"/proc/{worker.pid}/fd/{fd}") for fd in (1, 2)}
            assert leads == {os.devnull}
        worker.stdin.close()
        worker.stdout.read()


SYNCS = """
import os, sys
os.closerange(0, 3)
from octavo.files.door.disk import RealDisk
seen = []
sync = os.fsync
import octavo.files.door.disk as disk
disk.sync_directory = lambda fd: (seen.append(fd), sync(fd))
RealDisk().sync_dir(sys.argv[1])
RealDisk().mkdir(sys.argv[1] + "/below")
os._exit(7 if seen and min(seen) > 2 else 8)
"""


def test_a_directory_that_is_synced_has_no_standard_descriptor(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SYNCS, tmp_path], timeout=300, close_fds=True, check=False
    )
    assert done.returncode == 7
