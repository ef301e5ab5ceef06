"""The ``demo`` command: loads real files into a store, and shows on them what a store promises."""

from __future__ import annotations

import contextlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from octavo import __version__
from octavo.cli.demo_tour import Tour
from octavo.cli.options import json_option, kind_of, refuse_for_directory
from octavo.cli.output import Output
from octavo.cli.source import (
    TEXT_FORMATS,
    Directory,
    Entry,
    Rejected,
    Source,
    text_source,
)
from octavo.cli.teller import NOT_SOURCE, Teller, for_now, refuse_taken
from octavo.files.errors import Misuse


@click.command()
@click.argument("source", required=False, type=click.Path(exists=True, path_type=str))
@click.option(
    "--store", "path", type=click.Path(path_type=str),
    help="Keep the store here (new or empty); by default it is removed at the end.",
)  # fmt: skip
@click.option(
    "--format", "kind", type=click.Choice(TEXT_FORMATS),
    help="What SOURCE is; by default its name tells.",
)  # fmt: skip
@click.option("--key-field", metavar="NAME", help="CSV column or JSON field that is the key.")
@click.option("--value-field", metavar="NAME", help="... that is the value; else the whole row.")
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    source: str | None,
    path: str | None,
    kind: str | None,
    key_field: str | None,
    value_field: str | None,
    as_json: bool,
) -> None:
    """Show what Octavo does, on real files.

    Loads SOURCE, a directory, CSV or JSONL (without one: the source tree of the running Python),
    reads it back, takes a snapshot, updates a part in between, lists and folds over the snapshot
    while writes go on, verifies, closes and opens again. Every step is checked against what was
    loaded; exits with 1 if anything is not as promised.
    """
    refuse_taken("--store", path)
    with contextlib.ExitStack() as stack:
        directory = path if path is not None else stack.enter_context(for_now("octavo-demo-"))
        out = stack.enter_context(Output())
        teller = Teller(out, silent=as_json)
        what, found = stack.enter_context(_source(source, directory, kind, key_field, value_field))
        teller.heading(
            f"Octavo {__version__} on {platform.python_implementation()} "
            f"{platform.python_version()}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} CPUs"
        )
        teller.tell("source", what)
        teller.tell("store", directory if path else f"{directory} (removed at the end)")
        tour = Tour(directory, found, teller)
        tour.run()
        look = f"octavo scan {path} --keys-only --limit 5" if path else ""
        teller.end(tour.figures, "Everything held.", look)
    if teller.broken:
        ctx.exit(1)


@contextlib.contextmanager
def _source(
    path: str | None,
    store: str,
    kind: str | None,
    key_field: str | None,
    value_field: str | None,
) -> Iterator[tuple[str, Source]]:
    """Yield (what it is, the source). Raises UsageError."""
    if path is None:
        if kind is not None:
            raise click.UsageError("--format says what SOURCE is, and there is no SOURCE")
        refuse_for_directory(key_field, value_field)
        library = sysconfig.get_path("stdlib")
        yield (
            f"{library}, the source tree of this Python, without {', '.join(NOT_SOURCE)}",
            Directory(library, NOT_SOURCE, store),
        )
        return
    kind = kind_of(path, kind)
    if kind not in TEXT_FORMATS:
        raise click.UsageError(f"SOURCE {path!r} is {kind}: allowed are {', '.join(TEXT_FORMATS)}")
    if kind == "directory":
        refuse_for_directory(key_field, value_field)
        yield path, Directory(path, (), store)
        return
    if kind == "jsonl" and value_field is not None and key_field is None:
        raise click.UsageError("--value-field needs --key-field")
    with Path(path).open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        yield (
            path,
            _Plain(
                text_source(kind, path, file, length, key_field=key_field, value_field=value_field)
            ),
        )


class _Plain:
    """A source whose values neither expire nor go to other buckets, so that they can be counted.

    Stops at the first bad line: a file of another format than was said is of no use here.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.total_bytes = source.total_bytes
        self.skipped = source.skipped

    @property
    def done_bytes(self) -> int:
        return self._source.done_bytes

    def __iter__(self) -> Iterator[Entry | Rejected]:
        for entry in self._source:
            if isinstance(entry, Rejected):
                raise Misuse(f"{entry.where}: {entry.why}")
            yield replace(entry, bucket=b"", metadata=b"", expires_at=None)
