"""Offsets of the records of a journal file, as its actor needs them."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap

from octavo.files.errors import Corruption
from octavo.files.journal import cdb
from octavo.files.kernels.cold_pages import COLD
from octavo.files.messages import messages_of
from octavo.manifest import recovery

log = messages_of("octavo.journal")


def sealed_offsets(
    mapped: mmap | bytes, path: str, seed: int
) -> tuple[Sequence[int], Corruption | None]:
    """(the offsets of a sealed file, what is wrong with its own). If anything is, they are found by
    reading record by record, which cannot tell what is gone. Raises Corruption."""
    before = COLD.reads()
    try:
        return cdb.sealed_offsets(mapped, path)[1], None
    except Corruption as wrong:
        # If not even this can be done, it raises Corruption, at each read.
        offsets, notes = recovery.rebuilt_offsets(mapped, path, seed)
        for note in (f"{wrong}; reading record by record instead: repair the store", *notes):
            log.warning("%s", note)
        return offsets, wrong
    finally:
        COLD.judge(before)


def first_and_last(offsets: Sequence[int]) -> tuple[int, int]:
    """Relative numbers of the first and the last record present; (-1, -1) if there is none.
    O(holes)."""
    numbers = range(len(offsets) - 1)
    there = (number for number in numbers if offsets[number] < offsets[number + 1])
    first = next(there, -1)
    if first < 0:
        return -1, -1
    return first, next(n for n in reversed(numbers) if offsets[n] < offsets[n + 1])
