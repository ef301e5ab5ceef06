"""Merges the ledger's sorted files into new ones: pure functions over a Disk, by array kernels.

The newest version of a key wins: the one with the highest absolute sqn. Inputs are read through
their maps; outputs are written one at a time, each synced, and their names last, in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from octavo.files.door.disk import Disk
from octavo.files.kernels import constant_columns
from octavo.files.kernels.arrays import distinct, np
from octavo.files.kernels.byte_strings import Ints, offsets_of, windows
from octavo.files.kernels.columns import ByteColumn, Strings
from octavo.files.kernels.key_order import key_order
from octavo.files.kernels.scattered_strings import Scattered, no_strings
from octavo.files.ledger import ledger_key
from octavo.files.ledger.few_maps import Told, most_maps, opened
from octavo.files.ledger.key_ranges import key_ranges
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns, Rows, SqnColumn
from octavo.files.ledger.sorted_files import SortedFiles, Summary
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.stale_entries import without_stale

_MARKED_BYTES = 256 << 10
"""Bytes of keys in which the ends of prefixes are looked for at once."""
_TOGETHER_BYTES = 128 << 20
"""Metadata of up to this size is copied to one blob, which saves rows with little of it a quarter
of the cost."""


class Merged(NamedTuple):
    """What came of a merge."""

    files: list[Summary]
    expired_ms: int
    """The latest expiry, ms UTC, of the rows that were dropped or made tombstones because they had
    expired; 0: there were none."""


def write_rows(
    disk: Disk,
    directory: str,
    next_name: Callable[[], str],
    rows: Rows | Columns,
    *,
    max_rows: int,
    max_bytes: int,
) -> list[Summary]:
    """Write the newest version of each key among ``rows``, in key order, as files of at most so
    many rows and bytes. The rows come in any order, and are not changed.

    Files are made about equally large; a row larger than ``max_bytes`` gets a file of its own.
    Every file and then the directory is synced. O(n log n), or O(n) for a few sorted runs. Raises
    Misuse, ValueError (a key is no ledger key), OSError; then the files made so far are removed,
    as far as that works.
    """
    with SortedFiles(disk, directory, next_name, max_rows=max_rows, max_bytes=max_bytes) as files:
        add_rows(files, rows)
    return files.made


def add_rows(files: SortedFiles, rows: Rows | Columns) -> None:
    """As ``write_rows``, in a context for files, which may have others from before."""
    if not len(rows):
        return
    keys = rows.keys if isinstance(rows, Columns) else rows.keys.strings()
    groups = rows.groups if isinstance(rows, Columns) else None
    kept = newest(keys, groups, rows.sqns)
    columns = rows if isinstance(rows, Columns) else _without_prefixes(rows, kept)
    files.add(columns, kept)


def merge(
    disk: Disk,
    directory: str,
    inputs: Sequence[Told],
    next_name: Callable[[], str],
    *,
    basement: bool,
    now_ms: int,
    max_rows: int,
    max_bytes: int,
    ledger: Sequence[Sequence[Told]] = (),
    low: bytes = b"",
    high: bytes | None = None,
) -> Merged:
    """Merge files of ``directory`` into new ones.

    In the basement, where nothing older lies below, tombstones and rows that expired at or
    before ``now_ms`` are dropped; elsewhere a row that expired becomes a tombstone and keeps
    its sqn. ``ledger``: all files of the ledger, a level each, level zero newest first; index
    entries of versions that it knows to be replaced are dropped. Only ledger keys in [low, high)
    are taken. Sqns in the new files are absolute. Files are made as by ``write_rows``, for one of
    the ``key_ranges`` after the other; none if nothing is left. Memory: some 72 MiB for rows and
    their keys, 128 MiB of metadata, and twice a file that is written; metadata beyond that stays in
    the maps until it is written, but for that of inputs beyond ``most_maps``.

    Raises Corruption, UnsupportedFormat, OSError.
    """
    files, *levels = opened(disk, directory, [inputs, *ledger])
    expired_ms = 0
    with SortedFiles(disk, directory, next_name, max_rows=max_rows, max_bytes=max_bytes) as made:
        for begin, end in key_ranges(files, low, high):
            columns = _columns(files, begin, end)
            if columns is None:
                continue
            rows = newest(columns.keys, columns.groups, columns.sqns)
            columns, rows, latest = _aged(columns, rows, basement, now_ms)
            expired_ms = max(expired_ms, latest)
            if levels:
                rows = without_stale(columns, rows, levels)
            made.add(columns, rows)
    return Merged(made.made, expired_ms)


def _columns(files: Sequence[tuple[Sst, int]], low: bytes, high: bytes | None) -> Columns | None:
    """The rows of all files whose keys are in [low, high); None: there are none."""
    parts: list[Columns] = []
    kept = most_maps()
    for number, (sst, sqn_base) in enumerate(files):
        first = sst.lower_bound(low)
        end = sst.rows if high is None else sst.lower_bound(high)
        if first < end:
            found = _apart(sst.columns(sqn_base, first, end), end - first == sst.rows)
            parts.append(found if number < kept else copied(found))
    return stacked(parts, in_place=True) if parts else None


def _apart(columns: Columns, whole: bool) -> Columns:
    """Rows of a file, without the strings of its other rows. ``whole``: there are no others."""
    if whole:
        return columns
    metas = columns.metas
    return replace(columns, keys=cut(columns.keys), metas=None if metas is None else cut(metas))


def copied(columns: Columns) -> Columns:
    """The same rows of a file, copied out of its map."""
    return replace(
        columns,
        keys=_own(columns.keys),
        hashes=columns.hashes.copy(),
        sqns=columns.sqns.copy(),
        flags=columns.flags.copy(),
        sizes=columns.sizes.copy(),
        times=columns.times.copy(),
        expiries=None if columns.expiries is None else columns.expiries.copy(),
        metas=None if columns.metas is None else _own(columns.metas),
    )


def _own(strings: Strings) -> Strings:
    found = cut(strings)
    return replace(found, blob=found.blob.copy())


def cut(strings: Strings) -> Strings:
    """Neighbouring strings of a file that stand end to end, with only their part of the blob."""
    starts, lengths = strings.starts, strings.lengths
    first, end = int(starts[0]), int(starts[-1] + lengths[-1])
    return Strings(strings.blob[first:end], starts - first, lengths)


# ---------------------------------------------------------------- which rows stay


def newest(keys: Strings, groups: Ints | None, sqns: SqnColumn) -> Ints:
    """Of each set of equal keys the row with the highest sqn, in key order: see key_order."""
    order, firsts = key_order(keys, groups)
    if len(firsts) == len(order):
        return order
    ordered = sqns[order]
    best = np.maximum.reduceat(ordered, firsts)
    sets = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(order))))
    winners = np.flatnonzero(ordered == best[sets])
    if len(winners) > len(firsts):  # one version in two inputs: either will do
        winners = winners[np.unique(sets[winners], return_index=True)[1]]
    return order[winners]


def _aged(columns: Columns, kept: Ints, basement: bool, now_ms: int) -> tuple[Columns, Ints, int]:
    """Drop rows that nobody can read any more, or make them tombstones: (columns, rows left, latest
    expiry of a row that had expired; 0: none had)."""
    flags = columns.flags[kept]
    expired = np.zeros(len(kept), dtype=np.bool_)
    latest = 0
    if columns.expiries is not None:
        moments = columns.expiries[kept]
        expired = ((flags & EXPIRES) != 0) & (moments <= np.uint64(max(now_ms, 0)))
        latest = int(moments[expired].max(initial=0))
    if basement:
        return columns, kept[~(expired | ((flags & TOMBSTONE) != 0))], latest
    gone = kept[expired]
    if not len(gone) or columns.expiries is None:
        return columns, kept, latest
    new_flags, sizes, expiries = (
        columns.flags.copy(), columns.sizes.copy(), columns.expiries.copy(),
    )  # fmt: skip
    new_flags[gone] = TOMBSTONE
    sizes[gone] = 0
    expiries[gone] = 0
    metas = columns.metas
    if metas is not None:
        metas = copy(metas)
        metas.lengths = metas.lengths.copy()
        metas.lengths[gone] = 0
    made = replace(columns, flags=new_flags, sizes=sizes, expiries=expiries, metas=metas)
    return made, kept, latest


# ---------------------------------------------------------------- columns of several inputs


def stacked(parts: Sequence[Columns], *, in_place: bool = False) -> Columns:
    """The rows of all parts one after the other, their groups numbered together. ``in_place``:
    much metadata is not copied; such columns are only good for writing files."""
    if len(parts) == 1:
        return parts[0]
    prefixes = sorted({prefix for part in parts for prefix in part.prefixes})
    groups = None
    if len(prefixes) > 1:
        number = {prefix: at for at, prefix in enumerate(prefixes)}
        groups = np.concatenate([_renumbered(part, number) for part in parts])
    expiries = None
    if any(part.expiries is not None for part in parts):
        expiries = np.concatenate(
            [
                np.zeros(len(part), np.uint64) if part.expiries is None else part.expiries
                for part in parts
            ]
        )
    metas = None
    if any(part.metas is not None for part in parts):
        found = [no_strings(len(part)) if part.metas is None else part.metas for part in parts]
        apart = in_place and sum(len(strings.blob) for strings in found) > _TOGETHER_BYTES
        metas = Scattered(found) if apart else _strings(found)
    return Columns(
        keys=_strings([part.keys for part in parts]),
        prefixes=prefixes,
        groups=groups,
        hashes=np.concatenate([part.hashes for part in parts]),
        sqns=np.concatenate([part.sqns for part in parts]),
        flags=constant_columns.joined([part.flags for part in parts]),
        sizes=constant_columns.joined([part.sizes for part in parts]),
        times=constant_columns.joined([part.times for part in parts]),
        expiries=expiries,
        metas=metas,
    )


def _renumbered(part: Columns, number: dict[bytes, int]) -> Ints:
    new = np.array([number[prefix] for prefix in part.prefixes], dtype=np.int64)
    if part.groups is None:
        return np.full(len(part), new[0])
    renumbered: Ints = new[part.groups]
    return renumbered


def _strings(parts: Sequence[Strings]) -> Strings:
    at = offsets_of(np.array([len(part.blob) for part in parts], dtype=np.int64))
    return Strings(
        np.concatenate([part.blob for part in parts]),
        np.concatenate([part.starts + base for part, base in zip(parts, at, strict=False)]),
        constant_columns.joined([part.lengths for part in parts]),
    )


def _without_prefixes(rows: Rows, kept: Ints) -> Columns:
    """The rows, their keys cut into prefix (tag and bucket) and user key. ``kept``: the rows that
    count, in key order; the keys of others mean nothing."""
    whole = rows.keys.strings()
    sizes, prefixes, groups = _prefixes(rows.keys, kept)
    if groups is not None:
        of_kept = sizes, groups
        sizes, groups = (np.zeros(len(rows), dtype=np.int64) for _ in of_kept)
        sizes[kept], groups[kept] = of_kept
    return Columns(
        keys=Strings(whole.blob, whole.starts + sizes, whole.lengths - sizes),
        prefixes=prefixes,
        groups=groups,
        hashes=rows.hashes,
        sqns=rows.sqns,
        flags=rows.flags,
        sizes=rows.sizes,
        times=rows.times,
        expiries=rows.expiries,
        metas=rows.metas,
    )


def _prefixes(column: ByteColumn, kept: Ints) -> tuple[int | Ints, list[bytes], Ints | None]:
    """(bytes of each row's prefix, the distinct prefixes, the group of each row) for the rows
    ``kept``; None instead of groups: there is one prefix."""
    blob, starts = column.blob, column.offsets[:-1][kept]
    lengths = column.offsets[1:][kept] - starts

    def key(row: int, size: int) -> bytes:
        return blob[starts[row] : starts[row] + size].tobytes()

    first = key(0, int(lengths[0]))
    prefix = first[: ledger_key.end_of_prefix(first)]
    if key(-1, int(lengths[-1])).startswith(prefix):
        return len(prefix), [prefix], None  # sorted, so all between begin with it too
    sizes = _sizes(column)[kept]
    new = np.ones(len(starts), dtype=np.bool_)
    new[1:] = sizes[1:] != sizes[:-1]
    alike = np.flatnonzero(~new)
    for size in distinct(sizes[alike]).tolist():
        rows = alike[sizes[alike] == size]
        view = windows(blob, size)
        here, before = (
            view[starts[which]].view(np.uint8).reshape(-1, size) for which in (rows, rows - 1)
        )
        new[rows] = (here != before).any(axis=1)
    prefixes = [key(row, int(sizes[row])) for row in np.flatnonzero(new).tolist()]
    return sizes, prefixes, np.cumsum(new) - 1


def _sizes(column: ByteColumn) -> Ints:
    """Bytes of each key's prefix. Raises ValueError. Some keys are taken at a time: where all their
    bytes are zeros, there are as many marks as bytes."""
    blob, offsets = column.blob, column.offsets
    sizes = np.empty(len(offsets) - 1, dtype=np.int64)
    low = 0
    while low < len(sizes):
        reach = int(offsets[low]) + _MARKED_BYTES
        high = max(int(np.searchsorted(offsets, reach, side="right")) - 1, low + 1)
        begin, starts = int(offsets[low]), offsets[low:high] - offsets[low]
        part = blob[begin : int(offsets[high])]
        # The end mark is the first pair of NULs behind the tag: escapes never make such a pair.
        marks = np.flatnonzero((part[:-1] == 0) & (part[1:] == 0))
        at = np.searchsorted(marks, starts + 1)
        ends = offsets[low + 1 : high + 1] - begin
        if int(at.max()) == len(marks) or bool((marks[at] + 2 > ends).any()):
            raise ValueError("a ledger key without an end mark")
        sizes[low:high] = marks[at] + 2 - starts
        low = high
    return sizes
