"""The worker process: runs jobs that come in on standard input, answers on standard output.

Started as ``python -m octavo.files.jobs.worker``. It leaves as soon as its input closes (on macOS,
in the middle of a job, at its next sign of life): any job may be cut short anywhere. It has
inherited a lock that keeps the next owner of the store out until it has left.

A message, both ways: u32 length of a JSON head, u32 number of blobs, u64 length of each blob,
the head, the blobs. All lengths are bounded. Nothing is unpickled. While a job runs, a message
``{"alive": true}`` comes every BEAT_SECONDS: so its asker can wait for as long as the job takes,
and not for a worker that was stopped. The worker's first word is READY: what a site runs in every
Python (``sitecustomize``, a ``.pth``) may have printed something before it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import struct
import sys
import threading
import time
from typing import IO, Any, Protocol

from octavo.files import errors
from octavo.files.locks import new_lock

BEAT_SECONDS = 2.0
ALIVE = "alive"
READY = b"\0octavo\0"

_COUNTS = struct.Struct("<II")
_MAX_HEAD = 1 << 30  # keys of new files, six characters a byte: more than a manifest can name
_MAX_BLOB = 1 << 30  # offsets of a quarter of a billion records
_MAX_BLOBS = 16
_MOST_FILES = 1 << 16
_MOST_PRINTED = 1 << 20


class Disconnected(Exception):  # noqa: N818 - internal: the other side is gone
    """The pipe ended."""


class Source(Protocol):
    """What messages are read from."""

    def read(self, length: int, /) -> bytes | None:
        """Read ``length`` bytes; fewer at the end."""


def _exactly(stream: Source, length: int) -> bytes:
    data = stream.read(length)
    if data is None or len(data) != length:
        raise Disconnected
    return data


class Target(Protocol):
    """What messages are written to."""

    def write(self, part: bytes, /) -> object: ...
    def flush(self) -> object: ...


def send(stream: Target, head: dict[str, Any], blobs: tuple[bytes, ...] = ()) -> None:
    """Write one message and flush it. Raises OSError when the other side is gone."""
    text = json.dumps(head).encode()
    lengths = struct.pack(f"<{len(blobs)}Q", *map(len, blobs))
    stream.write(_COUNTS.pack(len(text), len(blobs)) + lengths + text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def receive(stream: Source) -> tuple[dict[str, Any], list[bytes]]:
    """Read one message. Raises Disconnected at the end of the stream or on nonsense."""
    text_length, count = _COUNTS.unpack(_exactly(stream, _COUNTS.size))
    if text_length > _MAX_HEAD or count > _MAX_BLOBS:
        raise Disconnected
    lengths = struct.unpack(f"<{count}Q", _exactly(stream, 8 * count))
    if any(length > _MAX_BLOB for length in lengths):
        raise Disconnected
    head = json.loads(_exactly(stream, text_length))
    return head, [_exactly(stream, length) for length in lengths]


def pass_by_what_was_printed(stream: Source) -> None:
    """Read up to and with a worker's first word. Raises Disconnected where none comes."""
    last = b""
    for _ in range(_MOST_PRINTED):
        last = (last + _exactly(stream, 1))[-len(READY) :]
        if last == READY:
            return
    raise Disconnected


def failure(error: Exception) -> dict[str, Any]:
    """An exception as plain values; raised() is the other way."""
    if isinstance(error, errors.Corruption):
        return {
            "error": "Corruption",
            "args": [error.file, error.offset, error.what, str(error.expected), str(error.found)],
        }
    if isinstance(error, OSError):
        return {"error": "OSError", "args": [error.errno, error.strerror, error.filename]}
    return {"error": type(error).__name__, "args": [str(error)]}


def no_memory() -> errors.StorageFull:
    """What a job's MemoryError means: nothing failed, and it may be run again."""
    return errors.StorageFull("there is no memory for a background job; it waits for some")


def raised(answer: dict[str, Any]) -> Exception:
    """The exception that a failed job's answer stands for."""
    name, args = answer["error"], answer["args"]
    if name == "Corruption":
        file, offset, what, expected, found = args
        return errors.Corruption(file, offset, what, expected=expected, found=found)
    if name == "OSError":
        return OSError(*args)
    if name == "MemoryError":
        return no_memory()
    known = getattr(errors, name, None)
    if isinstance(known, type) and issubclass(known, errors.OctavoError):
        return known(*args)
    return errors.StorageFailed(f"background job failed: {name}: {args[0]}")


def _allow_many_files() -> None:
    """Raise this process's own limit of open files: a job may have all of a large ledger open."""
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:  # a sandbox that does not let one ask
        return
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    while soft < wanted:
        try:
            return resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # macOS says that there is no limit, and has one
            wanted //= 2


def _leave_with(requests: int) -> None:
    """End this process when the other side of its input is gone."""
    waiting = select.poll()
    waiting.register(requests, 0)  # hang-ups are always reported, input is not
    waiting.poll()
    os._exit(0)


class _Answers:
    """Sends answers, and signs of life while a job runs."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._one_message = new_lock()
        self._working = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def begin(self) -> None:
        """Send signs of life from now on: a job begins."""
        self._working.set()

    def end(self, answer: dict[str, Any]) -> None:
        """Send the answer of the job that began. Raises OSError when the other side is gone."""
        with self._one_message:
            self._working.clear()
            send(self._stream, answer)

    def _beat(self) -> None:
        try:
            while self._working.wait():
                time.sleep(BEAT_SECONDS)
                with self._one_message:
                    if self._working.is_set():
                        send(self._stream, {ALIVE: True})
        except OSError:  # the other side is gone, which macOS's poll does not report
            os._exit(0)


def main() -> None:
    """Serve jobs until standard input closes. An argument is how much to lower the priority."""
    from octavo.files.door.disk import RealDisk
    from octavo.files.door.open_file import lead_nowhere
    from octavo.files.jobs.table import JOBS

    _allow_many_files()
    if len(sys.argv) > 1:
        os.nice(int(sys.argv[1]))
    requests = sys.stdin.buffer
    # Whatever prints must not land between two messages.
    if sys.stderr is None:  # its owner has none; else the next descriptor would be 2
        lead_nowhere(2)
    try:
        os.write(1, READY)
    except OSError:
        return  # the other side is gone already
    answers = _Answers(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    threading.Thread(target=_leave_with, args=(0,), daemon=True).start()
    disk = RealDisk()
    while True:
        try:
            head, blobs = receive(requests)
        except (Disconnected, KeyboardInterrupt):
            return
        answers.begin()
        try:
            answer = {"result": JOBS[head["job"]](disk, *blobs, **head["arguments"])}
        except KeyboardInterrupt:
            return
        except Exception as error:  # noqa: BLE001 - every failure is the asker's to judge
            answer = failure(error)
        try:
            answers.end(answer)
        except OSError:
            return


if __name__ == "__main__":
    main()
