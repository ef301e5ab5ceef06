"""Chooses small neighbouring files, of journal or ledger, to be put together, so that there are
never many: each one slows whatever looks at all files, however little it holds."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.level_sizes import MAX_FILE_BYTES, MAX_FILE_ROWS

SMALL = 4
"""A file that is less than this part full is small."""
FEW_SMALL = 32
"""This many small neighbours are put together unasked."""
MANY_SMALL = 128
"""... and no more at once: each holds a descriptor meanwhile."""
_GROWTH = 4.0
"""... where they make a file that is so many times as large as the largest of them: so each byte
moves a few times at most until its file is not small any more."""

_ALIKE = 2.0
"""As ``_GROWTH``, of files of level zero, each of which slows reads."""


def small_run(fills: Sequence[float | None]) -> slice | None:
    """The oldest small neighbours that are worth putting together, as many as make one full file.

    ``fills``: how full each file is, in order, 1: full; None: one that must not take part. None:
    there are no such. Where files come one by one and all may take part, fewer than twice
    ``FEW_SMALL`` stay small, and a byte moves some five times. O(files) where few are small.
    """
    small = [fill is not None and fill < 1 / SMALL for fill in fills]
    if sum(small) < FEW_SMALL:
        return None
    for start in range(len(fills) - FEW_SMALL + 1):
        count, total, largest = 0, 0.0, 0.0
        for fill in fills[start : start + MANY_SMALL]:
            if fill is None or fill * SMALL >= 1 or total + fill > 1:
                break
            count, total, largest = count + 1, total + fill, max(largest, fill)
        if count >= FEW_SMALL and total >= _GROWTH * largest:
            return slice(start, start + count)
    return None


def alike(entries: tuple[LedgerEntry, ...], few: int) -> tuple[LedgerEntry, ...]:
    """As many of level zero's newest files as are worth making one, ``few`` at least; or none.

    ``entries``: all of it, newest first. Those that are left are older throughout: files of one
    time share no keys with each other, but might with the one that is made. It is no more than one
    file holds, or it would be parted again. O(entries).
    """
    found, rows, size, largest, oldest = 0, 0, 0, 0, entries[0].min_sqn
    for count, entry in enumerate(entries[:MANY_SMALL], 1):
        rows, size, largest = rows + entry.rows, size + entry.bytes, max(largest, entry.rows)
        if rows > MAX_FILE_ROWS or size > MAX_FILE_BYTES:
            break
        oldest = min(oldest, entry.min_sqn)
        apart = count == len(entries) or entries[count].max_sqn < oldest
        if count >= few and apart and rows >= _ALIKE * largest:
            found = count
    return entries[:found]
