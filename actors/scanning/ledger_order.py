"""All live rows of the ledger, in order: scans of keys and items look here once much was merged.

To make a short window from a ledger file costs some 20 us, from several files 40, since a place has
to be found in each, and the rows there put in order and kept; a list of all keys is merged anew
each time. If scans do that again and again, all rows are put in order once: their keys end to end,
their lengths, their sqns, and every 64th key as a fence to bisect in. From one fence to the next is
a block. Short windows are made of its keys and sqns as lists; of blocks that are asked for again,
as many as there is room for are kept. Long windows take chunks of any length. All of it belongs to
one manifest of the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import compress, pairwise
from typing import NoReturn

from octavo.actors.scanning.scan_sources import (
    CHUNK_BYTES,
    FIRST_WINDOW,
    LARGEST_WINDOW,
    Chunk,
    asked_for_more,
)
from octavo.files.errors import Corruption
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, array_of, as_list, lengths_of, offsets_of
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.live_batches import alive, as_slice, end_to_end, merged, strings_of
from octavo.files.ledger.merge import stacked
from octavo.files.ledger.rows import EXPIRES, Columns
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import Section
from octavo.manifest.ledger_manifest import LedgerManifest

Between = tuple[list[bytes], list[int], bytes, bytes]
"""Keys and sqns of all rows from one ledger key to another, exclusive, and these two. The lists
belong to the caller."""
_Block = tuple[list[bytes], list[int]]

_BLOCK = 64
"""Rows from a fence to the next."""
_ROW_BYTES, _FENCE_BYTES = 12, 64
"""What a row, and a fence, take at most beyond their keys."""
_LISTED_BYTES = 96
"""What a row of a kept block takes at most beyond its key."""
_MOST_GROUPS = 4096
"""With more pairs of tag and bucket no order is made, since each takes some steps of Python."""


class LedgerOrder:
    """The live rows of one state of the ledger. Any thread reads it; only which blocks are kept
    changes, in steps each of which is whole."""

    __slots__ = (
        "_asked", "_blob", "_blocks", "_expiries", "_fences", "_groups", "_lengths", "_longest",
        "_most", "_queue", "_sqns", "_starts", "news",
    )  # fmt: skip

    def __init__(self, files: Sequence[tuple[Sst, int]], kept_bytes: int) -> None:
        """Put the rows in order, by array kernels; 0.15 us a row. ``files``: as ``files_of`` gives
        them; ``kept_bytes``: what the blocks that are kept may take."""
        columns, rows = _in_order(files)
        if columns.flags.any():
            rows = rows[alive(columns, rows, 0)]  # as of moment 0: also those that expire
        keys = end_to_end(columns.keys, as_slice(rows) if len(rows) else rows)
        self._blob = keys.blob.tobytes()
        starts = np.append(keys.offsets[:-1:_BLOCK], len(self._blob))
        self._starts = starts.tolist()
        """Where each block's keys begin; one more, for the end."""
        lengths = lengths_of(keys.offsets)
        width = np.min_scalar_type(int(lengths.max(initial=0)))
        self._lengths = lengths.astype(width).data.toreadonly()
        sqns = columns.sqns[rows]
        width = np.min_scalar_type(int(sqns.max(initial=0)))
        self._sqns = sqns.astype(width).data.toreadonly()
        fences = strings_of(columns.keys, rows[::_BLOCK])
        self._fences = as_list(fences.blob.tobytes(), fences.offsets)
        if columns.groups is None:
            edges = [0, len(rows)]
        else:
            numbers = np.arange(len(columns.prefixes) + 1)
            edges = np.searchsorted(columns.groups[rows], numbers).tolist()
        self._groups = dict(zip(columns.prefixes, pairwise(edges), strict=True))
        """For each tag and bucket, its rows [first, end)."""
        self._expiries: memoryview | None = None
        """When each row expires, ms UTC; 0: never. None if no row does."""
        expires = columns.flags[rows] & EXPIRES
        if columns.expiries is not None and expires.any():
            moments = np.where(expires, columns.expiries[rows], np.uint64(0))
            self._expiries = moments.data.toreadonly()
        self._blocks: dict[int, _Block] = {}
        self._queue: deque[int] = deque()
        """Numbers of the blocks that are kept, the newest last."""
        self._asked = bytearray(len(starts))
        """How often each was asked for, counted up to two, since it was last let go of."""
        self.news = 0
        """Grows whenever a block is asked for that was not asked for twice before."""
        largest = int(lengths_of(starts).max(initial=0))
        self._most = kept_bytes // (largest + _BLOCK * _LISTED_BYTES)
        self._longest = max(CHUNK_BYTES // max(largest, 1), 1) * _BLOCK
        """Rows of a chunk."""

    @property
    def lasting(self) -> bool:
        """Whether its answers hold at any moment, since no row expires."""
        return self._expiries is None

    def above(self, prefix: bytes, low: bytes, high: bytes, wanted: int, now_ms: int) -> Between:
        """The rows of a bucket that live at the beginning of a range, out of ``wanted`` rows or
        some more; for a first window also out of fewer."""
        first, end = self._groups.get(prefix, (0, 0))
        if first == end:
            return [], [], low, high
        key = low[len(prefix) :]
        beyond = high[len(prefix) :] if high.startswith(prefix) else None
        number = self._block_of(key, first, end)
        keys, sqns = self._block(number)
        at = number * _BLOCK
        cut = bisect_left(keys, key, max(first - at, 0), min(end - at, _BLOCK))
        keys, sqns = keys[cut : end - at], sqns[cut : end - at]
        at += cut
        least = _BLOCK if wanted == FIRST_WINDOW else wanted
        while len(keys) < least and at + len(keys) < end:
            if beyond is not None and keys and keys[-1] >= beyond:
                break
            number += 1
            more = self._block(number)
            left = end - number * _BLOCK
            keys += more[0] if left >= _BLOCK else more[0][:left]
            sqns += more[1] if left >= _BLOCK else more[1][:left]
        behind = high
        if at + len(keys) < end:
            behind = prefix + keys[-1] + b"\x00"
        if behind >= high:
            behind = high
            if beyond is not None:
                cut = bisect_left(keys, beyond)
                del keys[cut:], sqns[cut:]
        if self._expiries is not None:
            keys, sqns = self._alive(keys, sqns, at, now_ms)
        return keys, sqns, low, behind

    def below(self, prefix: bytes, low: bytes, high: bytes, wanted: int, now_ms: int) -> Between:
        """As ``above``, at the end of a range. Keys ascend here, too."""
        first, end = self._groups.get(prefix, (0, 0))
        if first == end:
            return [], [], low, high
        number = (end - 1) // _BLOCK
        begins_with = low[len(prefix) :]
        if high.startswith(prefix):
            key = high[len(prefix) :]
            number = self._block_of(key, first, end)
        keys, sqns = self._block(number)
        at = number * _BLOCK
        cut = min(end - at, _BLOCK)
        begins = max(first - at, 0)
        if high.startswith(prefix):
            cut = bisect_left(keys, key, begins, cut)
        keys, sqns = keys[begins:cut], sqns[begins:cut]
        at += begins
        least = _BLOCK if wanted == FIRST_WINDOW else wanted
        while len(keys) < least and at > first and not (keys and keys[0] <= begins_with):
            number -= 1
            more = self._block(number)
            at = number * _BLOCK
            begins = max(first - at, 0)
            keys, sqns = more[0][begins:] + keys, more[1][begins:] + sqns
            at += begins
        begin = low
        if at > first:
            begin = prefix + keys[0]
        if begin <= low:
            begin = low
            cut = bisect_left(keys, begins_with)
            del keys[:cut], sqns[:cut]
            at += cut
        if self._expiries is not None:
            keys, sqns = self._alive(keys, sqns, at, now_ms)
        return keys, sqns, begin, high

    def rows(self, prefix: bytes) -> int:
        """How many rows a bucket has, including those that have expired."""
        first, end = self._groups.get(prefix, (0, 0))
        return end - first

    def chunks(self, bound: Bounds, window: int, more: int) -> Iterator[Chunk]:
        """Yield the rows of a range of one bucket, ``window`` at first, as
        scan_sources.file_chunks does."""
        prefix, low, high, reverse = bound
        first, end = self._groups.get(prefix, (0, 0))
        if high is not None and high.startswith(prefix):
            end = self._row(high[len(prefix) :], first, end)
        first = self._row(low[len(prefix) :], first, end)
        following = window * more
        while first < end:
            rows = min(window, LARGEST_WINDOW, self._longest, end - first)
            if reverse:
                end -= rows
                yield _OrderChunk(self, end, end + rows)
            else:
                yield _OrderChunk(self, first, first + rows)
                first += rows
            window, following = following, min(following * 2, LARGEST_WINDOW)

    def _row(self, key: bytes, first: int, end: int) -> int:
        """The first of rows [first, end) that is not below ``key``, or the end."""
        if first == end:
            return end
        at = max(self._block_of(key, first, end) * _BLOCK, first)
        return at + bisect_left(self.keys(at, min(at - at % _BLOCK + _BLOCK, end)), key)

    def keys(self, low: int, high: int) -> list[bytes]:
        """Keys of rows [low, high). The list is the caller's."""
        begin = self._starts[low // _BLOCK] + sum(self._lengths[low - low % _BLOCK : low])
        ends = offsets_of(array_of(self._lengths[low:high]))
        return as_list(self._blob[begin : begin + int(ends[-1])], ends)

    def sqns(self, low: int, high: int) -> list[int]:
        """Sequence numbers of rows [low, high)."""
        return self._sqns[low:high].tolist()

    def expired(self, low: int, high: int, now_ms: int) -> Sequence[int]:
        """Which of rows [low, high) have expired, ascending, counted from ``low`` on."""
        if self._expiries is None or not any(moments := self._expiries[low:high].tolist()):
            return ()
        return [at for at, moment in enumerate(moments) if 0 < moment <= now_ms]

    def _block_of(self, key: bytes, first: int, end: int) -> int:
        """The block that holds the first of rows [first, end) not below ``key``, or the block
        before it."""
        fence = bisect_left(self._fences, key, -(-first // _BLOCK), -(-end // _BLOCK))
        return max(fence - 1, first // _BLOCK)

    def _block(self, number: int) -> _Block:
        """Keys and sqns of all rows of a block, not to be changed."""
        found = self._blocks.get(number)
        asked = self._asked[number]
        if asked < 2:
            self.news += 1
            self._asked[number] = asked + 1
        if found is None:
            at = number * _BLOCK
            blob = BytesIO(self._blob[self._starts[number] : self._starts[number + 1]])
            keys = list(map(blob.read, self._lengths[at : at + _BLOCK].tolist()))
            found = keys, self._sqns[at : at + _BLOCK].tolist()
            if asked:  # to keep one, and let another go, takes as long as to make it
                self._queue.append(number)
                self._blocks[number] = found
                if len(self._queue) > self._most:
                    old = self._queue.popleft()
                    self._blocks.pop(old, None)
                    self._asked[old] = 0
        return found

    def _alive(
        self, keys: list[bytes], sqns: list[int], at: int, now_ms: int
    ) -> tuple[list[bytes], list[int]]:
        """Drop those of the rows from ``at`` on that have expired."""
        gone = self.expired(at, at + len(keys), now_ms)
        if not gone:
            return keys, sqns
        lives = bytearray(b"\x01") * len(keys)
        for row in gone:
            lives[row] = 0
        return list(compress(keys, lives)), list(compress(sqns, lives))


class _OrderChunk:
    """Rows [low, high) of the order as a chunk; only their keys and sqns are known."""

    def __init__(self, order: LedgerOrder, low: int, high: int) -> None:
        self.keys = order.keys(low, high)
        self._order = order
        self._low = low

    def dead(self, now_ms: int) -> Sequence[int]:
        return self._order.expired(self._low, self._low + len(self.keys), now_ms)

    def sqns(self, low: int, high: int) -> list[int]:
        return self._order.sqns(self._low + low, self._low + high)

    def times(self, rows: Sequence[int]) -> NoReturn:
        asked_for_more()

    def heads(self, rows: Sequence[int]) -> NoReturn:
        asked_for_more()


def _in_order(files: Sequence[tuple[Sst, int]]) -> tuple[Columns, Ints]:
    """The rows of all files, and the numbers of those that are the newest of their keys, in
    order."""
    files = sorted(files, key=_first_key)
    parts = [sst.columns(base) for sst, base in files]
    if all(one.last_key < other.first_key for (one, _), (other, _) in pairwise(files)):
        columns = stacked(parts)
        return columns, np.arange(len(columns))
    return merged(parts)


def _first_key(file: tuple[Sst, int]) -> bytes:
    return file[0].first_key


def files_of(
    ledger: LedgerManifest, most_bytes: int, *, verify: bool = False
) -> list[tuple[Sst, int]] | None:
    """The ledger's files and the bases of their sqns, if all are open and known to be whole, and
    their order would take at most ``most_bytes``; else None. 1 us a file. ``verify``: files not
    known to be whole are verified, some 0.1 ms a MiB."""
    files: list[tuple[Sst, int]] = []
    size = groups = 0
    for entry in ledger.entries:
        sst: Sst | None = entry.file.sst
        if sst is None or (sst.swift is None and not verify):
            return None
        size += sst.rows * _ROW_BYTES + sst.rows // _BLOCK * _FENCE_BYTES
        size += sst.layout.sections[Section.KEYS][1] * (_BLOCK + 1) // _BLOCK
        size += sst.rows * 8 if sst.expiring else 0
        groups += len(sst.column(Section.FIRSTS, "I"))
        if size > most_bytes or groups > _MOST_GROUPS:
            return None
        files.append((sst, entry.sqn_base))
    with suppress(Corruption):  # it is raised to the caller who reads what is damaged
        for sst, _ in files:
            sst.ensure_whole()
        return files or None
    return None
