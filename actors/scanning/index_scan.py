"""Index entries in order, each compared with its object.

An entry is valid if and only if its object's newest version has the entry's sqn: so a put, a
delete or an expiry takes back the older version's entries without touching them.

Where steps of them are not valid before the first that is, the range is noted as one in which no
key lives (empty_ranges.py): so keys can be taken from an index, too, as from a queue.

Few entries are compared one by one: 0.4 us where the guide's table of sqns has the entry's, for
then that is of a newest row, else 1.2 us each; windows of many by array kernels, 0.5 us each.
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
"""Of so many entries the objects are looked up first at least, and if it is not said how many are
wanted; of so many times as many then."""
_FEW_MORE = 32
"""So many that are left of a window are looked up together: a round costs as much as ten."""
MANY = 512
"""Entries of a window from which on the kernels are faster."""
_SOME = 31
"""Queries whose readers' numbers have none of these bits see whether a table would help."""
MOST_FILES = 64
"""Ledger files up to which they are: each takes its part of the window."""


class Entries(NamedTuple):
    """Valid entries, in the direction of the scan: terms as stored, and keys of their objects."""

    terms: list[bytes]
    keys: list[bytes]


class Sought(NamedTuple):
    """Which entries: of the objects of a bucket and tag in a range of one field."""

    bucket: bytes
    tag: int
    field: bytes
    """As index_terms.escaped has it."""
    bound: Bounds
    first: int
    """Rows of the first window,"""
    few: int
    """of which so many have their objects looked up first."""


def entries(reader: Reader, sought: Sought) -> Iterator[Entries]:
    """The valid entries that are sought, in their direction, a window at a time. One look at the
    ledger an entry."""
    bucket, tag, field, bound, first, few = sought
    objects = _Objects(reader, ledger_key.prefix(tag, bucket))
    begins = len(field)
    index = bytes.index
    step = few
    replaced: bytes | None = None
    """As far as all entries are of this type, and not valid."""
    begins_so = True
    for window in reader.windows(bound, first, brief=True):
        every, numbers = window.keys, window.sqns()
        low = 0
        while low < len(every):  # who wants few has few looked up
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
                # What is not valid once never will be; but another type's may be.
                begins_so = of_one and not any(valid)
                if begins_so:
                    replaced = rows[-1]
                elif replaced is not None:
                    reader.no_entries(bound, replaced)
            terms = [row[begins:at] for row, at in zip(rows, ends, strict=True)]
            # An entry of another type's object of the same key has another sqn, so it goes, too.
            if not all(valid):
                terms, keys = list(compress(terms, valid)), list(compress(keys, valid))
            if keys:
                yield Entries(terms, keys)
    if begins_so and replaced is not None:
        reader.no_entries(bound, replaced)


_Opened = tuple[Find, memoryview, int]
"""Of a file: ``Sst.find``, its sqns, their base."""


class _Files:
    """Files of a level, those that were needed open; no more than a process may keep mapped."""

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
"""Of each level: the first keys of its files, of level zero none; the files."""


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
        """Found once. (Not a cached_property, which before Python 3.12 is behind one lock for all
        threads, and so for ever in a child that is forked meanwhile.)"""
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
        """Sqn of each object's newest version that the reader sees, deletes included; 0: none.
        ``sqns``: what most of those are; each is of a record of that object, or 0. Raises
        Corruption."""
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
                if entry > upper:  # written since: an older version was kept, if that is read
                    self._check()
                    entry = abs(self._recent.entry(whole[at], upper) or 0)
                found[at] = entry
        return found

    def _one_by_one(
        self, whole: list[bytes], left: Iterable[int], found: list[int], sqns: list[int]
    ) -> None:
        slots, shift = self._told
        told = len(slots) > 1  # most of them, so the files need not be gone through for the others
        levels = [] if told else self._of_levels()
        for at in left:
            key = whole[at]
            h32 = xxh3(key) & LOW_32
            # Of a newest row, and its record is of this key, as the entry says.
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
