"""Tells, a line a step, what happens in the commands that show what Octavo does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from octavo.cli.output import Output
from octavo.figures import count

NOT_SOURCE = ("__pycache__", "site-packages", "dist-packages")
"""Folders of Python's library that are left out where its source tree serves as an example."""
_NAME_COLUMNS = 11


def refuse_taken(option: str, path: str | None) -> None:
    """Raise UsageError if there is something in the directory that a command is to make."""
    if path is not None and os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise click.UsageError(f"{option} {path!r} is there already; name a new or an empty one")


def for_now(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """A new directory, removed at the end of a ``with`` block as far as possible."""
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


@dataclass
class Teller:
    """Says what happens, a line a step, and remembers what should not have happened."""

    out: Output
    silent: bool
    broken: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        if not self.silent:
            self.out.line(f"\n{text}\n")
            self.out.flush()

    def tell(self, name: str, text: str) -> None:
        if not self.silent:
            self.out.line(f"  {name:<{_NAME_COLUMNS}} {text}")
            self.out.flush()

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        if not self.silent:
            margin = " " * (_NAME_COLUMNS + 3)
            padded = [(margin + row[0], *row[1:]) for row in rows]
            self.out.columns(padded, right=range(1, len(rows[0])))

    def check(self, holds: bool, promise: str) -> None:
        if not holds:
            self.broken.append(promise)
            self.tell("", f"DOES NOT HOLD: {promise}")

    def end(self, figures: Mapping[str, object], held: str, look_around: str) -> None:
        """Tell the result; with the figures, if nothing else was told."""
        if self.silent:
            self.out.json({"ok": not self.broken, "broken": self.broken, **figures})
        elif self.broken:
            self.heading(f"{count(len(self.broken))} of the promises above do not hold.")
        else:
            self.heading(held)
            if look_around:
                self.tell("look around", look_around)
