"""Which journal files to compact: scores, and the run of files that is worth it most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.manifest.journal_manifest import JournalEntry

MAX_RUN_SQNS = 1 << 31
"""A file counts its sqns in 32 bits, those too that unclean stops skipped between two files."""
REWRITE_PERCENT = 10.0
"""On demand, files are rewritten if garbage and what compression would save come to more."""


@dataclass(frozen=True, slots=True)
class Worth:
    """How low scores have to be: a score is the share of a file that is still needed."""

    single_percent: float = 30.0
    """The mean score below which one file is worth rewriting."""
    run_percent: float = 70.0
    """... and a run of ``run_length`` files; in between the bound grows with the length."""
    run_length: int = 8

    def target(self, count: int) -> float:
        """The mean score below which ``count`` consecutive files are worth rewriting."""
        if self.run_length == 1:
            return self.single_percent
        grown = (self.run_percent - self.single_percent) * (count - 1) / (self.run_length - 1)
        # Rounded it may be above 100, and files without any garbage would be worth rewriting.
        return min(self.single_percent + grown, 100.0)


class Run(NamedTuple):
    """Files [start, start + length) of the sequence that was looked at."""

    start: int
    length: int
    worth: float
    """How far its mean score is below the target."""


def best_run(scores: Sequence[float | None], worth: Worth) -> Run | None:
    """The run that is worth most; None: none is. Of equals the oldest, then the shortest.

    ``scores``: of the files in order; None for one that must not take part, which no run passes.
    O(files x longest run).
    """
    best: Run | None = None
    for start in range(len(scores)):
        total = 0.0
        for count in range(1, min(worth.run_length, len(scores) - start) + 1):
            score = scores[start + count - 1]
            if score is None:
                break
            total += score
            gain = worth.target(count) - total / count
            if gain > 0 and (best is None or gain > best.worth):
                best = Run(start, count, gain)
    return best


def countable(run: Sequence[JournalEntry]) -> list[JournalEntry]:
    """The first of these files, as many as one file could take the place of."""
    last = run[0].base_sqn + MAX_RUN_SQNS
    return [entry for entry in run if entry is run[0] or entry.last_sqn < last]
