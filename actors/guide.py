"""Where in the ledger a get begins: the files in the order of their age, and a table of bytes.

A get would ask every file of level zero, newest first, then one file a level. The table says in
one look where to begin: a slot, named by the lower bits of a key's hash, holds the number of the
newest place that has any key of that slot, 0 where none has. Most slots are empty, so an absent
key is mostly seen to be absent by one byte. It is only ever a hint to skip what cannot be there:
a place that it names is asked like any other, and so is every older one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from octavo.actors.pool import POOL
from octavo.files.sst import Sst
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest

Step = tuple[tuple[bytes, ...] | None, Any, int, tuple[LedgerEntry, ...]]
"""Where a key may stand in the ledger: (None, a file's actor, the base of its sqns, ()) for a file
that any key may be in, (first keys, None, 0, entries) for a level of several files."""
Way = tuple[memoryview | bytes, int, tuple[tuple[Step, ...], ...]]
"""The slots, a mask of the bits of a hash that name one, and where to go on for what a slot
holds."""

MOST_ROWS = 1 << 22
"""Of the newest places so many rows are in the table at most: 32 MiB."""
_SLOTS_A_ROW = 8
_LEAST_BITS = 10
_MOST_STEPS = 250
_MOST_FILES = 256
"""A level of more files is not in the table: each would be looked at again and again."""


class Guide:
    """Of one manifest of the ledger. Any thread reads ``way``, which is replaced as a whole."""

    __slots__ = ("_covered", "_making", "ledger", "way")

    def __init__(self, ledger: LedgerManifest) -> None:
        self.ledger = ledger
        self.way: Way = (b"\x00", 0, (_steps(ledger),))
        self._covered = 0
        self._making = False

    def wanted(self) -> None:
        """A read among many: have the table made if it would help and costs no reading.

        That is once the files have been verified, by lookups. 1 us a file; the table is made on
        a thread of the pool, by array kernels: some 10 ms a million rows.
        """
        if not self._making:
            places = self._known()
            if len(places) > self._covered:
                self._making = True
                POOL.submit(partial(self._make, places))

    def _known(self) -> list[list[Sst]]:
        """The open files of the newest places, as far as all of them are known to be whole."""
        places: list[list[Sst]] = []
        rows = 0
        for _, file, _, entries in _steps(self.ledger)[:_MOST_STEPS]:
            if len(entries) > _MOST_FILES:
                break
            ssts = [one.sst for one in ([entry.file for entry in entries] or [file])]
            rows += sum(sst.rows for sst in ssts if sst is not None)
            if rows > MOST_ROWS or any(sst is None or sst.swift is None for sst in ssts):
                break
            places.append(ssts)
        return places

    def _make(self, places: list[list[Sst]]) -> None:
        try:
            self.way = _table(_steps(self.ledger), places)
            self._covered = len(places)
        finally:
            self._making = False


def _table(steps: tuple[Step, ...], places: list[list[Sst]]) -> Way:
    import numpy as np

    rows = sum(sst.rows for ssts in places for sst in ssts)
    bits = max((rows * _SLOTS_A_ROW - 1).bit_length(), _LEAST_BITS)
    mask = (1 << bits) - 1
    slots = np.zeros(mask + 1, dtype=np.uint8)
    for number in range(len(places), 0, -1):  # oldest first, so that newer ones stay
        for sst in places[number - 1]:
            slots[sst.hashes() & np.uint32(mask)] = number
    tails = (steps[len(places) :], *(steps[at:] for at in range(len(places))))
    return slots.data.toreadonly(), mask, tails


def _steps(ledger: LedgerManifest) -> tuple[Step, ...]:
    """O(levels + files of level zero)."""
    steps: list[Step] = []
    for level, (entries, firsts) in enumerate(zip(ledger.levels, ledger.firsts, strict=True)):
        if level and len(entries) > 1:
            steps.append((firsts, None, 0, entries))
        else:
            steps += [(None, entry.file, entry.sqn_base, ()) for entry in entries]
    return tuple(steps)
