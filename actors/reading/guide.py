"""The guide: tables in memory that tell where in the ledger a get, or a head, has to begin.

A get would ask every file of level zero, newest first, then one file of each deeper level; each of
these is a *place*. A table of bytes says in one look where to begin: a slot, named by the lower
bits of a key's hash, holds the number of the newest place that has any key of that slot, 0 if none
has. Most slots are empty, so most absent keys cost one byte. The table only lets places be skipped
that cannot have the key: the place that it names is asked like any other, and so is every older
one.

If it covers a whole ledger, of up to 2 M rows, two more tables tell the newest row at once, by the
upper bits of a hash: one its sqn, for gets, the other its number, for heads. Rows share slots, and
a slot holds only one of them, so the reader compares the key, and asks the places if it is another.
For heads, an empty slot means that the ledger has no such key. Of a small ledger, heads that were
read are kept: they stay the same as long as the manifest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from octavo.actors.reading.kept_rows import KeptRows
from octavo.actors.turns.pool import POOL
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import array_of
from octavo.files.ledger.head import Head
from octavo.files.ledger.ledger_key import HEAD_ONLY, INDEX
from octavo.files.ledger.rows import TOMBSTONE
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import Section
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest

Step = tuple[tuple[bytes, ...] | None, Any, int, tuple[LedgerEntry, ...]]
"""One place: (None, a file's actor, the base of its sqns, ()) for a file that may have any key,
(first keys, None, 0, entries) for a level of several files."""
Way = tuple[memoryview | bytes, int, tuple[tuple[Step, ...], ...]]
"""(slots, a mask of the bits of a hash that name one, the steps to take for each value of a
slot)"""
Direct = tuple[memoryview, int]
"""(slots, by how much a hash of 32 bits is shifted right to name one). A slot of 0 says nothing."""
Part = tuple[bytes | None, Any, int, bool] | None
"""Rows of one bucket in a file: (the prefix, None for all buckets; the file's actor; the base of
its sqns; whether they are other rows than of puts without metadata that do not expire)"""

MOST_ROWS = 1 << 22
"""The newest places are in the table up to so many rows: 32 MiB."""
_SLOTS_A_ROW = 8
_LEAST_BITS = 10
MOST_DIRECT_ROWS = 1 << 21
"""Ledgers with more rows have no tables of sqns and of rows, which take up to 16 MiB each."""
_DIRECT_SLOTS_A_ROW = 4
_DIRECT_BITS = 22
_MOST_HEADS = 1 << 16
_HEAD_BYTES = 350
ROW_BITS = 22
ROW_MASK = (1 << ROW_BITS) - 1
_MOST_GROUPS = 64
_MOST_PARTS = 1 << 32 - ROW_BITS
_UNKNOWN: Direct = (memoryview(bytes(4)).cast("I"), 32)
_NO_ROWS = (memoryview(array("I", [1])), 32, (None,))
_MOST_STEPS = 250
_MOST_FILES = 256
"""A level of more files is not in the table: ``wanted`` looks at each file again and again."""


class Guide:
    """The guide of one ledger manifest. Any thread reads its tables, each replaced as a whole."""

    __slots__ = (
        "_making", "_places", "_places_of_rows", "heads", "kept", "ledger", "rows", "sqns", "way"
    )  # fmt: skip

    def __init__(self, ledger: LedgerManifest) -> None:
        self.ledger = ledger
        self.kept = KeptRows(ledger)
        self.way: Way = (b"\x00", 0, (_steps(ledger),))
        self.sqns: Direct = _UNKNOWN
        """Sqns of puts, by their keys; index entries have none here."""
        self.rows: tuple[memoryview, int, tuple[Part, ...]] = _NO_ROWS
        """(slots, shift as in Direct, parts). A slot has a part's number and, in the lower
        ROW_BITS, that of a row in its file. Part 0 says nothing; a slot of 0: there is no row."""
        self.heads: dict[bytes, Head] | None = None
        """By ledger key, heads of plain puts that were read; None unless the ledger is small and
        heads are read."""
        self._places = self._places_of_rows = 0
        self._making = False

    def wanted(self, heads: bool = False, room: int = 0) -> None:
        """Have the tables made that would help, for heads or for values. To be called at one read
        in many. ``room``: how many bytes of heads may be kept.

        Only files that lookups have verified count, so this reads none. 1 us a file. The tables are
        made on a thread of the pool, by array kernels: some 20 ms a million rows each.
        """
        if not self._making:
            places = self._known()
            if len(places) > (self._places_of_rows if heads else self._places):
                self._making = True
                try:
                    POOL.submit(partial(self._make, places, heads, room))
                except BaseException:  # no memory, or a Ctrl-C: a later read asks again
                    self._making = False
                    raise

    def _known(self) -> list[list[Sst]]:
        """The open files of each of the newest places, up to the first that is not verified."""
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

    def _make(self, places: list[list[Sst]], heads: bool, room: int) -> None:
        steps = _steps(self.ledger)
        try:
            rows = sum(sst.rows for ssts in places for sst in ssts)
            direct = len(places) == len(steps) and 0 < rows <= MOST_DIRECT_ROWS
            if len(places) > max(self._places, self._places_of_rows):
                self.way = _table(steps, places)
            if heads:
                if direct:
                    self.rows = _rows(steps, places, rows)
                    if rows <= _MOST_HEADS and _bytes_of_heads(places, rows) <= room:
                        self.heads = {}
                self._places_of_rows = len(places)
            else:
                if direct:
                    self.sqns = _sqns(steps, places, rows)
                self._places = len(places)
        finally:
            self._making = False


def _bytes_of_heads(places: list[list[Sst]], rows: int) -> int:
    """How many bytes the heads of so many rows take, with their keys."""
    keys = sum(sst.layout.sections[Section.KEYS][1] for ssts in places for sst in ssts)
    return keys + rows * _HEAD_BYTES


def _table(steps: tuple[Step, ...], places: list[list[Sst]]) -> Way:
    rows = sum(sst.rows for ssts in places for sst in ssts)
    bits = max((rows * _SLOTS_A_ROW - 1).bit_length(), _LEAST_BITS)
    mask = (1 << bits) - 1
    slots = np.zeros(mask + 1, dtype=np.uint8)
    for number in range(len(places), 0, -1):  # oldest first, so that newer ones stay
        for sst in places[number - 1]:
            slots[sst.hashes() & np.uint32(mask)] = number
    tails = (steps[len(places) :], *(steps[at:] for at in range(len(places))))
    return slots.data.toreadonly(), mask, tails


def _oldest_first(
    steps: tuple[Step, ...], places: list[list[Sst]]
) -> Iterator[tuple[Sst, Any, int]]:
    """(file, its actor, the base of its sqns), newer ones later."""
    for (_, file, base, entries), ssts in zip(reversed(steps), reversed(places), strict=True):
        actors = [(entry.file, entry.sqn_base) for entry in entries] or [(file, base)]
        for sst, (actor, first) in zip(ssts, actors, strict=True):
            yield sst, actor, first


def _empty(rows: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], int]:
    """(empty slots for so many rows, by how much a hash is shifted to name one)."""
    bits = (rows * _DIRECT_SLOTS_A_ROW - 1).bit_length()
    bits = min(max(bits, _LEAST_BITS), _DIRECT_BITS)
    return np.zeros(1 << bits, dtype), 32 - bits


def _sqns(steps: tuple[Step, ...], places: list[list[Sst]], rows: int) -> Direct:
    """The table of sqns. A delete's row clears the slot of older ones, which saves a look into the
    journal. Index entries are left out, since their records have other keys."""
    files = list(_oldest_first(steps, places))
    highest = max(sst.max_sqn + base for sst, _, base in files)
    slots, shift = _empty(rows, np.uint32 if highest < 1 << 32 else np.uint64)
    for sst, _, base in files:
        found, at = sst.sqns_of(slice(None), base), sst.hashes() >> np.uint32(shift)
        found[(array_of(sst.flags) & TOMBSTONE) != 0] = 0
        of_keys = np.ones(sst.rows, dtype=np.bool_)
        for tag in (HEAD_ONLY, INDEX):
            low, high = sst.lower_bound(bytes((tag,))), sst.lower_bound(bytes((tag + 1,)))
            of_keys[low:high] = False
        slots[at[of_keys]] = found[of_keys]
    return slots.data.toreadonly(), shift


def _rows(
    steps: tuple[Step, ...], places: list[list[Sst]], rows: int
) -> tuple[memoryview, int, tuple[Part, ...]]:
    """The table of rows. In a file of many buckets one part has all rows, and the reader asks the
    file for a row's bucket."""
    slots, shift = _empty(rows, np.uint32)
    parts: list[Part] = [None]
    for sst, file, base in _oldest_first(steps, places):
        found = np.ones(sst.rows, np.uint32)
        groups = len(sst.column(Section.FIRSTS, "I"))
        if len(parts) + 2 <= _MOST_PARTS:
            found = np.arange(sst.rows, dtype=np.uint32)
            more = array_of(sst.flags) != 0
            if sst.has_metas:
                more[:] = True
            spans: Iterable[tuple[bytes | None, int, int]] = [(None, 0, sst.rows)]
            if groups <= _MOST_GROUPS and len(parts) + 2 * groups <= _MOST_PARTS:
                spans = sst.groups()
            for prefix, low, high in spans:
                found[low:high] += np.uint32(len(parts)) + more[low:high] << np.uint32(ROW_BITS)
                parts += [(prefix, file, base, False), (prefix, file, base, True)]
        slots[sst.hashes() >> np.uint32(shift)] = found
    return slots.data.toreadonly(), shift, tuple(parts)


def _steps(ledger: LedgerManifest) -> tuple[Step, ...]:
    """The places of a ledger, newest first. O(levels + files of level zero)."""
    steps: list[Step] = []
    for level, (entries, firsts) in enumerate(zip(ledger.levels, ledger.firsts, strict=True)):
        if level and len(entries) > 1:
            steps.append((firsts, None, 0, entries))
        else:
            steps += [(None, entry.file, entry.sqn_base, ()) for entry in entries]
    return tuple(steps)
