"""Reads ledger files: lookups by hash, ranges by key, columns as they stand in the map.

The layout is described in sst_layout.py. A file knows neither its level nor the base of its
sequence numbers. Readers share an ``Sst`` without locks: it is immutable, but for knowing which
parts of the file have been verified, and what is verified twice does no harm.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from io import BytesIO
from mmap import mmap
from operator import sub
from typing import Literal

from octavo.files.errors import Corruption
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints, array_of, as_list, lengths_of
from octavo.files.kernels.columns import Strings
from octavo.files.ledger import sst_ahead, sst_layout, sst_lookup, sst_verify
from octavo.files.ledger.ledger_key import ABOVE_ALL
from octavo.files.ledger.rows import Columns
from octavo.files.ledger.sst_layout import ROW_COLUMNS, Section
from octavo.files.ledger.sst_lookup import Careful, Find, Probe, Swift, SwiftHead, Views, Windows

_BLOCK = 1 << 14
_SHORT = 160
"""Up to so many keys are cut out of the map without kernels, which cost some 5 us each time."""
_FENCE = 64
"""Rows from a key of the fence to the next."""
_UNFENCED = 8
"""Searches in a file known to be whole before its fence is made."""


class Sst:
    """A ledger file. Keeps its map alive, and so does everything cut out of it.

    ``sqns``, ``flags`` and ``sizes`` are indexed by row without further checks: at rows that a
    method of this object answered with, or was asked for, they have been verified.
    """

    probe: Probe
    """``probe(h32)``: a row whose key may have this hash, or -1: no row has. The key is not
    compared; one row in some 2**(32 - row bits) is another key's, and it hides a row behind it,
    so an answer that proves wrong calls for ``find``. Some 0.3 us."""
    find: Find
    """``find(ledger_key, h32)``: the row of this key, or -1. Some 0.7 us, 0.3 us if absent."""

    def __init__(self, buffer: mmap | bytes, name: str) -> None:
        """Read header and summary, nothing else. ``name`` is for messages.

        Raises Corruption, UnsupportedFormat.
        """
        view = memoryview(buffer)
        layout, sums = sst_layout.decode(view, name)
        self.name = name
        self.layout = layout
        self.bytes = layout.file_bytes
        self.rows = layout.rows
        self.tombstones = layout.tombstones
        self.expiring = layout.expiring
        self.min_sqn = layout.min_sqn
        self.max_sqn = layout.max_sqn
        self.first_key = layout.first_key
        self.last_key = layout.last_key
        self.buffer = buffer
        self._view = view
        self.sqns = self._numbers(Section.SQNS)
        self.flags = self.column(Section.FLAGS, "B")
        self.sizes = self.column(Section.SIZES, "I")
        self.key_ends = self.column(Section.KEY_ENDS, "I")
        self._keys_at = layout.sections[Section.KEYS][0]
        self._times = self._numbers(Section.TIMES)
        self._time_base = layout.time_base if self._times.itemsize == 4 else 0
        expires = Section.EXPIRIES in layout.sections
        self._expiries = self.column(Section.EXPIRIES, "Q") if expires else None
        has_metas = Section.META_ENDS in layout.sections
        self.meta_ends = self.column(Section.META_ENDS, "I") if has_metas else None
        self.has_metas = has_metas
        self._views = Views(
            buffer,
            name,
            layout,
            self.column(Section.TABLE, "I"),
            self.key_ends,
            self.column(Section.FIRSTS, "I"),
            self.column(Section.PREFIX_ENDS, "I"),
        )
        self._windows: Windows | None = Windows(view, name, layout.data_at, sums)
        # What looks up carefully must not refer to this object: a cycle would keep the map,
        # and its descriptor, until the next collection.
        careful = _careful(weakref.ref(self), self._views, self._windows, layout)
        self.probe = careful.probe
        self.find = careful.find
        self._fences: dict[int, list[bytes]] = {}
        self._searches = 0
        self.swift: Swift | None = None
        """None until the file is known to be whole."""
        self.swift_head: SwiftHead | None = None
        """As ``swift``; but it stays None where rows are of several buckets."""
        self.head_columns: sst_lookup.HeadColumns | None = None
        """For the head of a row whose number is known; None as ``swift`` is."""

    def column(self, kind: Section, code: Literal["B", "I", "Q"]) -> memoryview:
        """A section as it stands in the map, items of a ``struct`` code. Not verified."""
        offset, length = self.layout.sections[kind]
        return self._view[offset : offset + length].cast(code)

    def _numbers(self, kind: Section) -> memoryview:
        """A column of u32 or u64, as its length tells."""
        narrow = self.layout.sections[kind][1] == 4 * self.rows
        return self.column(kind, "I" if narrow else "Q")

    # ------------------------------------------------------------ verified before use

    def ensure_whole(self) -> None:
        """Compare every checksum not compared yet; lookups check nothing from then on.

        Of what columns say, checks only what keeps readers within them; ``verify`` does the rest.

        Some 0.1 ms a MiB, once. Raises Corruption.
        """
        windows = self._windows
        if windows is None:
            return
        windows.all()
        self._views.need_groups(None)
        self._check_ends(Section.KEY_ENDS, Section.KEYS)
        if self.meta_ends is not None:
            self._check_ends(Section.META_ENDS, Section.METAS)
        _check_table(self._views)
        self.probe, self.find = sst_lookup.swift(self._views)
        table, homes, bits = self._views.table, self.layout.homes, self.layout.row_bits
        low_bits, row_mask = (1 << (32 - bits)) - 1, (1 << bits) - 1
        flags = self.flags if self.tombstones or self.expiring else None
        self.swift = table, homes, bits, low_bits, row_mask, flags, self.sqns
        columns = self.head_columns = (
            self.buffer, self._keys_at, self.key_ends, self.sqns, self.sizes, self._times,
            self._time_base,
        )  # fmt: skip
        if len(self._views.firsts) == 1:
            more, front = self.has_metas, self._views.front
            self.swift_head = table, homes, bits, low_bits, row_mask, front, more, flags, columns
        self._windows = None

    def _need(self, kind: Section, low: int, high: int) -> None:
        """Verify rows [low, high) of a column, and of ends one more, before they are used."""
        windows = self._windows
        if windows is not None:
            _need_column(windows, self.layout, kind, low, high)

    def _need_rows(self, low: int, high: int) -> None:
        windows = self._windows
        if windows is not None and low < high:
            _need_rows(windows, self.layout, self.key_ends, low, high)

    def _need_groups(self) -> None:
        self._views.need_groups(self._windows)

    # ------------------------------------------------------------ by row

    def user_key(self, row: int) -> bytes:
        """Key of a row as the user gave it."""
        self._need_rows(row, row + 1)
        ends, at = self.key_ends, self._keys_at
        return self.buffer[at + ends[row] : at + ends[row + 1]]

    def prefix_of(self, row: int) -> bytes:
        """Tag and bucket of a row. O(log groups)."""
        self._need_groups()
        return self._views.prefix(self._views.group_of(row))

    def ledger_key(self, row: int) -> bytes:
        """Tag, bucket and key of a row. O(log groups)."""
        return self.prefix_of(row) + self.user_key(row)

    def user_keys(self, low: int, high: int) -> list[bytes]:
        """Keys of rows [low, high) without tag and bucket. 0.02 to 0.04 us a key."""
        if low >= high:
            return []
        careful = self._windows is not None
        if not careful and high - low <= _SHORT:
            at = self._keys_at
            edges = self.key_ends[low : high + 1].tolist()
            blob = BytesIO(self.buffer[at + edges[0] : at + edges[-1]])
            return list(map(blob.read, map(sub, edges[1:], edges)))
        self._need_rows(low, high)
        ends = array_of(self.key_ends[low : high + 1])
        at = self._keys_at
        if careful and bool((ends[1:] < ends[:-1]).any()):
            raise Corruption(self.name, self.section_at(Section.KEY_ENDS), "ends of KEYS")
        return as_list(self.buffer[at + int(ends[0]) : at + int(ends[-1])], ends - ends[0])

    def ledger_keys(self, low: int, high: int) -> list[bytes]:
        """Tag, bucket and key of rows [low, high). 0.07 to 0.15 us a key."""
        out: list[bytes] = []
        for prefix, first, end in self.groups(low, high):
            out += [prefix + key for key in self.user_keys(first, end)]
        return out

    def meta(self, row: int) -> bytes:
        """User metadata of a row, b"" where it has none."""
        ends = self.meta_ends
        if ends is None:
            return b""
        offset = self.layout.sections[Section.METAS][0]
        windows = self._windows
        if windows is not None:
            self._need(Section.META_ENDS, row, row + 1)
            if ends[row] < ends[row + 1]:
                windows.need(offset + ends[row], offset + ends[row + 1])
        return self.buffer[offset + ends[row] : offset + ends[row + 1]]

    def expiry(self, row: int) -> int:
        """Moment from which a row reads as absent, ms UTC; 0: never."""
        expiries = self._expiries
        if expiries is None:
            return 0
        self._need(Section.EXPIRIES, row, row + 1)
        moment: int = expiries[row]
        return moment

    def expiries(self, low: int, high: int) -> list[int]:
        """``expiry`` of each of the rows [low, high)."""
        if self._expiries is None:
            return [0] * (high - low)
        self._need(Section.EXPIRIES, low, high)
        return self._expiries[low:high].tolist()

    def time(self, row: int) -> int:
        """Moment of the put or delete, ms UTC."""
        if self._windows is not None:
            self._need(Section.TIMES, row, row + 1)
        time: int = self._times[row]
        return time + self._time_base

    def times(self, low: int, high: int) -> npt.NDArray[np.uint64]:
        """Moments of the puts and deletes of rows [low, high), ms UTC."""
        self._need_rows(low, high)
        times = array_of(self._times[low:high]).astype(np.uint64)
        return times if self._times.itemsize == 8 else times + np.uint64(self.layout.time_base)

    # ------------------------------------------------------------ by key

    def groups(self, low: int = 0, high: int | None = None) -> Iterator[tuple[bytes, int, int]]:
        """(prefix, first row, end) of each run of rows of one tag and bucket in [low, high)."""
        high = self.rows if high is None else high
        self._need_groups()
        views = self._views
        while low < high:
            group = views.group_of(low)
            last = group + 1 == len(views.firsts)
            end = high if last else min(high, views.firsts[group + 1])
            yield views.prefix(group), low, end
            low = end

    def lower_bound(self, ledger_key: bytes) -> int:
        """The first row at or above a key; ``rows`` where all are below. O(log rows).

        Any bytes will do. Some 3 us at 256 k rows; the first few searches in a file twice that,
        and one of them 0.5 ms: it makes a fence of every 64th key.
        """
        if ledger_key <= self.first_key:
            return 0
        if ledger_key > self.last_key:
            return self.rows
        views = self._views
        firsts = views.firsts
        group = 0
        if not views.groups_known:
            self._need_groups()
        if len(firsts) > 1:
            group = max(bisect_right(range(len(firsts)), ledger_key, key=views.prefix) - 1, 0)
        low = firsts[group]
        high = self.rows if group + 1 == len(firsts) else firsts[group + 1]
        prefix = views.prefix(group) if group else views.front
        if not ledger_key.startswith(prefix):
            return int(low if ledger_key < prefix else high)
        wanted = ledger_key[len(prefix) :]
        ends, at, buffer = self.key_ends, self._keys_at, self.buffer
        windows = self._windows
        if windows is not None and windows.step():
            self.ensure_whole()
            windows = None
        if windows is None and high - low > 2 * _FENCE:
            fence = self._fences.get(group)
            if fence is None:
                self._searches += 1
                if self._searches > _UNFENCED:
                    sst_ahead.ask_for_rows(self, low, high, (Section.KEY_ENDS,))
                    fence = [buffer[at + ends[row] : at + ends[row + 1]]
                             for row in range(low, high, _FENCE)]  # fmt: skip
                    self._fences[group] = fence
            if fence is not None:
                part = bisect_left(fence, wanted)
                high = min(high, low + part * _FENCE + 1)
                low += max(part - 1, 0) * _FENCE
        while low < high:
            middle = (low + high) >> 1
            if windows is not None:
                _need_key(windows, self.layout, ends, middle)
            if buffer[at + ends[middle] : at + ends[middle + 1]] < wanted:
                low = middle + 1
            else:
                high = middle
        return int(low)

    def fronts(self, low: bytes = b"", high: bytes = ABOVE_ALL) -> dict[bytes, int]:
        """The flags of the first row of each tag and bucket whose prefix is in [low, high).
        O(those). Raises Corruption."""
        self._need_groups()
        self._need(Section.FLAGS, 0, self.rows)
        views = self._views
        groups = range(len(views.firsts))
        first = bisect_left(groups, low, key=views.prefix)
        end = max(first, bisect_left(groups, high, key=views.prefix))
        flags = array_of(self.flags)[array_of(views.firsts)[first:end]]
        return dict(zip(views.prefixes(first, end), flags.tolist(), strict=True))

    def every(self, groups: int) -> list[bytes]:
        """The prefix of every ``groups``-th tag and bucket, not the first. Raises Corruption."""
        self._need_groups()
        return list(map(self._views.prefix, range(groups, len(self._views.firsts), groups)))

    # ------------------------------------------------------------ all of it

    def hashes(self) -> npt.NDArray[np.uint32]:
        """The hash of each row's ledger key. Verifies all checksums first. Raises Corruption."""
        self.ensure_whole()
        return array_of(self.column(Section.HASHES, "I"))

    def sqns_of(self, rows: slice | Ints, sqn_base: int) -> npt.NDArray[np.uint64]:
        """Absolute sqns of some rows, copied. Verifies all checksums first. Raises Corruption."""
        self.ensure_whole()
        sqns = array_of(self.sqns)[rows]
        absolute: npt.NDArray[np.uint64] = np.add(sqns, np.uint64(sqn_base), dtype=np.uint64)
        return absolute

    def columns(self, sqn_base: int = 0, low: int = 0, high: int | None = None) -> Columns:
        """Rows [low, high), one at the least, as arrays, for a merge; most of them views of the
        map. The strings keep their places in the blobs, which are whole.

        Verifies all checksums first. Raises Corruption.
        """
        self.ensure_whole()
        rows = slice(low, self.rows if high is None else high)
        prefixes, groups = self._views.groups_between(rows.start, rows.stop)
        times = array_of(self._times[rows])
        if self._times.itemsize == 4:
            times = times + np.uint64(self.layout.time_base)
        metas = self.meta_ends
        return Columns(
            keys=self._strings(Section.KEYS, self.key_ends, rows),
            prefixes=prefixes,
            groups=groups,
            hashes=array_of(self.column(Section.HASHES, "I")[rows]),
            sqns=self.sqns_of(rows, sqn_base) if sqn_base else array_of(self.sqns[rows]),
            flags=array_of(self.flags[rows]),
            sizes=array_of(self.sizes[rows]),
            times=times,
            expiries=None if self._expiries is None else array_of(self._expiries[rows]),
            metas=None if metas is None else self._strings(Section.METAS, metas, rows),
        )

    def _strings(self, blob: Section, ends: memoryview, rows: slice) -> Strings:
        offsets = array_of(ends[rows.start : rows.stop + 1]).astype(np.int64)
        return Strings(array_of(self.column(blob, "B")), offsets[:-1], lengths_of(offsets))

    def verify(self) -> None:
        """Raise Corruption where the file is not what it must be; see sst_verify. 0.4 us a row."""
        sst_verify.check(self)

    def section_at(self, kind: Section) -> int:
        """Where a section begins in the file."""
        return self.layout.sections[kind][0]

    def _check_ends(self, kind: Section, blob: Section) -> None:
        """Check that the strings of a blob end in order, from its first byte to its last."""
        ends = array_of(self.column(kind, "I"))
        if (
            ends[0] != 0
            or ends[-1] != self.layout.sections[blob][1]
            or bool((ends[1:] < ends[:-1]).any())
        ):
            raise Corruption(self.name, self.section_at(kind), f"ends of {blob.name}")


def _careful(
    reference: weakref.ref[Sst], views: Views, windows: Windows, layout: sst_layout.Layout
) -> Careful:
    def whole() -> None:
        sst = reference()
        if sst is not None:
            sst.ensure_whole()

    def need_row(row: int) -> None:
        _need_rows(windows, layout, views.key_ends, row, row + 1)
        views.need_groups(windows)

    return Careful(views, windows, need_row, whole)


def _need_column(
    windows: Windows, layout: sst_layout.Layout, kind: Section, low: int, high: int
) -> None:
    offset, length = layout.sections[kind]
    extra = 1 if kind in (Section.KEY_ENDS, Section.META_ENDS) else 0
    width = length // (layout.rows + extra)
    windows.need(offset + low * width, offset + (high + extra) * width)


def _need_key(windows: Windows, layout: sst_layout.Layout, ends: memoryview, row: int) -> None:
    """Verify what belongs to the key of a row."""
    ends_at = layout.sections[Section.KEY_ENDS][0]
    windows.need(ends_at + 4 * row, ends_at + 4 * row + 8)
    offset, length = layout.sections[Section.KEYS]
    low, high = ends[row], ends[row + 1]
    if not 0 <= low <= high <= length:
        raise Corruption(windows.name, offset, "ends of KEYS")
    if low < high:
        windows.need(offset + low, offset + high)


def _need_rows(
    windows: Windows, layout: sst_layout.Layout, ends: memoryview, low: int, high: int
) -> None:
    """Verify what belongs to rows [low, high), low < high, except metadata."""
    for kind in ROW_COLUMNS:
        if kind in layout.sections:
            _need_column(windows, layout, kind, low, high)
    offset, length = layout.sections[Section.KEYS]
    if not 0 <= ends[low] <= ends[high] <= length:
        raise Corruption(windows.name, offset, "ends of KEYS")
    if ends[low] < ends[high]:
        windows.need(offset + ends[low], offset + ends[high])


def _check_table(views: Views) -> None:
    """Check no more of the table than that every lookup ends, and answers with a row."""
    table = array_of(views.table)
    mask = np.uint32((1 << views.layout.row_bits) - 1)
    highest = 0
    for low in range(0, len(table), _BLOCK):
        highest = max(highest, int((table[low : low + _BLOCK] & mask).max()))
    if table[-1] or highest > views.layout.rows:
        raise Corruption(views.name, views.layout.sections[Section.TABLE][0], "hash table")
