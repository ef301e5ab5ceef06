"""The owner's side of a worker's pipes: no wait for a worker that gives no sign of life.

A worker with a job says every few seconds that it is alive, however long the job takes. One that
was stopped (SIGSTOP, a debugger, a frozen control group) says nothing, and takes in nothing. What
is counted are looks, not time: where this process, too, was stopped meanwhile, it costs one look.
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
"""So many looks in a row without a sign: less, together, than an ask waits for a turn."""


class Silent(Exception):  # noqa: N818 - internal: it is there, and says nothing
    """The worker gave no sign of life."""


class WorkerPipe:
    """Jobs for a worker process, and its answers: one of these for each. One thread at a time."""

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
        """Whether it has said its first word."""
        self.answered = True
        """Whether it owes nothing: of one that was asked by a thread that was interrupted, and
        interrupted again, the next answer is none to the next job."""

    def ask(self, job: str, blobs: tuple[bytes, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        """What the worker answers. Raises Disconnected, OSError, Silent; then it is of no more
        use."""
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
        """Send bytes."""
        left = memoryview(part)
        while left:
            _sign(self._writable)
            with contextlib.suppress(BlockingIOError):
                left = left[_written(self._requests, left) :]

    def flush(self) -> None:
        """Nothing is kept here."""

    def read(self, length: int, /) -> bytes:
        """So many bytes; fewer at the end."""
        found = bytearray()
        while len(found) < length:
            _sign(self._readable)
            part = os.read(self._answers, length - len(found))
            if not part:
                break
            found += part
        return bytes(found)


def _written(pipe: int, part: memoryview) -> int:
    """As ``os.write``, without a SIGPIPE: the death of a worker is not to end a program that gave
    that signal its default action, for the sake of its own output, or embeds Python without
    Python's handlers."""
    with unbroken:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        try:
            return os.write(pipe, part)
        except BrokenPipeError:
            if signal.SIGPIPE not in before and signal.SIGPIPE in signal.sigpending():
                signal.sigwait({signal.SIGPIPE})  # or it comes as soon as it may
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _sign(wanted: select.poll) -> None:
    """Return when the pipe has something, or room, or is at its end. Raises Silent."""
    for _ in range(LOOKS):
        if wanted.poll(LOOK_SECONDS * 1000):
            return
    raise Silent
