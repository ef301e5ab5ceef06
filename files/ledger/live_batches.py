"""Merges ledger rows from sources that each hold a key once, and gives the live ones as columns.

Windows of all sources are merged up to a common bound. A window is tens of thousands of rows in
arrays; no Python object is made for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise, repeat
from typing import NamedTuple, Protocol

from octavo.files.errors import Corruption
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, Mask, as_list, cuts, gather
from octavo.files.kernels.columns import ByteColumn, Strings
from octavo.files.kernels.freed_memory import keep_freed
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.chosen_rows import Chosen
from octavo.files.ledger.head import Head
from octavo.files.ledger.ledger_key import split
from octavo.files.ledger.merge import copied, cut, newest, stacked
from octavo.files.ledger.row_ranges import within
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_ahead import ask_for_rows

WINDOW_ROWS = 1 << 16
"""Rows of each source in a window, at most."""
WIDE_WINDOW_ROWS = 1 << 20
"""The same where only chosen rows are wanted, which leaves out most of them."""

WINDOW_BYTES = 4 << 20
"""Bytes of each source's keys, and of its metadata, in a window, at most; or one row."""

_ROWS_A_BUCKET = 1024
"""Where buckets have fewer rows, work for each bucket costs more than a name for each row."""
_NAMES_BYTES = 16 << 20
"""The most bytes of such names."""

LedgerRun = tuple[Callable[[], Sst], int]
"""A function that opens a ledger file, and the base of the file's sqns."""


class Source(Protocol):
    """Rows by key, each key once, in the direction of a scan."""

    more: bool
    """Whether there are rows behind what ``edge`` gave last."""

    def edge(self) -> bytes | None:
        """The furthest ledger key that ``take`` could give next; None: there are no more."""
        ...

    def take(self, edge: bytes) -> Columns | None:
        """Every row up to and with ``edge``, which ``edge()`` of some source gave."""
        ...


class Batch(NamedTuple):
    """Some live rows: those numbered ``rows`` of ``columns``, in the direction of the scan."""

    columns: Columns
    rows: Ints


class FileRows:
    """The rows of ledger files that do not overlap, given in the direction of the scan."""

    def __init__(
        self,
        files: Sequence[LedgerRun],
        bound: Bounds,
        chosen: Chosen | None = None,
        window_rows: int = WINDOW_ROWS,
        *,
        kept: bool = True,
    ) -> None:
        """With ``kept=False`` no file stays mapped between calls."""
        self.more = True
        self._kept = kept
        self._reader: Callable[[], Sst] | None = None
        self._files = list(files if bound.reverse else reversed(files))  # those to come, last first
        self._bound = bound
        self._wanted = chosen
        self._window = window_rows if chosen is None else WIDE_WINDOW_ROWS
        self._sst: Sst | None = None
        self._sqn_base = 0
        self._low = self._high = 0
        """From the one up to the other: the rows of the file that were not taken yet."""

    def edge(self) -> bytes | None:
        """The furthest ledger key that ``take`` could give next; None: there are no more."""
        while self._low >= self._high:
            if not self._files:
                return None
            self._open(*self._files.pop())
        sst = self._mapped()
        if sst is None:
            return None
        low, high = self._low, self._high
        if self._bound.reverse:
            low = max(low, high - self._window)
        else:
            high = min(high, low + self._window)
        low, high = within(sst, low, high, WINDOW_BYTES, reverse=self._bound.reverse, metas=True)
        self.more = bool(self._files) or low > self._low or high < self._high
        return sst.ledger_key(low if self._bound.reverse else high - 1)

    def _mapped(self) -> Sst | None:
        return self._reader() if self._sst is None and self._reader is not None else self._sst

    def _open(self, reader: Callable[[], Sst], sqn_base: int) -> None:
        sst = reader()
        sst.ensure_whole()
        self._sst, self._reader, self._sqn_base = sst if self._kept else None, reader, sqn_base
        high = self._bound.high
        self._low = sst.lower_bound(self._bound.low)
        self._high = sst.rows if high is None else sst.lower_bound(high)

    def take(self, edge: bytes) -> Columns | None:
        """Every row up to and with ``edge``, which ``edge()`` of some source gave."""
        sst = self._mapped() if self._low < self._high else None
        if sst is None:
            return None
        if self._bound.reverse:
            low, high = max(sst.lower_bound(edge), self._low), self._high
            self._high = low
        else:
            low, high = self._low, min(sst.lower_bound(edge + b"\x00"), self._high)
            self._low = high
        if low >= high:
            return None
        ask_for_rows(sst, low, high)
        columns = sst.columns(self._sqn_base, low, high)
        if self._wanted is None:
            found = rows_between(columns, 0, high - low)
            return found if self._kept else copied(found)
        chosen = np.flatnonzero(self._wanted.rows(columns))
        return rows_at(columns, chosen) if len(chosen) else None


def rows_between(columns: Columns, low: int, high: int) -> Columns:
    """Rows [low, high), low < high, of the columns of a file: views of them."""
    rows = slice(low, high)
    return _taken(columns, rows, lambda strings: cut(strings.picked(rows)))


def _taken(columns: Columns, rows: slice | Ints, strings: Callable[[Strings], Strings]) -> Columns:
    prefixes, groups = _own(columns, rows)
    return Columns(
        keys=strings(columns.keys),
        prefixes=prefixes,
        groups=groups,
        hashes=columns.hashes[rows],
        sqns=columns.sqns[rows],
        flags=columns.flags[rows],
        sizes=columns.sizes[rows],
        times=columns.times[rows],
        expiries=None if columns.expiries is None else columns.expiries[rows],
        metas=None if columns.metas is None else strings(columns.metas),
    )


def _own(columns: Columns, rows: slice | Ints) -> tuple[list[bytes], Ints | None]:
    """(prefixes, groups) of some rows in order, one at the least. Other prefixes are left out:
    whoever joins windows must not meet all buckets of a file in each."""
    if columns.groups is None:
        return columns.prefixes, None
    groups: Ints = columns.groups[rows]
    first, last = int(groups[0]), int(groups[-1])
    if first == last:
        return columns.prefixes[first : first + 1], None
    return columns.prefixes[first : last + 1], groups - first if first else groups


def rows_at(columns: Columns, rows: Ints) -> Columns:
    """Some rows in order of their keys, copied; one at the least."""
    return _taken(columns, rows, lambda strings: _at(strings, rows))


def as_slice(rows: Ints) -> Ints | slice:
    """The rows, as a slice if they are consecutive: what is taken by a slice is not copied."""
    low, high = int(rows[0]), int(rows[-1]) + 1
    if high - low == len(rows) and bool((rows[1:] > rows[:-1]).all()):
        return slice(low, high)
    return rows


def end_to_end(strings: Strings, rows: Ints | slice) -> ByteColumn:
    """Some of the strings, one at the least, end to end; not copied if ``rows`` is a slice and the
    strings stand so already."""
    starts, lengths = strings.starts[rows], strings.lengths[rows]
    if isinstance(rows, slice):
        offsets = np.empty(len(starts) + 1, np.int64)
        offsets[0] = low = starts[0]
        np.add(starts, lengths, out=offsets[1:])
        if bool((offsets[:-1] == starts).all()):
            return ByteColumn(strings.blob[low : offsets[-1]], offsets - low if low else offsets)
    return gather(strings.blob, starts, lengths)


def strings_of(strings: Strings, rows: Ints) -> ByteColumn:
    """Some of the strings, copied end to end."""
    return gather(strings.blob, strings.starts[rows], strings.lengths[rows])


def _at(strings: Strings, rows: Ints) -> Strings:
    found = strings_of(strings, rows)
    return Strings(found.blob, found.offsets[:-1], strings.lengths[rows])


def edges(sources: Sequence[Source], *, reverse: bool = False) -> Iterator[bytes]:
    """The keys up to which the windows of all sources go, as long as there are more rows: the
    nearest edge with more rows behind it, or else the furthest. Before the next one, each source's
    rows up to it have to be taken. Raises Corruption."""
    before: bytes | None = None
    while True:
        found = [(edge, source.more) for source in sources if (edge := source.edge()) is not None]
        if not found:
            return
        behind = [edge for edge, more in found if more]
        if behind:
            edge = max(behind) if reverse else min(behind)
        else:
            edge = (min if reverse else max)(edge for edge, _ in found)
        if edge == before:  # its rows were all given: so a file lies about its order
            raise Corruption("ledger", 0, f"keys out of order at {edge[:80]!r}; verify the store")
        before = edge
        yield edge


def live_batches(sources: Sequence[Source], now_ms: int, *, reverse: bool) -> Iterator[Batch]:
    """The live rows of all sources, the newest version of each key, in their direction."""
    keep_freed()  # a window's arrays are dropped as the next one's are made
    for edge in edges(sources, reverse=reverse):
        parts = [part for source in sources if (part := source.take(edge)) is not None]
        if parts:
            columns, rows = merged(parts)
            if columns.flags.any():
                rows = rows[alive(columns, rows, now_ms)]
            if len(rows):
                yield Batch(columns, rows[::-1] if reverse else rows)


def merged(parts: list[Columns]) -> tuple[Columns, Ints]:
    """(all rows of the parts, which of them are the newest of their keys, in key order)."""
    if len(parts) == 1:
        return parts[0], np.arange(len(parts[0]), dtype=np.int64)
    columns = stacked(parts)
    return columns, newest(columns.keys, columns.groups, columns.sqns)


def alive(columns: Columns, rows: Ints, now_ms: int) -> Mask:
    """Which of the rows are neither tombstones nor expired at ``now_ms``."""
    flags = columns.flags[rows]
    dead: Mask = (flags & TOMBSTONE) != 0
    if columns.expiries is not None:
        expired = columns.expiries[rows] <= np.uint64(max(now_ms, 0))
        dead |= ((flags & EXPIRES) != 0) & expired
    return ~dead


def parts_of(
    batch: Batch, most_rows: int, most_bytes: int, *, by_values: bool, by_buckets: bool = False
) -> Iterator[Batch]:
    """The batch in parts of at most so many rows and bytes, or of one row. Keys and metadata count;
    with ``by_values`` also values, by the sizes that rows have; with ``by_buckets`` also a bucket's
    name for each row."""
    if not len(batch.rows):
        return
    rows = as_slice(batch.rows)
    lengths = batch.columns.keys.lengths[rows].astype(np.int64, copy=False)
    if by_buckets:
        lengths = lengths + names_of(batch).lengths
    if batch.columns.metas is not None:
        lengths = lengths + batch.columns.metas.lengths[rows]
    if by_values:
        lengths = lengths + batch.columns.sizes[rows]
    if len(batch.rows) <= most_rows and int(lengths.sum()) <= most_bytes:
        yield batch
        return
    for low, high in cuts(lengths, most_rows, most_bytes):
        yield batch._replace(rows=batch.rows[low:high])


def keys_of(batch: Batch) -> list[bytes]:
    """The user keys of a batch's rows."""
    found = strings_of(batch.columns.keys, batch.rows)
    return as_list(found.blob.tobytes(), found.offsets)


def buckets_of(batch: Batch) -> Iterator[tuple[bytes, int, int]]:
    """(prefix, low, high): rows [low, high) of a batch have this tag and bucket."""
    columns, rows = batch
    if columns.groups is None:
        yield columns.prefixes[0], 0, len(rows)
        return
    groups = columns.groups[rows]
    cuts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(rows)]
    for low, high in pairwise(cuts):
        yield columns.prefixes[int(groups[low])], low, high


def by_buckets(batch: Batch) -> Iterator[tuple[int, bytes | Strings, int, int]]:
    """(tag, bucket, low, high): rows [low, high) of a batch have this tag and bucket. Where buckets
    have few rows each, all of a tag come together, with the bucket's name of each row of the batch
    in the bucket's place."""
    found = list(buckets_of(batch))
    if len(found) > 1 and len(batch.rows) < len(found) * _ROWS_A_BUCKET:
        names = names_of(batch)
        if int(names.lengths.sum()) <= _NAMES_BYTES:
            for tag, run in groupby(found, key=lambda each: each[0][0]):
                these = list(run)
                yield tag, names, these[0][1], these[-1][2]
            return
    for prefix, low, high in found:
        tag, bucket, _ = split(prefix)
        yield tag, bucket, low, high


def names_of(batch: Batch) -> Strings:
    """The name of the bucket of each row."""
    names, counts = [], []
    for prefix, low, high in buckets_of(batch):
        names.append(split(prefix)[1])
        counts.append(high - low)
    lengths = np.array([len(name) for name in names], dtype=np.int64)
    which = np.repeat(np.arange(len(names), dtype=np.int64), counts)
    blob = np.frombuffer(b"".join(names), dtype=np.uint8)
    return Strings(blob, (np.cumsum(lengths) - lengths)[which], lengths[which])


def heads_of(batch: Batch) -> list[Head]:
    """The heads of a batch's rows; it was made with ``heads``. Some 0.5 us a row."""
    columns, rows = batch
    metas: Iterable[bytes] = repeat(b"")
    if columns.metas is not None:
        found = strings_of(columns.metas, rows)
        metas = as_list(found.blob.tobytes(), found.offsets)
    expiries: Iterable[int | None] = repeat(None)
    if columns.expiries is not None:
        expiries = [moment or None for moment in columns.expiries[rows].tolist()]
    parts = zip(
        columns.sqns[rows].tolist(), columns.sizes[rows].tolist(), metas,
        columns.times[rows].tolist(), expiries, strict=False,
    )  # fmt: skip
    return list(map(Head._make, parts))
