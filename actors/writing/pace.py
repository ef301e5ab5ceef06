"""How fast puts may go: gradually slower while merging lags, so that no put waits for seconds."""

from __future__ import annotations

from dataclasses import dataclass

LOOK_EVERY = 256
"""Puts between two looks at how full memory is and how far merging lags."""
FIRST_LOOK = 16
"""Puts from an opening to the first look: enough to see whether each put is synced."""

_TABLES_AT_EASE = 1
_FILES_AT_EASE = 16
_UNSEALED_AT_EASE = 16
_LONGEST_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Limits:
    """When the Bookie pushes its recent changes to the Penciller."""

    push_rows: int
    push_bytes: int


def pace(
    waiting_tables: int, level_zero_files: int, waiting_to_be_sealed: int = 0
) -> tuple[float, int]:
    """(seconds to pause, puts until the next pause) for a backlog; no pause while it is small.

    The pause grows, and the stretch of puts shrinks, with the square of the lag. Journal files
    that wait to be sealed count because each holds two descriptors, and a close seals them all.
    """
    lag = max(waiting_tables - _TABLES_AT_EASE, 0) + 0.25 * (
        max(level_zero_files - _FILES_AT_EASE, 0) + max(waiting_to_be_sealed - _UNSEALED_AT_EASE, 0)
    )
    if lag <= 0:
        return 0.0, LOOK_EVERY
    return min(0.0002 * lag * lag, _LONGEST_SECONDS), max(int(LOOK_EVERY / (1 + 4 * lag * lag)), 1)
