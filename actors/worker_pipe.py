"""The owner's side of a worker's pipes: gives up on a worker that shows no sign of life.

A worker with a job says every few seconds that it is alive, however long the job takes. One that
was stopped (SIGSTOP, a debugger, a frozen control group) says nothing, and reads nothing. Looks
are counted, not time: if this process was stopped, too, that costs one look only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from typing import Any

from octavo.files.jobs import worker
from octavo.files.unbroken import unbroken

LOOK_SECONDS = 5.0
LOOKS = 6
"""So many looks in a row without a sign: together they take less than an ask waits for a turn."""


class Silent(Exception):  # noqa: N818 - internal: it is there, and says nothing
    """The worker gave no sign of life."""


class WorkerPipe:
    """Sends jobs to one worker process and receives its answers. For one thread at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """``process`` has pipes for its input and output, which nothing else reads or writes."""
        if process.stdin is None or process.stdout is None:
            raise worker.Disconnected
        self._requests, self._answers = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._requests, False)
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(self._requests, select.POLLOUT)
        self._readable.register(self._answers, select.POLLIN)
        self.begun = False
        """Whether the worker has said its first word."""
        self.answered = True
        """Whether it owes no answer. It still does if the asking thread was interrupted, and then
        interrupted again: what comes next is no answer to the next job."""

    def ask(self, job: str, blobs: tuple[bytes, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        """Send a job; return the worker's answer. Raises Disconnected, OSError, Silent; after that
        this pipe is of no more use."""
        self.answered = False
        if not self.begun:
            worker.pass_by_what_was_printed(self)
            self.begun = True
        worker.send(self, {"job": job, "arguments": arguments}, blobs)
        while True:
            answer, _ = worker.receive(self)
            if worker.ALIVE not in answer:
                self.answered = True
                return answer

    def write(self, part: bytes, /) -> None:
        """Send all these bytes. Raises OSError, Silent."""
        left = memoryview(part)
        while left:
            _sign(self._writable)
            with contextlib.suppress(BlockingIOError):
                left = left[_written(self._requests, left) :]

    def flush(self) -> None:
        """Do nothing: ``write`` keeps nothing back."""

    def read(self, length: int, /) -> bytes:
        """Receive ``length`` bytes, or fewer if the pipe ends. Raises OSError, Silent."""
        found = bytearray()
        while len(found) < length:
            _sign(self._readable)
            part = os.read(self._answers, length - len(found))
            if not part:
                break
            found += part
        return bytes(found)


def _written(pipe: int, part: memoryview) -> int:
    """As ``os.write``, without a SIGPIPE: a worker's death must not end a program that gave that
    signal its default action for the sake of its own output, or that embeds Python without Python's
    handlers."""
    with unbroken:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        try:
            return os.write(pipe, part)
        except BrokenPipeError:
            if signal.SIGPIPE not in before and signal.SIGPIPE in signal.sigpending():
                signal.sigwait({signal.SIGPIPE})  # or it is delivered once it is unblocked
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _sign(wanted: select.poll) -> None:
    """Return when the pipe can be read or written, or is at its end. Raises Silent."""
    for _ in range(LOOKS):
        if wanted.poll(LOOK_SECONDS * 1000):
            return
    raise Silent
