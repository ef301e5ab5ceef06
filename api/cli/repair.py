"""The command that mends a store: repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from octavo.cli.options import json_option, path_argument
from octavo.cli.output import Output, complain, steps
from octavo.notation import fields_of, to_text

if TYPE_CHECKING:
    from octavo.actors.keeping.lost_records import Lost


@click.command()
@path_argument
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Give up missing journal files: keys read as before them.",
)
@json_option
@click.pass_context
def repair(ctx: click.Context, path: str, accept_missing: bool, as_json: bool) -> None:
    """Mend the store at PATH, which must not be open.

    Rebuilds what it can: hash tables and offsets of journal files, the ledger, manifests. Lists
    the records that are lost. Damaged files are moved to PATH/damaged. Exits with 1 if anything is
    lost, or still wrong.
    """
    import octavo

    with steps("repairing") as told:
        done = octavo.repair(path, told, accept_missing=accept_missing)
    files = done.files
    with Output() as out:
        if as_json:
            document = {
                "ok": done.ok,
                "rewritten": files.rewritten,
                "ledger": files.ledger,
                "moved": files.moved,
                "notes": [*files.notes, *done.notes],
                "problems": done.verified.problems,
                "lost": [_lost(lost) for lost in files.lost],
            }
            out.json(document)
        else:
            for name in files.rewritten:
                out.line(f"rewritten: journal/{name}")
            for fault in files.ledger:
                out.line(f"ledger rebuilt: {fault}")
            for note in [*files.notes, *done.notes]:
                out.line(f"note: {note}")
            for lost in files.lost:
                whose = "" if lost.key is None else f" of key {to_text(lost.key)}"
                whose += f" of bucket {to_text(lost.bucket)}" if lost.bucket else ""
                out.line(f"lost: sqn {lost.sqn}{whose} in {lost.file}: {lost.why}")
            for name in files.moved:
                out.line(f"damaged file kept: {name}")
            for problem in done.verified.problems:
                complain(problem)
            if files.nothing and done.ok:
                out.line("nothing to repair")
            elif done.ok:
                out.line("repaired; nothing is lost")
    if not done.ok:
        ctx.exit(1)


def _lost(lost: Lost) -> dict[str, object]:
    names = {"bucket": lost.bucket, "key": lost.key}
    known = {what: name for what, name in names.items() if name is not None}
    return {"sqn": lost.sqn, "file": lost.file, "why": lost.why, **fields_of(**known)}
