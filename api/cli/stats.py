"""The commands that look at the store as a whole: stats, verify."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from octavo.cli.options import json_option, open_for_reading, open_store, path_argument
from octavo.cli.output import Output, flat, steps
from octavo.figures import OF_CONSUMERS, consumer_row, count, duration, plural, size
from octavo.files.errors import Misuse


@click.command()
@path_argument
@json_option
@click.option("--prometheus", is_flag=True, help="Print Prometheus' text format.")
@click.option("--score", is_flag=True, help="Sample the journal's files for garbage first.")
def stats(path: str, as_json: bool, prometheus: bool, score: bool) -> None:
    """Print figures of the store.

    Files, levels, memory, sequence numbers. What is counted since opening counts for this command
    only; a program asks its own store: store.stats(), store.stats_prometheus(). For a store that is
    open elsewhere it prints what the files say, and only without --prometheus and --score.
    """
    if as_json and prometheus:
        raise Misuse("--json and --prometheus: allowed is one of them")
    opened = open_store if prometheus or score else open_for_reading  # only an owner has these
    with Output() as out, opened(path) as store:
        figures = store.stats(score=score)
        if prometheus:
            out.write(store.stats_prometheus().encode())
            return
        if as_json:
            out.json(figures)
            return
        out.columns(list(flat(dict(figures))))
        levels: list[Any] = list(figures["ledger"]["levels"])
        if levels:
            out.line("")
            names = list(levels[0])
            rows = [[count(level[name] or 0) for name in names] for level in levels]
            out.columns([names, *rows], right=range(len(names)))
        if figures["consumers"]:
            out.line("")
            rows = list(map(consumer_row, figures["consumers"]))
            out.columns([OF_CONSUMERS, *rows], right=range(1, len(OF_CONSUMERS)))


@click.command()
@path_argument
@json_option
@click.pass_context
def verify(ctx: click.Context, path: str, as_json: bool) -> None:
    """Read and check the whole store.

    Every checksum and every invariant. If anything is damaged, says what and where, and exits with
    1.
    """
    began = time.perf_counter()
    with Output() as out, open_for_reading(path) as store:
        with steps("verifying") as progress:
            report = store.verify(progress)
        seconds = time.perf_counter() - began
        if as_json:
            notes = store.stats().get("notes", [])
            told = {"ok": report.ok, **asdict(report), "seconds": round(seconds, 3)}
            out.json(told | {"notes": notes})
        else:
            for problem in report.problems:
                out.line(problem)
            out.line(
                f"{'ok' if report.ok else plural(len(report.problems), 'problem')}: "
                f"{plural(report.journal_files, 'journal file')}, "
                f"{plural(report.ledger_files, 'ledger file')}, "
                f"{plural(report.records, 'record')}, {plural(report.keys, 'key')}, "
                f"{size(report.bytes)} in {duration(seconds)}"
            )
    if not report.ok:
        ctx.exit(1)
