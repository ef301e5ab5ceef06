"""Figures as a person reads them: counts, sizes, durations, moments."""

from __future__ import annotations

from octavo.files.wall_clock import utc
from octavo.stats_types import ConsumerStats

OF_CONSUMERS = ("consumer", "position", "behind", "last moved", "bytes held")
"""The headings of the columns of ``consumer_row``."""


def count(number: float) -> str:
    """12,345"""
    return f"{number:,.0f}"


def size(length: float) -> str:
    """Bytes for a person, in powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(length) < 999.5:
            return f"{length:.0f} {unit}" if unit == "B" else f"{length:.3g} {unit}"
        length /= 1000
    return f"{length:,.3g} TB"


def duration(seconds: float) -> str:
    """Seconds for a person."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def plural(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count(number)} {noun if number == 1 else noun + 's'}"


def moment(ms: int | None) -> str:
    """A moment in ms UTC as ISO 8601; empty for none."""
    return "" if ms is None else utc(ms).replace("+00:00", "Z")


def consumer_row(of: ConsumerStats) -> list[str]:
    """A consumer of the change feed, as a row of a table."""
    return [
        of["name"], count(of["position"]), count(of["behind"]), moment(of["moved_ms"]),
        size(of["holds_bytes"]),
    ]  # fmt: skip
