"""Where in the ledger a get begins: the files in the order of their age, and a table of bytes.

A get would ask every file of level zero, newest first, then one file a level. The table says in
one look where to begin: a slot, named by the lower bits of a key's hash, holds the number of the
newest place that has any key of that slot, 0 where none has. Most slots are empty, so an absent
key is mostly seen to be absent by one byte. It is only ever a hint to skip what cannot be there:
a place that it names is asked like any other, and so is every older one.

Where it covers a whole ledger, of up to 2 M rows, two more tables say at once where the newest row
is, by the upper bits of a hash: one its sqn, for gets, one its number, for heads. They are hints,
too: of the rows that share a slot one is there, and who reads compares the key. Where that is
another the place is asked. For heads, an empty slot says that the ledger has no such key. Heads of
a small ledger are kept once they were read, for while the manifest is the same so are they.
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
"""Where a key may stand in the ledger: (None, a file's actor, the base of its sqns, ()) for a file
that any key may be in, (first keys, None, 0, entries) for a level of several files."""
Way = tuple[memoryview | bytes, int, tuple[tuple[Step, ...], ...]]
"""The slots, a mask of the bits of a hash that name one, and where to go on for what a slot
holds."""
Direct = tuple[memoryview, int]
"""Slots, named by a hash (32 bits) shifted right by this much. 0: nothing is said of such keys."""
Part = tuple[bytes | None, Any, int, bool] | None
"""Rows of one bucket in a file: the prefix (None: of all buckets), the file's actor, the base of
its sqns, whether they are of anything but puts without metadata that do not expire."""

MOST_ROWS = 1 << 22
"""Of the newest places so many rows are in the table at most: 32 MiB."""
_SLOTS_A_ROW = 8
_LEAST_BITS = 10
MOST_DIRECT_ROWS = 1 << 21
"""Of ledgers of more rows no sqns and no row numbers are kept: 16 MiB each."""
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
"""A level of more files is not in the table: each would be looked at again and again."""


class Guide:
    """Of one manifest of the ledger. Any thread reads its tables, each replaced as a whole."""

    __slots__ = (
        "_making", "_places", "_places_of_rows", "heads", "kept", "ledger", "rows", "sqns", "way"
    )  # fmt: skip

    def __init__(self, ledger: LedgerManifest) -> None:
        self.ledger = ledger
        self.kept = KeptRows(ledger)
        self.way: Way = (b"\x00", 0, (_steps(ledger),))
        self.sqns: Direct = _UNKNOWN
        """Sqns of puts by the record's own key."""
        self.rows: tuple[memoryview, int, tuple[Part, ...]] = _NO_ROWS
        """A part's number, and in the lower bits that of a row of its file. Of part 0 where nothing
        is said; 0 where there is no row of any kind."""
        self.heads: dict[bytes, Head] | None = None
        """Of a small ledger, once heads are read: those that were, of plain puts, by ledger key."""
        self._places = self._places_of_rows = 0
        self._making = False

    def wanted(self, heads: bool = False, room: int = 0) -> None:
        """A read among many, of a head or of a value: have the tables made if they would help and
        cost no reading. ``room``: bytes that heads may be kept in.

        That is once the files have been verified, by lookups. 1 us a file; the tables are made on
        a thread of the pool, by array kernels: some 20 ms a million rows each.
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
    """What the heads of so many rows take, kept by their keys."""
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
    """Each file, its actor, the base of its sqns: what is newer comes later."""
    for (_, file, base, entries), ssts in zip(reversed(steps), reversed(places), strict=True):
        actors = [(entry.file, entry.sqn_base) for entry in entries] or [(file, base)]
        for sst, (actor, first) in zip(ssts, actors, strict=True):
            yield sst, actor, first


def _empty(rows: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], int]:
    """Slots for so many rows, and how far a hash is shifted to name one."""
    bits = (rows * _DIRECT_SLOTS_A_ROW - 1).bit_length()
    bits = min(max(bits, _LEAST_BITS), _DIRECT_BITS)
    return np.zeros(1 << bits, dtype), 32 - bits


def _sqns(steps: tuple[Step, ...], places: list[list[Sst]], rows: int) -> Direct:
    """A row of a delete takes the place of older ones all the same, and spares who asks for it a
    look into the journal. Index entries, which are not of the key that their record has, take
    nobody's place."""
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
    """Of files of many buckets a part is all rows: who reads asks the file for a row's bucket."""
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
    """O(levels + files of level zero)."""
    steps: list[Step] = []
    for level, (entries, firsts) in enumerate(zip(ledger.levels, ledger.firsts, strict=True)):
        if level and len(entries) > 1:
            steps.append((firsts, None, 0, entries))
        else:
            steps += [(None, entry.file, entry.sqn_base, ()) for entry in entries]
    return tuple(steps)
