"""Prints for the command line: results to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import click

from octavo.figures import count, moment
from octavo.files.door.disk import RealDisk
from octavo.files.errors import READ_ONLY, Misuse, usable


class OutputClosed(Exception):  # noqa: N818 - it is not an error
    """The reader of our output closed it."""


class Output:
    """Standard output as bytes, UTF-8 whatever the locale; flushed at the end of the ``with``
    block.

    Raises OutputClosed if the reading end is gone; OSError, which names the output, if there is no
    room or this process was given no output.
    """

    def __init__(self, stream: BinaryIO | None = None, name: str = "standard output") -> None:
        self._name = name
        if stream is None:
            # None if the descriptor is closed: refused before anything is done.
            if sys.stdout is None:
                raise OSError(errno.EBADF, "is closed", name)
            stream = sys.stdout.buffer
        self._stream = stream

    def write(self, raw: bytes) -> None:
        """Write all these bytes, in several calls if need be: without a buffer
        (``PYTHONUNBUFFERED``) the system may take fewer at a time, and never more than 2 GiB."""
        rest = memoryview(raw)
        try:
            while rest:
                taken = self._stream.write(rest)
                if taken is None:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                rest = rest[taken:]
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as wrong:
            raise self._named(wrong) from wrong

    def line(self, text: str) -> None:
        """Write a line of text."""
        self.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def json(self, document: object) -> None:
        """Write a document on a line of its own."""
        self.write(json_line(document))

    def columns(
        self,
        rows: Sequence[Sequence[str]] | Callable[[], Iterator[Sequence[str]]],
        *,
        right: Sequence[int] = (),
    ) -> None:
        """Write aligned columns, never wrapped; those numbered in ``right`` are aligned right. If
        ``rows`` is a function that gives the rows anew each time, only one is in memory at a
        time."""
        again = rows if callable(rows) else partial(iter, rows)
        widths: list[int] = []
        for row in again():
            widths = [max(pair) for pair in zip_longest(widths, map(len, row), fillvalue=0)]
        for row in again():
            cells = [
                cell.rjust(width) if at in right else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.line("  ".join(cells).rstrip())

    def flush(self) -> None:
        """Hand everything printed so far to the system."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as wrong:
            raise self._named(wrong) from wrong

    def _named(self, wrong: OSError) -> OSError:
        return OSError(wrong.errno, wrong.strerror, wrong.filename or self._name)

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()


def json_line(document: object) -> bytes:
    """A document as JSON, with the end of a line."""
    try:
        return json.dumps(document, ensure_ascii=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # a path that is not UTF-8
        return json.dumps(document).encode("ascii") + b"\n"


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file of the user's that appears under its name, durable, only if the block succeeds.

    If the name is there and is no regular file (a FIFO, ``/dev/null``, a shell's ``>(...)``), it is
    written to directly. Raises Misuse if the file cannot be made.
    """
    if os.path.isdir(path):
        raise Misuse(f"FILE={path!r} is a directory: name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as stream:
            yield stream
        return
    target = os.path.realpath(path)
    partial = f"{target}.{secrets.token_hex(8)}.partial"
    try:
        with _made(path, partial) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, target)
        RealDisk().sync_dir(os.path.dirname(target))
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            os.unlink(partial)
        raise


def _made(path: str, partial: str) -> BinaryIO:
    with usable("FILE", path):
        try:
            return open(partial, "xb")
        except OSError as wrong:
            if wrong.errno in READ_ONLY:
                raise Misuse(
                    f"FILE={path!r} cannot be made: {wrong.strerror}; name one in a directory "
                    "where this process's user may make files"
                ) from wrong
            wrong.filename = path  # the name that the user knows
            raise


def told(error: Exception) -> str:
    """The line that tells a person of an expected error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def complain(message: str) -> None:
    """Print a line on standard error; it is lost if nobody reads that or there is no room."""
    with contextlib.suppress(OSError):
        click.echo(f"octavo: {message}", err=True)


def terminal_columns() -> int | None:
    """Columns of the terminal, if standard output is one; else None."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


# ---------------------------------------------------------------- progress


class Advance(Protocol):
    """Moves the bar: how much is done, of what total, and what is being done now."""

    def __call__(
        self, done: float, total: float | None = None, what: str | None = None
    ) -> None: ...


def _silent(done: float, total: float | None = None, what: str | None = None) -> None:
    pass


@contextlib.contextmanager
def progress(what: str, total: float | None, *, of_bytes: bool = False) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs; nothing if that is no terminal.

    ``total`` None: it is not known how much there is.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amount = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *amount,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total)

        def advance(done: float, total: float | None = None, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield advance


@contextlib.contextmanager
def steps(what: str, *, of_bytes: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """As ``progress``, for a call that itself says what it is doing, and the total."""
    with progress(what, None, of_bytes=of_bytes) as advance:
        yield lambda step, done, total: advance(done, total, step)


# ---------------------------------------------------------------- figures


def flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) of a nested document; lists of documents are left out."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool) or not isinstance(value, int | list):
            yield prefix + name, "-" if value is None else str(value)
        elif isinstance(value, int):
            yield prefix + name, moment(value) if name.endswith("_ms") else count(value)
        elif not any(isinstance(item, dict) for item in value):
            yield prefix + name, "; ".join(map(str, value)) or "-"
