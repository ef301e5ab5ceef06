"""How large levels and files of the ledger are."""

from __future__ import annotations

LEVEL_ONE_ROWS = 1 << 20
GROWTH = 8
"""How much larger each level is than the one above."""
MAX_FILE_ROWS = 1 << 18
MAX_FILE_BYTES = 64 << 20
MOST_SEARCHED = 4096
"""Files of a ledger in which a merge looks for the objects of its index entries."""


def target_rows(level: int) -> int:
    """How many rows a level, from 1 on, may have; if it has more, files of it go to the next
    one."""
    return LEVEL_ONE_ROWS * int(GROWTH ** (level - 1))


def level_for(rows: int) -> int:
    """The first level below zero that so many rows do not overfill."""
    level = 1
    while rows > target_rows(level):
        level += 1
    return level
