"""The command that shows a store, on the terminal or as a page: inspect."""

from __future__ import annotations

import click

from octavo.cli.options import open_store, path_argument
from octavo.cli.output import Output, complain, terminal_columns, whole_file
from octavo.figures import size


@click.command()
@path_argument
@click.option(
    "--html", "page", metavar="FILE", type=click.Path(path_type=str),
    help="Write a page with pictures; - for standard output.",
)  # fmt: skip
@click.option(
    "--score/--no-score", default=True,
    help="Sample the journal's files for garbage, or leave that out.  [default: --score]",
)  # fmt: skip
def inspect(path: str, page: str | None, score: bool) -> None:
    """Look at a store in figures and bars.

    Levels, files, garbage, jobs, snapshots, latencies.

    The page is one file that needs no network and runs no script. What is counted since opening
    counts for this command only; a program makes the page of its own store: store.inspect_html().
    """
    with Output() as out, open_store(path) as store:
        if page is None:
            from octavo.cli.overview import overview
            from octavo.pictures.inspection import inspect as looked_at

            found = looked_at(store._running, score=score)
            out.write(overview(found, columns=terminal_columns()).encode("utf-8", "replace"))
            return
        whole = store.inspect_html(score=score).encode()
        if page == "-":
            out.write(whole)
            return
        with whole_file(page) as file:
            file.write(whole)
        complain(f"{page}: {size(len(whole))}")
