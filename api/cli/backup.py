"""The commands that make a store from another one's files: backup, restore."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from octavo.cli.options import json_option, open_store, path_argument, to_moment
from octavo.cli.output import Output, steps
from octavo.figures import count, plural, size

if TYPE_CHECKING:
    from octavo.actors.keeping.backup import BackedUp


@click.command()
@path_argument
@click.argument("target", type=click.Path(path_type=str))
@click.option("--no-ledger", is_flag=True, help="Leave out the ledger if it can be rebuilt.")
@click.option("--copy", is_flag=True, help="Copy the files where they cannot be linked.")
@json_option
def backup(path: str, target: str, no_ledger: bool, copy: bool, as_json: bool) -> None:
    """Back up the store at PATH into the directory TARGET.

    By hard links: no value is read or written. The same TARGET again brings that backup up to date.
    A backup is a store. If a process has the store open, that process makes the backup.
    """
    with Output() as out, steps("backup") as told:
        done = _backed_up(path, target, not no_ledger, copy, told)
        if as_json:
            out.json(dataclasses.asdict(done))
            return
        moved = f"{size(done.bytes_linked)} linked"
        if done.bytes_copied:
            moved += f", {size(done.bytes_copied)} copied"
        out.line(
            f"sqn {count(done.sqn)}: {plural(done.files, 'file')}, {count(done.linked)} of them "
            f"new ({moved}), {count(done.removed)} removed"
        )


def _backed_up(
    path: str, target: str, ledger: bool, copy: bool, progress: Callable[[str, int, int], None]
) -> BackedUp:
    import octavo

    try:
        store = open_store(path)
    except octavo.StoreLocked as locked:
        if copy:
            raise octavo.StoreLocked(
                f"{locked}: a store that is open elsewhere is backed up by links only; make a "
                "backup beside it without --copy, and copy that"
            ) from None
        return octavo.backup(path, target, ledger=ledger)
    with store:
        return store.backup(target, ledger=ledger, copy=copy, progress=progress)


@click.command()
@click.argument("source", type=click.Path(path_type=str))
@path_argument
@click.option(
    "--sqn", type=click.IntRange(min=0), metavar="N", help="Only what was written up to it."
)
@click.option("--time", "moment", metavar="TIME", help="Only what was written until then.")
@click.option("--copy", is_flag=True, help="Copy the files where they cannot be linked.")
@json_option
def restore(
    source: str, path: str, sqn: int | None, moment: str | None, copy: bool, as_json: bool
) -> None:
    """Make a store at PATH from the backup at SOURCE.

    SOURCE may also be a store that is not open. --sqn and --time restore an earlier state, if the
    journal still has it. TIME is ISO 8601, UTC where it names no zone, or milliseconds since 1970.
    """
    import octavo

    until = None if moment is None else to_moment("--time", moment)
    with Output() as out:
        done = octavo.restore(source, path, sqn=sqn, time=until, copy=copy)
        if as_json:
            out.json(dataclasses.asdict(done))
        else:
            out.line(f"sqn {count(done.sqn)}: {size(done.bytes_linked)} linked, "
                     f"{size(done.bytes_copied)} written")  # fmt: skip
            for note in done.notes:
                out.line(note)
