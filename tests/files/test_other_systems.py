"""What macOS, other machines and newer Pythons do otherwise, as far as it can be feigned."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption
from octavo.files.jobs import worker

DISK = RealDisk()


def test_a_link_of_a_symbolic_link_does_not_lead_out_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS os.link follows them, and from Python 3.15 on everywhere, unless told not to."""
    real = os.link

    def follows(source: str, target: str, *, follow_symlinks: bool = True) -> None:
        real(os.path.realpath(source) if follow_symlinks else source, target)

    monkeypatch.setattr(os, "link", follows)
    (tmp_path / "outside").write_bytes(b"somebody's")
    (tmp_path / "a").symlink_to(tmp_path / "outside")
    DISK.link(str(tmp_path / "a"), str(tmp_path / "b"))
    assert os.stat(tmp_path / "outside").st_nlink == 1
    with pytest.raises(Corruption, match="symbolic link"):
        DISK.map(str(tmp_path / "b"))


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
