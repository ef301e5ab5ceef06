"""How large levels and files of the ledger are."""

from __future__ import annotations

LEVEL_ONE_ROWS = 1 << 20
GROWTH = 8
"""How much larger each level is than the one above."""
MAX_FILE_ROWS = 1 << 18
MAX_FILE_BYTES = 64 << 20
MOST_SEARCHED = 4096
"""Files of a ledger in which a merge looks for the objects of its index entries."""


def level_for(rows: int) -> int:
    """The first level below zero that so many rows do not overfill."""
    level, target = 1, LEVEL_ONE_ROWS
    while rows > target:
        level, target = level + 1, target * GROWTH
    return level
