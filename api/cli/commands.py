"""The ``octavo`` command: its group of commands, and what all of them do with errors."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from functools import partial
from typing import Any

import click

from octavo import __version__
from octavo.arguments import OF_HEADS
from octavo.cli.backup import backup, restore
from octavo.cli.compare import diff
from octavo.cli.demo import demo
from octavo.cli.dump import dump
from octavo.cli.history import changes, snapshot
from octavo.cli.index import index
from octavo.cli.inspect import inspect
from octavo.cli.output import OutputClosed, complain, told
from octavo.cli.pipeline import pipeline
from octavo.cli.read import buckets, get, head, scan
from octavo.cli.repair import repair
from octavo.cli.stats import stats, verify
from octavo.cli.upkeep import compact, destroy, trim
from octavo.cli.write import delete, load, put
from octavo.command import INTERRUPTED
from octavo.files.door.file_lock import READING
from octavo.files.errors import Busy, Conflict, HistoryCompacted, Misuse, OctavoError, StoreLocked

ABSENT = 1
USAGE = 2
LOCKED = 3
STORAGE = 4
BUG = 70
OUTPUT_CLOSED = 141

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (Conflict, ABSENT),
    (HistoryCompacted, ABSENT),
    (Busy, ABSENT),
    (Misuse, USAGE),
    (StoreLocked, LOCKED),
)


_WORDS = (
    (READING, "`get`, `scan` and the other commands that read"),
    ("with read_only=True", "with a command that only reads"),
)
"""Words of messages for programs, and what a person who runs a command is told instead."""
_OF_HEADS = (
    "this is a head-only store: `get`, `head`, `scan` and `changes` read it; to write it takes "
    "Python's store.head_bucket(name)"
)


def exit_code(error: Exception) -> int:
    """The command's exit code after an expected error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), STORAGE)


class Commands(click.Group):
    """Turns expected errors into a line and an exit code, wherever they arise."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order that helps a newcomer

    def make_context(self, *words: Any, **named: Any) -> click.Context:
        try:
            return super().make_context(*words, **named)
        except BrokenPipeError:  # while its help was printed; click would exit with 1
            _forget_output()
            sys.exit(OUTPUT_CLOSED)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (OutputClosed, BrokenPipeError):  # the latter while a command's help was printed
            _forget_output()
            ctx.exit(OUTPUT_CLOSED)
        except KeyboardInterrupt:
            complain("interrupted; acknowledged writes are kept")
            ctx.exit(INTERRUPTED)
        except (OctavoError, OSError) as error:
            complain(_OF_HEADS if str(error) == OF_HEADS else self._in_its_words(ctx, told(error)))
            _flush_or_forget()
            ctx.exit(exit_code(error))

    def _in_its_words(self, ctx: click.Context, message: str) -> str:
        """A message about an argument in Python, with the command's option or argument instead."""
        command = self.commands.get(ctx.invoked_subcommand or "")
        name, _, rest = message.partition("=")
        for given in [] if command is None else command.params:
            if given.name == name and rest:
                option = isinstance(given, click.Option)
                name = max(given.opts, key=len) if option else given.human_readable_name
                message = f"{name}={rest}"
        for python, words in _WORDS:
            message = message.replace(python, words)
        return message


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="octavo")
@click.option(
    "-v", "--verbose", count=True,
    help="Show what the store does (-v), with every background job (-vv).",
)  # fmt: skip
@click.pass_context
def cli(ctx: click.Context, verbose: int) -> None:
    """Octavo: an embedded, event-sourced key-value store.

    PATH is the directory of a store. Only `put` and `load` create one. One process at a time
    can have a store open for writing.

    \b
    Exit codes:
      0    done
      1    no: the key is absent, --if-sqn does not hold, verify found damage, compact or
           repair left some, two stores differ, part of the load failed, the requested
           history is compacted away, the store is busy, a step of demo or pipeline went
           wrong, or destroy was not confirmed
      2    the command is wrong: usage, a bad argument, no store at PATH, a bad row of a load
      3    another process has the store open
      4    storage: an I/O error, a full disk, damage that stops the command
      70   a bug in Octavo
      130  interrupted (Ctrl-C); acknowledged writes are kept
      141  the reader of the output closed it

    Results go to standard output, messages and progress bars to standard error; bars appear only
    if that is a terminal.
    """
    if verbose:
        logger = logging.getLogger("octavo")
        ctx.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)


for command in (
    put,
    get,
    delete,
    head,
    scan,
    buckets,
    index,
    load,
    dump,
    changes,
    snapshot,
    diff,
    stats,
    inspect,
    verify,
    compact,
    trim,
    backup,
    restore,
    repair,
    destroy,
    demo,
    pipeline,
):
    cli.add_command(command)


def main() -> None:
    """Run the command."""
    try:
        _log_to_stderr()
        cli.main(prog_name="octavo")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # help that was printed to a full disk, say
        _forget_output()
        complain(told(error))
        sys.exit(STORAGE)
    except Exception:  # noqa: BLE001 - the last place that can say so
        traceback.print_exc()
        complain("this is a bug in Octavo")
        sys.exit(BUG)


def _log_to_stderr() -> None:
    """Show the store's log, such as damage that it stepped over, as messages."""
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("octavo: %(message)s"))
    logger = logging.getLogger("octavo")
    logger.addHandler(lines)
    logger.propagate = False


def _flush_or_forget() -> None:
    """Flush what was printed before an error. If that fails, forget it, or the interpreter would
    try again at its end, and exit with a code of its own."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        _forget_output()


def _forget_output() -> None:
    """Have the interpreter, at its end, flush the rest of standard output into nothing."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)
