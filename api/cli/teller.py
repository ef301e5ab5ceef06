"""Who tells, for the commands that show what Octavo does, a line a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.cli.output import Output

NOT_SOURCE = ("__pycache__", "site-packages", "dist-packages")
"""Folders of Python's library that are left out where its source tree serves as an example."""
_NAME_COLUMNS = 11


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
