"""Commands on a store as a whole: trim, destroy."""

from __future__ import annotations

import click

from octavo.cli_options import json_option, open_store, path_argument
from octavo.cli_output import Output, complain, size


@click.command()
@path_argument
@json_option
def trim(path: str, as_json: bool) -> None:
    """Let go of the journal of a head-only store, as far as its ledger has it."""
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
    """Remove the store at PATH, with everything in it. Other files in PATH stay."""
    import octavo

    if not yes and not click.confirm(f"Remove the store at {path}?", err=True):
        complain("nothing was removed")
        ctx.exit(1)
    octavo.destroy(path)
