"""Yields index entries in order, after checking each against its object.

An entry is valid if and only if its object's newest version has the entry's sqn. So a put, a delete
or an expiry invalidates the older version's entries without touching them.

If whole steps of entries before the first valid one are not valid, their range is noted as one in
which no key lives (empty_ranges.py). So keys can be taken from an index, too, as from a queue.

Few entries are checked one by one: in 0.4 us if the guide's table of sqns has the entry's, which is
then a newest row's; otherwise in 1.2 us. Windows of many go through array kernels, 0.5 us each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import eq
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.reader import Reader
from octavo.files.journal.record import LOW_32
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import column_of
from octavo.files.ledger import find_many, ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.few_maps import most_maps
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.sst_lookup import Find
from octavo.manifest.ledger_entry import LedgerEntry

_END = b"\x00\x00"

LEAST, FEW, _MORE = 4, 16, 8
"""Entries whose objects are looked up in the first step: at least; if no number is wanted. Each
further step looks up so many times as many."""
_FEW_MORE = 32
"""If no more than so many of a window are left, they are one step: a step costs as much as ten."""
MANY = 512
"""Entries of a window from which on the kernels are faster."""
_SOME = 31
"""Queries whose readers' numbers have none of these bits see whether a table would help."""
MOST_FILES = 64
"""Ledger files up to which the kernels are faster: each takes its part of the window."""


class Entries(NamedTuple):
    """Valid entries, in the direction of the scan: terms as stored, and keys of their objects."""

    terms: list[bytes]
    keys: list[bytes]


class Sought(NamedTuple):
    """What is looked for: entries of the objects of one bucket and tag, in a range of one field."""

    bucket: bytes
    tag: int
    field: bytes
    """As index_terms.escaped has it."""
    bound: Bounds
    first: int
    """Rows of the first window."""
    few: int
    """How many of those have their objects looked up in the first step."""


def entries(reader: Reader, sought: Sought) -> Iterator[Entries]:
    """Yield the valid entries that are sought, in the scan's direction, a window at a time. One
    look into the ledger an entry."""
    bucket, tag, field, bound, first, few = sought
    objects = _Objects(reader, ledger_key.prefix(tag, bucket))
    begins = len(field)
    index = bytes.index
    step = few
    replaced: bytes | None = None
    """The last row up to which all entries are of this type, and none is valid."""
    begins_so = True
    for window in reader.windows(bound, first, brief=True):
        every, numbers = window.keys, window.sqns()
        low = 0
        while low < len(every):  # in steps, so that a caller who wants few has few looked up
            if step >= FEW and len(every) - low <= _FEW_MORE:
                step = _FEW_MORE
            rows, sqns = every[low : low + step], numbers[low : low + step]
            low += step
            step *= _MORE
            ends = [index(row, _END, begins) for row in rows]
            keys = [row[at + 3 :] for row, at in zip(rows, ends, strict=True)]
            tags = [row[at + 2] for row, at in zip(rows, ends, strict=True)]
            of_one = tags.count(tag) == len(tags)
            told = sqns
            if not of_one:
                told = [sqn if each == tag else 0 for each, sqn in zip(tags, sqns, strict=True)]
            with reader.reading():
                newest = objects.newest(keys, told)
            valid = list(map(eq, newest, sqns))
            if begins_so:
                # An invalid entry never becomes valid again; but another type's may be valid.
                begins_so = of_one and not any(valid)
                if begins_so:
                    replaced = rows[-1]
                elif replaced is not None:
                    reader.no_entries(bound, replaced)
            terms = [row[begins:at] for row, at in zip(rows, ends, strict=True)]
            # This drops other types' entries, too: an object of the same key has another sqn there.
            if not all(valid):
                terms, keys = list(compress(terms, valid)), list(compress(keys, valid))
            if keys:
                yield Entries(terms, keys)
    if begins_so and replaced is not None:
        reader.no_entries(bound, replaced)


_Opened = tuple[Find, memoryview, int]
"""An open file's ``Sst.find``, its sqns, and their base."""


class _Files:
    """The files of a level. Those that were needed are kept open, but no more than a process may
    keep mapped."""

    def __init__(self, entries: Sequence[LedgerEntry]) -> None:
        self.entries = entries
        self.opened: list[_Opened | None] = [None] * len(entries)
        self._kept = 0

    def open(self, number: int) -> _Opened:
        if self._kept >= most_maps():
            self.opened, self._kept = [None] * len(self.entries), 0
        self._kept += 1
        entry = self.entries[number]
        sst = entry.file.reader()
        opened = self.opened[number] = (sst.find, sst.sqns, entry.sqn_base)
        return opened


_Levels = list[tuple[list[bytes] | None, _Files]]
"""For each level: the first keys of its files (None for level zero), and the files."""


class _Objects:
    """Looks up the newest versions of the objects of one type and bucket."""

    def __init__(self, reader: Reader, front: bytes) -> None:
        view = reader.view
        self._front = front
        self._upper = reader.sqn
        self._check = reader.check
        self._recent = view.recent
        self._tables = [table.rows for table in (view.recent, *view.frozen) if table.rows]
        self._ledger = view.ledger
        self._told = view.guide.sqns
        self._find = view.find_in_ledger
        self._levels: _Levels | None = None
        if not reader.number & _SOME:
            view.guide.wanted()

    def _of_levels(self) -> _Levels:
        """The levels, found once. (No cached_property: before Python 3.12 that holds one lock for
        all threads, and a child forked meanwhile would find it taken for ever.)"""
        levels = self._levels
        if levels is None:
            levels = []
            ledger, front = self._ledger, self._front
            last = ledger_key.after(front) or front
            for level in range(len(ledger.levels)):
                files = ledger.overlapping(level, front, last)
                if files:
                    firsts = [entry.first_key for entry in files] if level else None
                    levels.append((firsts, _Files(files)))
            self._levels = levels
        return levels

    def newest(self, keys: list[bytes], sqns: list[int]) -> list[int]:
        """Return the sqn of each object's newest version that the reader sees, deletes included; 0
        if there is none. ``sqns``: likely answers; each is that of a record of the object, or 0.
        Raises Corruption."""
        front = self._front
        whole = [front + key for key in keys]
        found = self._in_memory(whole)
        left = [at for at, sqn in enumerate(found) if not sqn]
        if len(left) >= MANY and self._in_few_files():
            self._by_kernels(whole, left, found)
        else:
            self._one_by_one(whole, left, found, sqns)
        return found

    def _in_few_files(self) -> bool:
        return sum([len(files.entries) for _, files in self._of_levels()]) <= MOST_FILES

    def _in_memory(self, whole: list[bytes]) -> list[int]:
        found = [0] * len(whole)
        upper = self._upper
        for rows in self._tables:
            for at, entry in enumerate(map(rows.get, whole)):
                if entry is None or found[at]:
                    continue
                if entry < 0:
                    entry = -entry
                if entry > upper:  # written since: the older version was kept, if there was one
                    self._check()
                    entry = abs(self._recent.entry(whole[at], upper) or 0)
                found[at] = entry
        return found

    def _one_by_one(
        self, whole: list[bytes], left: Iterable[int], found: list[int], sqns: list[int]
    ) -> None:
        slots, shift = self._told
        told = len(slots) > 1  # the table answers most; _find is used for the others
        levels = [] if told else self._of_levels()
        for at in left:
            key = whole[at]
            h32 = xxh3(key) & LOW_32
            # The table has newest rows only, and the record of this sqn is of this key.
            if (sqn := sqns[at]) and slots[h32 >> shift] == sqn:
                found[at] = sqn
                continue
            if told:
                place = self._find(key)
                found[at] = 0 if place is None else place.sqn
                continue
            for firsts, files in levels:
                if firsts is None:
                    for number in range(len(files.entries)):
                        find, numbers, base = files.opened[number] or files.open(number)
                        row = find(key, h32)
                        if row >= 0:
                            found[at] = numbers[row] + base
                            break
                    if found[at]:
                        break
                    continue
                number = bisect_right(firsts, key) - 1
                if number >= 0:
                    find, numbers, base = files.opened[number] or files.open(number)
                    row = find(key, h32)
                    if row >= 0:
                        found[at] = numbers[row] + base
                        break

    def _by_kernels(self, whole: list[bytes], left: list[int], found: list[int]) -> None:
        column = column_of([whole[at] for at in left])
        of_levels = self._of_levels()
        levels = [
            [(entry.file.reader(), entry.sqn_base) for entry in files.entries]
            for _, files in of_levels
        ]
        if of_levels and of_levels[0][0] is not None:
            levels.insert(0, [])  # no level zero: its files would not be disjoint
        sqns = np.zeros(len(left), dtype=np.uint64)
        for sst, base, which, rows in find_many.newest(levels, column, hash_column(column)):
            sqns[which] = sst.sqns_of(rows, base)
        for at, sqn in zip(left, sqns.tolist(), strict=True):
            found[at] = sqn
