"""Arguments and options that several commands have in common."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import click

from octavo import arguments
from octavo.cli.source import format_of
from octavo.files.door.disk import RealDisk
from octavo.files.errors import READ_ONLY, Misuse, usable
from octavo.files.ledger.ledger_key import MAX_KEY_BYTES
from octavo.files.wall_clock import ms_of_iso
from octavo.manifest.store_identity import IDENTITY
from octavo.notation import from_hex, from_text

if TYPE_CHECKING:
    from octavo.store import Store

F = TypeVar("F", bound=Callable[..., Any])

STDIN = "-"
_PIECE_BYTES = 1 << 20
_LONGEST_HEX = 3
"""Characters of a byte in hexadecimal digits, with a space."""
_LONGEST_KEY_LINE = len(r"\xHH") * MAX_KEY_BYTES + 1
"""Bytes of the longest key in the text notation, with the end of the line."""
COUNT = click.IntRange(0, sys.maxsize)
"""A limit: counters in C take no more."""

path_argument = click.argument("path", type=click.Path(path_type=str))
bucket_option = click.option(
    "--bucket", "-b", default="", metavar="NAME", help="Bucket; without it, the default one."
)
STANDARD = "standard"
tag_option = click.option(
    "--tag", default=STANDARD, metavar="NAME",
    help="Type of objects; without it, the standard one.",
)  # fmt: skip
hex_key_option = click.option(
    "--hex-key", is_flag=True, help="Keys and bounds are given in hexadecimal."
)
sub_key_option = click.option(
    "--sub-key", metavar="KEY", help="Sub-key in a head-only store; without it, the empty one."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def notation_options(command: F) -> F:
    """``--hex`` and ``--text``: how bytes are printed."""
    as_hex = click.option("--hex", "notation", flag_value="hex", help="Print hexadecimal.")
    as_text = click.option(
        "--text", "notation", flag_value="text",
        help=r"Print text on one line; other bytes as \xHH, a backslash as \\.",
    )  # fmt: skip
    return as_text(as_hex(command))


def open_store(path: str, *, create: bool = False) -> Store:
    """Open the store at ``path``. Raises Misuse if there is none and ``create`` is False."""
    import octavo

    if not create:
        refuse_none(path)
    return octavo.open(path, create=create)


def refuse_none(path: str) -> None:
    """Raise Misuse if there is no store, OSError if the disk cannot tell."""
    with usable("path", path):
        if not RealDisk().exists(os.path.join(path, IDENTITY)):
            from octavo.actors.opening.identity import LOST, has_journal

            lost = has_journal(RealDisk(), path)
            raise Misuse(
                f"there is no store at {path}" + (LOST if lost else "; `put` and `load` make one")
            )


def open_for_reading(path: str) -> Store:
    """Open the store at ``path``; read-only, as it is now, if it is open elsewhere or this user may
    only read it. Raises Misuse if there is none."""
    import octavo

    try:
        return open_store(path)
    except octavo.StoreLocked:
        pass
    except Misuse as refused:
        if not isinstance(cause := refused.__cause__, OSError) or cause.errno not in READ_ONLY:
            raise
    found: Any = octavo.open(path, read_only=True)
    return cast("Store", found)


def to_bytes(name: str, argument: str, *, hexadecimal: bool = False) -> bytes:
    """The bytes of a command-line argument, or (hexadecimal) those it spells. Raises Misuse."""
    return from_hex(name, argument) if hexadecimal else os.fsencode(argument)


def bound(name: str, argument: str | None, *, hexadecimal: bool) -> bytes | None:
    """One end of a range; None is unbounded. Raises Misuse."""
    return None if argument is None else to_bytes(name, argument, hexadecimal=hexadecimal)


def to_moment(name: str, argument: str) -> int:
    """ms UTC of a moment in ISO 8601 (UTC if it names no zone), or given in ms. Raises Misuse."""
    try:
        if argument.isascii() and argument.isdigit() and len(argument) > len("20261231"):
            return arguments.to_moment(name, int(argument))
        return ms_of_iso(argument)
    except ValueError:
        raise Misuse(
            f"{name}={argument!r:.80}: allowed are a moment such as 2026-11-21T10:15:00Z, a date, "
            "and ms since 1970 UTC"
        ) from None


def refuse_for_directory(*options: str | None) -> None:
    """Raise UsageError if one of these is given: a directory has no columns."""
    if any(option is not None for option in options):
        raise click.UsageError(
            "--key-field, --value-field, --group-field and --delimiter are for tables, not for a "
            "directory"
        )


def kind_of(source: str, given: str | None) -> str:
    """The format of a SOURCE, checked as far as possible without reading it. Raises UsageError."""
    if source != STDIN and not os.path.exists(source):
        raise click.UsageError(f"SOURCE {source!r} does not exist")
    kind = given or (None if source == STDIN else format_of(source))
    if kind is None:
        raise click.UsageError(f"cannot tell what {source!r} is; say it with --format")
    if kind == "directory":
        if source == STDIN or not os.path.isdir(source):
            raise click.UsageError(f"SOURCE {source!r} is no directory")
    elif os.path.isdir(source):
        raise click.UsageError(f"SOURCE {source!r} is a directory")
    if kind == "parquet" and source == STDIN:
        raise click.UsageError("Parquet is read from a file, not from standard input")
    return kind


def stdin() -> BinaryIO:
    """Standard input. Raises OSError if this process was given none."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "is closed", "standard input")
    return sys.stdin.buffer


def read_value(stream: BinaryIO, hexadecimal: bool = False) -> bytes:
    """Read the rest of a stream as a value. Raises OSError, and Misuse as soon as it is more than a
    value may have: a source such as /dev/zero has no end."""
    found, most = io.BytesIO(), arguments.MAX_VALUE_BYTES
    while part := stream.read(_PIECE_BYTES):
        found.write(part)
        if found.tell() > (_LONGEST_HEX * most if hexadecimal else most):
            raise Misuse(f"value of more than {most} bytes: at most so many are allowed")
    return found.getvalue()  # no copy


def one_key(argument: str, *, hexadecimal: bool) -> bytes:
    """A key from its argument, or the one on standard input for ``-``. Raises Misuse."""
    if argument != STDIN:
        return to_bytes("KEY", argument, hexadecimal=hexadecimal)
    keys = list(islice(keys_of_stdin(hexadecimal=hexadecimal), 2))
    if len(keys) != 1:
        found = "more than one line" if keys else "nothing"
        raise Misuse(f"KEY is '-' and standard input holds {found}: allowed is one line")
    return keys[0]


def keys_of_stdin(*, hexadecimal: bool) -> Iterator[bytes]:
    """Yield keys from standard input as they come, one a line, as ``scan --keys-only`` prints them.
    A line that is too long is refused before its end, since it may have none. Raises Misuse."""
    stream = stdin()
    while line := stream.readline(_LONGEST_KEY_LINE + 1):
        if len(line) > _LONGEST_KEY_LINE:
            raise Misuse(f"KEY of more than {MAX_KEY_BYTES} bytes: at most so many are allowed")
        line = line.removesuffix(b"\n")
        yield from_hex("KEY", line) if hexadecimal else from_text(line)
