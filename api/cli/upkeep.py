"""The commands that change a store as a whole: compact, trim, destroy."""

from __future__ import annotations

from dataclasses import asdict

import click

from octavo.cli.options import json_option, open_store, path_argument, refuse_none, stdin
from octavo.cli.output import Output, complain, steps
from octavo.figures import count, duration, plural, size


@click.command()
@path_argument
@json_option
@click.pass_context
def compact(ctx: click.Context, path: str, as_json: bool) -> None:
    """Give back the space of replaced and deleted versions.

    Rewrites journal files of which more than a tenth is garbage or would be saved by compression.
    If damaged files had to be left as they are, names them and exits with 1. Interrupting it
    loses nothing.
    """
    with Output() as out, open_store(path) as store:
        with steps("compacting", of_bytes=True) as told:
            done = store.compact(told)
        if as_json:
            out.json(asdict(done) | {"seconds": round(done.seconds, 3)})
        else:
            for skipped in done.skipped:
                out.line(f"left as it is: {skipped}")
            out.line(
                f"{size(done.bytes_before)} in {plural(done.files_before, 'journal file')} became "
                f"{size(done.bytes_after)} in {count(done.files_after)}; "
                f"{plural(done.records_dropped, 'record')} dropped in {duration(done.seconds)}"
            )
    if done.skipped:
        ctx.exit(1)


@click.command()
@path_argument
@json_option
def trim(path: str, as_json: bool) -> None:
    """Drop the journal of a head-only store.

    As far as its ledger has it.
    """
    with Output() as out, open_store(path) as store:
        freed = store.trim()
        if as_json:
            out.json({"bytes": freed})
        else:
            out.line(f"{size(freed)} given back")


@click.command()
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def destroy(ctx: click.Context, path: str, yes: bool) -> None:
    """Remove the store at PATH, with all its data. Other files in PATH stay."""
    import octavo

    refuse_none(path)
    if not yes and not _agrees(f"Remove the store at {path}?"):
        complain("nothing was removed")
        ctx.exit(1)
    octavo.destroy(path)


def _agrees(question: str) -> bool:
    stdin()  # raises OSError if there is none
    try:
        return click.confirm(question, err=True)
    except UnicodeDecodeError:  # a line that is no text is no agreement
        return False
