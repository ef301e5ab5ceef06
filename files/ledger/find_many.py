"""Lookups of many keys in ledger files, by array kernels.

One key costs some 0.1 us, against 0.7 us one by one: all keys are probed together by a few steps
over arrays, and a key that is not there costs no comparison. Answers are exact: each hit was
compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from octavo.files.kernels.arrays import U32, np, npt
from octavo.files.kernels.byte_strings import Ints, array_of, first_words, gather, lengths_of
from octavo.files.kernels.columns import ByteColumn
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import Section

Level = Sequence[tuple[Sst, int]]
"""Files of a level, each with the base of its sqns."""


def find_many(sst: Sst, keys: ByteColumn, hashes: U32, which: Ints | None = None) -> Ints:
    """The row of each ledger key in a file, -1 where it is not there.

    ``hashes``: hashing.hash_of each key. ``which``: look up only the keys of these numbers, with
    one answer each.
    Verifies the whole file first, once. Raises Corruption.
    """
    sst.ensure_whole()
    layout = sst.layout
    which = np.arange(len(hashes), dtype=np.int64) if which is None else which
    rows = np.full(len(which), -1, dtype=np.int64)
    table = array_of(sst.column(Section.TABLE, "I"))
    stored = array_of(sst.column(Section.HASHES, "I"))
    row_bits = np.uint32(layout.row_bits)
    mask = np.uint32((1 << layout.row_bits) - 1)
    wanted = hashes[which]
    low = wanted & np.uint32((1 << (32 - layout.row_bits)) - 1)
    at = (wanted.astype(np.uint64) * np.uint64(layout.homes) >> np.uint64(32)).astype(np.int64)
    pending = np.arange(len(which), dtype=np.int64)
    compare = _Comparison(sst, keys)
    while len(pending):
        entries = table[at[pending]]
        full = entries != 0
        pending, entries = pending[full], entries[full]
        # Some slots hold the row of another key with the same low bits: the whole hash shows
        # that of nearly all of them, the key of the rest.
        alike = np.flatnonzero((entries >> row_bits) == low[pending])
        found = (entries[alike] & mask).astype(np.int64) - 1
        same = stored[found] == wanted[pending[alike]]
        alike, found = alike[same], found[same]
        equal = compare(which[pending[alike]], found)
        rows[pending[alike[equal]]] = found[equal]
        left = np.ones(len(pending), dtype=np.bool_)
        left[alike[equal]] = False
        pending = pending[left]
        at[pending] += 1
    return rows


_COMPARED_BYTES = 16 << 20
"""Bytes of keys that are compared at once, unless one key has more."""


class _Comparison:
    """Compares keys with the keys of rows, exactly."""

    def __init__(self, sst: Sst, keys: ByteColumn) -> None:
        # Nothing of the file's size is made here: often only a few rows are asked for.
        self._ends = array_of(sst.column(Section.KEY_ENDS, "I"))
        self._blob = array_of(sst.column(Section.KEYS, "B"))
        self._firsts = array_of(sst.column(Section.FIRSTS, "I"))
        self._prefix_ends = array_of(sst.column(Section.PREFIX_ENDS, "I")).astype(np.int64)
        self._prefixes = array_of(sst.column(Section.PREFIXES, "B"))
        self._keys = keys
        self._starts = keys.offsets[:-1]
        self._lengths = lengths_of(keys.offsets)

    def __call__(self, which: Ints, rows: Ints) -> npt.NDArray[np.bool_]:
        """Whether key ``which[i]`` is the key of row ``rows[i]``."""
        groups = np.searchsorted(self._firsts, rows, side="right") - 1
        prefix_at = self._prefix_ends[groups]
        front = self._prefix_ends[groups + 1] - prefix_at
        key_at = self._ends[rows].astype(np.int64)
        size = self._ends[rows + 1] - key_at
        equal: npt.NDArray[np.bool_] = self._lengths[which] == front + size
        there = np.flatnonzero(equal)
        if len(there):
            front, size = front[there], size[there]
            if int(size.sum()) > _COMPARED_BYTES and len(which) > 1:
                half = len(which) // 2
                halves = slice(half), slice(half, None)
                return np.concatenate([self(which[some], rows[some]) for some in halves])
            begins = self._starts[which[there]]
            pairs = (
                (self._prefixes, prefix_at[there], front, begins),
                (self._blob, key_at[there], size, begins + front),
            )
            for blob, starts, lengths, at in pairs:
                ours = gather(self._keys.blob, at, lengths)
                wrong = np.flatnonzero(ours.blob != gather(blob, starts, lengths).blob)
                equal[there[np.searchsorted(ours.offsets, wrong, side="right") - 1]] = False
        return equal


def newest(
    levels: Sequence[Level], keys: ByteColumn, hashes: U32
) -> Iterator[tuple[Sst, int, Ints, Ints]]:
    """The newest version of each key: yields (file, base of its sqns, numbers of the keys, their
    rows) until every key was found or there is no file left.

    ``levels`` from the newest down, and within a level newest first; from the second on a level's
    files are disjoint and in key order. Raises Corruption.
    """
    left = np.arange(len(hashes), dtype=np.int64)
    starts, lengths = keys.offsets[:-1], lengths_of(keys.offsets)
    for depth, level in enumerate(levels):
        ranges = _ranges(level, keys, starts, lengths) if depth and len(level) > 1 else None
        for number, (sst, base) in enumerate(level):
            if not len(left):
                return
            which = left
            if ranges is not None:
                words, edges = ranges
                first, last = edges[number]
                mine = words[left]
                which = left[(mine >= first) & (mine <= last)]
            rows = find_many(sst, keys, hashes, which)
            hit = rows >= 0
            if bool(hit.any()):
                yield sst, base, which[hit], rows[hit]
                left = np.setdiff1d(left, which[hit], assume_unique=True)


def _ranges(
    level: Level, keys: ByteColumn, starts: Ints, lengths: Ints
) -> tuple[npt.NDArray[np.uint64], list[tuple[np.uint64, np.uint64]]]:
    """(a number for each key, the range of numbers that the keys of each file have): a key whose
    number is in no file's range is in none of the files."""
    low, high = level[0][0].first_key, level[-1][0].last_key
    skip = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), None)
    shared = min(len(low), len(high)) if skip is None else skip
    ends = [key for sst, _ in level for key in (sst.first_key, sst.last_key)]
    offsets = np.cumsum([0, *map(len, ends)], dtype=np.int64)
    blob = np.frombuffer(b"".join(ends), dtype=np.uint8)
    words = first_words(blob, offsets[:-1], lengths_of(offsets), shared)
    # A key without the shared beginning gets some number: it is compared in full, and not found.
    numbers = first_words(keys.blob, starts, lengths, shared)
    edges = list(pairwise(words))[::2]
    return numbers, edges
