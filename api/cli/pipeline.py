"""The ``pipeline`` command: takes a corpus through Spark, from loading to a backup."""

from __future__ import annotations

import contextlib
import sysconfig
import time

import click

from octavo import __version__
from octavo.cli.options import json_option, refuse_for_directory
from octavo.cli.output import Output, complain
from octavo.cli.pipeline_tour import PipelineTour
from octavo.cli.teller import NOT_SOURCE, Teller, for_now, refuse_taken
from octavo.figures import duration


@click.command()
@click.argument("source", required=False, type=click.Path(exists=True, path_type=str))
@click.option(
    "--into", "path", metavar="DIRECTORY", type=click.Path(path_type=str),
    help="Keep store, copy and backup here (new or empty); by default they are removed at the "
    "end.",
)  # fmt: skip
@click.option(
    "--format", "kind", type=click.Choice(("directory", "parquet", "csv", "jsonl")),
    help="What SOURCE is; by default its name tells.",
)  # fmt: skip
@click.option("--key-field", metavar="NAME", help="Column that is the key; a table needs it.")
@click.option("--value-field", metavar="NAME", help="... that is the value; else the whole row.")
@click.option(
    "--group-field", metavar="NAME",
    help="... by which it aggregates; else the first letter of the key.",
)  # fmt: skip
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@json_option
@click.pass_context
def pipeline(
    ctx: click.Context,
    source: str | None,
    path: str | None,
    kind: str | None,
    key_field: str | None,
    value_field: str | None,
    group_field: str | None,
    master: str,
    as_json: bool,
) -> None:
    """Run the data pipeline on Spark, on real files.

    Loads SOURCE, a directory, Parquet, CSV or JSONL (without one: the source tree of the running
    Python), through Spark into a store; has a second store follow its changes as they are made;
    folds keys and bytes by group over a snapshot; joins the totals back into the store; backs it
    up. Every step is checked; exits with 1 if anything is not as promised.

    Needs octavo[spark] and Java 17 or newer; run by root, it installs Java with the system's
    package manager if there is none.
    """
    refuse_taken("--into", path)
    if source is None and kind is not None:
        raise click.UsageError("--format says what SOURCE is, and there is no SOURCE")
    with contextlib.ExitStack() as stack:
        from octavo.pipeline.session import spark_session

        began = time.perf_counter()
        spark = stack.enter_context(spark_session(master, complain))
        started = time.perf_counter() - began
        from octavo.pipeline.corpus import Corpus, kind_of

        directory = path if path is not None else stack.enter_context(for_now("octavo-pipeline-"))
        what = source or sysconfig.get_path("stdlib")
        corpus = Corpus(
            what, kind or kind_of(what), key_field, value_field, group_field,
            () if source else NOT_SOURCE,
        )  # fmt: skip
        if corpus.kind == "directory":
            refuse_for_directory(key_field, value_field, group_field)
        out = stack.enter_context(Output())
        teller = Teller(out, silent=as_json)
        teller.heading(
            f"Octavo {__version__} on Spark {spark.version}, {spark.sparkContext.master}, started "
            f"in {duration(started)}"
        )
        named = what if source else f"{what}, the source tree of this Python"
        teller.tell("source", f"{named} ({corpus.kind})")
        teller.tell("into", directory if path else f"{directory} (removed at the end)")
        tour = PipelineTour(spark, corpus, directory, teller)
        tour.run()
        held = f"Everything held, in {duration(time.perf_counter() - began)}."
        look = f"octavo scan {path}/store --keys-only --limit 5" if path else ""
        teller.end(tour.figures, held, look)
    if teller.broken:
        ctx.exit(1)
