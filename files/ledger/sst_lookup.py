"""Point lookups in a ledger file: a few index operations on its map, and nothing else.

The bytes of a file are compared with their checksums before their first use. Until a file is
known to be whole, lookups are made by ``Careful``: it verifies the windows that a lookup touches,
and one more each time, so the cost is spread and no call waits for the whole file. Then ``swift``
makes functions that check nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from mmap import mmap
from typing import Any

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, array_of, as_list
from octavo.files.kernels.cold_pages import COLD, ask_to_read
from octavo.files.kernels.columns import Bytes
from octavo.files.ledger.sst_layout import WINDOW_BYTES, Layout, Section

Probe = Callable[[int], int]
Find = Callable[[bytes, int], int]
Swift = tuple[memoryview, int, int, int, int, memoryview | None, memoryview]
"""What ``Sst.probe`` is made of, for code that does its steps without the call: the slots of the
hash table, home slots, bits of a row number in a slot, masks of a hash's low bits and of a row
number + 1; the flags, None where no row has any; the sqns."""
HeadColumns = tuple[mmap | bytes, int, memoryview, memoryview, memoryview, memoryview, int]
"""What a head is read from, metadata apart: the map, where in it the keys begin, their ends; sqns,
sizes, times, the base of the times."""
SwiftHead = tuple[memoryview, int, int, int, int, bytes, bool, memoryview | None, HeadColumns]
"""What ``Sst.find``, and a head, are made of where all rows are of one bucket: as in Swift up to
the masks; the prefix of all, whether any has metadata, flags as in Swift, the columns."""

_FEW_GROUPS = 64
"""Up to so many groups, a file's prefixes are kept as objects for lookups in it."""


class Windows:
    """Compares the windows of a file, 64 KiB each, with their checksums, and remembers which."""

    def __init__(self, view: memoryview, name: str, data_at: int, sums: memoryview) -> None:
        self._view = view
        self.name = name
        self._data_at = data_at
        self._sums = sums
        self._map: Any = view.obj
        self._whole = bytearray(len(sums))
        self._next = 0

    def need(self, offset: int, end: int) -> None:
        """Verify bytes [offset, end) before they are used. Raises Corruption. 5 us a new window."""
        if not self._data_at <= offset < end <= len(self._view):
            raise Corruption(
                self.name, self._data_at, f"bytes {offset} to {end} are not in the file"
            )
        first = (offset - self._data_at) // WINDOW_BYTES
        for window in range(first, (end - 1 - self._data_at) // WINDOW_BYTES + 1):
            if not self._whole[window]:
                self._verify(window)

    def step(self) -> bool:
        """Verify one more window; True when all are whole. Does not raise if it is damaged."""
        self._next = self._whole.find(0, self._next)
        if self._next < 0:
            self._next = len(self._whole)
        if self._next < len(self._whole):
            try:
                self._verify(self._next)
            except Corruption:
                pass  # raised again, with its offset, to whoever needs those bytes
            self._next += 1
            return False
        return self._whole.find(0) < 0

    def all(self) -> None:
        """Verify every window that has not been. Raises Corruption. Some 0.1 ms a MiB."""
        unseen = np.flatnonzero(np.frombuffer(self._whole, np.uint8) == 0)
        starts = self._data_at + unseen * WINDOW_BYTES
        COLD.ahead(self._map, starts, np.minimum(starts + WINDOW_BYTES, len(self._view)))
        for window in unseen.tolist():
            self._verify(window)

    def _verify(self, window: int) -> None:
        at = self._data_at + window * WINDOW_BYTES
        if COLD.left:
            ask_to_read(self._map, at, at + WINDOW_BYTES)
        found = xxh3(self._view[at : at + WINDOW_BYTES])
        expected = self._sums[window]
        if found != expected:
            raise Corruption(
                self.name,
                at,
                f"checksum of {min(WINDOW_BYTES, len(self._view) - at)} bytes",
                expected=f"{expected:x}",
                found=f"{found:x}",
            )
        self._whole[window] = 1


@dataclass(slots=True)
class Views:
    """A file's map and the columns in it that lookups use."""

    buffer: mmap | bytes
    name: str
    layout: Layout
    table: memoryview
    key_ends: memoryview
    firsts: memoryview
    prefix_ends: memoryview
    groups_known: bool = False
    front: bytes = b""
    """The first group's prefix, once they are known."""

    def need_groups(self, windows: Windows | None) -> None:
        """Verify the table of groups before its first use. O(groups) that time. Raises
        Corruption."""
        if self.groups_known:
            return
        sections = self.layout.sections
        for kind in (Section.FIRSTS, Section.PREFIX_ENDS, Section.PREFIXES):
            offset, length = sections[kind]
            if windows is not None and length:
                windows.need(offset, offset + length)
        firsts = array_of(self.firsts)
        ends = array_of(self.prefix_ends)
        if (
            firsts[0] != 0
            or firsts[-1] >= self.layout.rows
            or bool((firsts[1:] <= firsts[:-1]).any())
            or ends[0] != 0
            or ends[-1] != sections[Section.PREFIXES][1]
            or bool((ends[1:] < ends[:-1]).any())
        ):
            raise Corruption(self.name, sections[Section.FIRSTS][0], "groups of rows")
        at, length = sections[Section.PREFIXES]
        blob = np.frombuffer(self.buffer, np.uint8, length, at)
        if not _well_formed(blob, ends.astype(np.int64)):
            raise Corruption(self.name, at, "a prefix of keys")
        self.front = self.prefix(0)
        self.groups_known = True

    def prefix(self, group: int) -> bytes:
        """Tag and bucket of a group."""
        at = self.layout.sections[Section.PREFIXES][0]
        ends = self.prefix_ends
        return self.buffer[at + ends[group] : at + ends[group + 1]]

    def prefixes(self, first: int = 0, end: int | None = None) -> list[bytes]:
        """Tag and bucket of each of groups [first, end). O(groups)."""
        at = self.layout.sections[Section.PREFIXES][0]
        ends = array_of(self.prefix_ends[first : None if end is None else end + 1])
        return as_list(self.buffer[at + int(ends[0]) : at + int(ends[-1])], ends - ends[0])

    def groups_between(self, low: int, high: int) -> tuple[list[bytes], Ints | None]:
        """The prefixes of rows [low, high), one at the least, and which of them each row has;
        None: all have one. O(groups + rows). Raises Corruption where they are not in order."""
        if len(self.firsts) == 1:
            return [self.prefix(0)], None
        first, end = self.group_of(low), self.group_of(high - 1) + 1
        prefixes = self.prefixes(first, min(end + 1, len(self.firsts)))
        if any(a >= b for a, b in pairwise(prefixes)):
            raise Corruption(
                self.name, self.layout.sections[Section.PREFIXES][0], "order of the prefixes"
            )
        count = end - first
        if count == 1:
            return prefixes[:1], None
        firsts = array_of(self.firsts[first + 1 : end]).astype(np.int64)
        spans = np.diff(firsts, prepend=low, append=high)
        return prefixes[:count], np.repeat(np.arange(count, dtype=np.int64), spans)

    def group_of(self, row: int) -> int:
        """The group of a row. O(log groups)."""
        return bisect_right(self.firsts, row) - 1


def _well_formed(blob: Bytes, ends: Ints) -> bool:
    """Whether prefixes that stand end to end are as ``ledger_key.prefix`` makes them: a tag, a name
    with each zero in it escaped, and the two zeros of the end. O(bytes)."""
    starts, stops = ends[:-1], ends[1:]
    if bool((stops - starts < 3).any()):
        return False
    named = np.ones(len(blob), dtype=np.bool_)
    named[starts] = named[stops - 1] = named[stops - 2] = False
    zeros = np.flatnonzero((blob == 0) & named)
    end = (blob[stops - 1] == 0) & (blob[stops - 2] == 0)
    return bool(end.all()) and bool((blob[zeros + 1] == 0xFF).all())


def swift(views: Views) -> tuple[Probe, Find]:
    """``Sst.probe`` and ``Sst.find`` of a file that is whole."""
    buffer = views.buffer
    table = views.table
    ends = views.key_ends
    homes = views.layout.homes
    row_bits = views.layout.row_bits
    low_bits = (1 << (32 - row_bits)) - 1
    row_mask = (1 << row_bits) - 1
    keys_at = views.layout.sections[Section.KEYS][0]
    prefix = views.prefix(0)
    firsts = views.firsts
    few = len(firsts) <= _FEW_GROUPS
    prefixes = [views.prefix(group) for group in range(len(firsts))] if few else []

    def probe(h32: int) -> int:
        at = h32 * homes >> 32
        entry = table[at]
        if not entry:
            return -1
        wanted = h32 & low_bits
        while entry >> row_bits != wanted:
            at += 1
            entry = table[at]
            if not entry:
                return -1
        return (entry & row_mask) - 1

    def find_in_one(ledger_key: bytes, h32: int) -> int:
        at = h32 * homes >> 32
        entry = table[at]
        if not entry:
            return -1
        wanted = h32 & low_bits
        while True:
            if entry >> row_bits == wanted:
                end = entry & row_mask
                if prefix + buffer[keys_at + ends[end - 1] : keys_at + ends[end]] == ledger_key:
                    return end - 1
            at += 1
            entry = table[at]
            if not entry:
                return -1

    def find_in_many(ledger_key: bytes, h32: int) -> int:
        at = h32 * homes >> 32
        entry = table[at]
        wanted = h32 & low_bits
        while entry:
            if entry >> row_bits == wanted:
                end = entry & row_mask
                key = buffer[keys_at + ends[end - 1] : keys_at + ends[end]]
                if ledger_key.endswith(key):
                    group = bisect_right(firsts, end - 1) - 1
                    front = prefixes[group] if few else views.prefix(group)
                    if front + key == ledger_key:
                        return end - 1
            at += 1
            entry = table[at]
        return -1

    return probe, find_in_one if len(views.firsts) == 1 else find_in_many


class Careful:
    """Lookups in a file of which not every window has been verified yet."""

    def __init__(
        self,
        views: Views,
        windows: Windows,
        need_row: Callable[[int], None],
        whole: Callable[[], None],
    ) -> None:
        """``need_row`` verifies all columns of a row; ``whole`` is called once all is verified."""
        self._views = views
        self._windows = windows
        self._need_row = need_row
        self._whole = whole

    def probe(self, h32: int) -> int:
        """As ``Sst.probe``."""
        for row in self._candidates(h32):
            self._need_row(row)
            self._step()
            return row
        self._step()
        return -1

    def find(self, ledger_key: bytes, h32: int) -> int:
        """As ``Sst.find``."""
        views = self._views
        ends = views.key_ends
        keys_at = views.layout.sections[Section.KEYS][0]
        found = -1
        for row in self._candidates(h32):
            self._need_row(row)
            key = views.buffer[keys_at + ends[row] : keys_at + ends[row + 1]]
            prefix = views.prefix(views.group_of(row))
            if len(prefix) + len(key) == len(ledger_key) and prefix + key == ledger_key:
                found = row
                break
        self._step()
        return found

    def _candidates(self, h32: int) -> Iterator[int]:
        layout, table = self._views.layout, self._views.table
        table_at = layout.sections[Section.TABLE][0]
        wanted = h32 & (1 << (32 - layout.row_bits)) - 1
        at = h32 * layout.homes >> 32
        while True:
            if at >= len(table):
                raise Corruption(self._views.name, table_at, "hash table without an end")
            self._windows.need(table_at + 4 * at, table_at + 4 * at + 4)
            entry = table[at]
            if not entry:
                return
            if entry >> layout.row_bits == wanted:
                row = (entry & (1 << layout.row_bits) - 1) - 1
                if not 0 <= row < layout.rows:
                    raise Corruption(
                        self._views.name, table_at + 4 * at, "row in the hash table",
                        expected=f"< {layout.rows}", found=row,
                    )  # fmt: skip
                yield row
            at += 1

    def _step(self) -> None:
        if self._windows.step():
            self._whole()
