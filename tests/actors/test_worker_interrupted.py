"""Ctrl-C as a worker is started or ended: none is left behind, which would keep the next owner of
the store out."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cutting_short import cut_short

from octavo.actors.worker import JobRunner
from octavo.files.door.disk import RealDisk
from octavo.files.door.file_lock import FileLock

LONGEST = 20.0

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # the wait is what was cut short
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], JobRunner]]:
    """Makes runners whose workers do nothing but leave by the end of their input."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec cat\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    yield lambda: JobRunner(RealDisk(), FileLock(str(tmp_path), lambda: None))
    gc.collect()  # here, where the warnings of those that nobody waited for are let pass


def wait_for(pid: int) -> None:
    """Raises AssertionError where it does not leave."""

    def wait() -> None:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(LONGEST)
    assert not waiting.is_alive()


def test_as_it_is_ended(runner: Callable[[], JobRunner]) -> None:
    cut, at = True, 0
    while cut:
        at += 1
        one = runner()
        process = one._started()
        assert process is not None
        cut, _ = cut_short(one.close, at)
        one.close()  # as its owner does, behind an interrupt
        wait_for(process.pid)
    assert at > 10


def test_as_it_is_started(runner: Callable[[], JobRunner], monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen
    pids = []

    def begun(*arguments: Any, **given: Any) -> subprocess.Popen[bytes]:
        made = real(*arguments, **given)
        pids.append(made.pid)
        signal.raise_signal(signal.SIGINT)  # before the caller has it
        return made

    monkeypatch.setattr(subprocess, "Popen", begun)
    one = runner()
    with pytest.raises(KeyboardInterrupt):
        one._started()
    one.close()
    wait_for(*pids)


def test_one_that_may_not_be_killed_leaves_as_its_input_ends(
    runner: Callable[[], JobRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is root's, and its program has become another user since."""

    def refused() -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    one = runner()
    process = one._started()
    assert process is not None
    monkeypatch.setattr(process, "kill", refused)
    one.cut_off()  # as a close that was interrupted does
    wait_for(process.pid)
    one.close()
