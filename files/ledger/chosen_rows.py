"""Chooses the rows of a range of ledger keys that a scan wants, where that is not all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Mask, at_or_above, column_of
from octavo.files.kernels.columns import Strings
from octavo.files.ledger.bounds import Bounds, bounds, of_type
from octavo.files.ledger.ledger_key import after, end_of_prefix
from octavo.files.ledger.rows import Columns

_ROWS_A_BUCKET = 1000
"""A pass over all rows takes for so many as long as a search in one bucket: some 70 us."""


class Chosen(Protocol):
    """Which rows of a range are wanted: for each key all of its versions, or none."""

    def rows(self, columns: Columns) -> Mask:
        """Which of the rows are wanted."""
        ...

    def keys(self, ledger_keys: list[bytes], hashes: npt.NDArray[np.uint32]) -> Mask:
        """Which of the keys are wanted, given their hashes."""
        ...


class Segments(NamedTuple):
    """Some of the equal parts that the hashes of ledger keys are divided into."""

    shift: int
    """A key's segment is its hash shifted right by this."""
    chosen: Mask

    def rows(self, columns: Columns) -> Mask:
        """See Chosen."""
        return self.of(columns.hashes)

    def keys(self, ledger_keys: list[bytes], hashes: npt.NDArray[np.uint32]) -> Mask:
        """See Chosen."""
        return self.of(hashes)

    def of(self, hashes: npt.NDArray[np.uint32]) -> Mask:
        """Which of these hashes are in a chosen segment."""
        found: Mask = self.chosen[(hashes >> np.uint32(self.shift)).astype(np.int64)]
        return found


class Prefixes(NamedTuple):
    """The rows of some pairs of tag and bucket."""

    chosen: Collection[bytes]

    def rows(self, columns: Columns) -> Mask:
        """See Chosen."""
        mask = self._of(columns.prefixes)
        if columns.groups is None:
            return np.repeat(mask, len(columns))
        found: Mask = mask[columns.groups]
        return found

    def keys(self, ledger_keys: list[bytes], hashes: npt.NDArray[np.uint32]) -> Mask:
        """See Chosen."""
        return self._of([key[: end_of_prefix(key)] for key in ledger_keys])

    def _of(self, prefixes: list[bytes]) -> Mask:
        return np.fromiter(map(self.chosen.__contains__, prefixes), np.bool_, len(prefixes))


class Span(NamedTuple):
    """User keys: from ``start`` (inclusive), below ``end``, beginning ``prefix``; None: any."""

    start: bytes | None = None
    end: bytes | None = None
    prefix: bytes | None = None

    def rows(self, keys: Strings) -> Mask:
        """Which of the keys are in the span. 10 ns a key and bound."""
        found = np.ones(len(keys.lengths), np.bool_)
        lows = (self.start, self.prefix)
        highs = (self.end, None if self.prefix is None else after(self.prefix))
        for low in (low for low in lows if low):
            found &= at_or_above(keys, low)
        for high in (high for high in highs if high is not None):
            found &= ~at_or_above(keys, high)
        return found


class OfSpans(NamedTuple):
    """Keys of some spans, of whatever bucket."""

    spans: Sequence[Span]

    def rows(self, columns: Columns) -> Mask:
        """See Chosen."""
        return self._of(columns.keys)

    def keys(self, ledger_keys: list[bytes], hashes: npt.NDArray[np.uint32]) -> Mask:
        """See Chosen."""
        return self._of(column_of([key[end_of_prefix(key) :] for key in ledger_keys]).strings())

    def _of(self, keys: Strings) -> Mask:
        found = np.zeros(len(keys.lengths), np.bool_)
        for span in self.spans:
            found |= span.rows(keys)
        return found


class Asked(NamedTuple):
    """What a scan is asked for: ranges, in order, and which of their rows; None: all."""

    ranges: list[Bounds]
    chosen: Chosen | None


def in_one_pass(rows: int, buckets: int) -> bool:
    """Whether one pass over so many rows takes less time than a search in each of the buckets."""
    return rows < buckets * _ROWS_A_BUCKET


def of_all_buckets(
    tag: int, spans: Sequence[Span], prefixes: Collection[bytes], rows: int
) -> Asked:
    """How to ask for the keys of some spans in all buckets of a type, whose prefixes these are; it
    has about so many rows. Each of the spans costs, either way."""
    if spans and in_one_pass(rows, len(prefixes)):
        return Asked([of_type(tag)], OfSpans(spans))
    return Asked([bounds(each, *span, False) for span in spans for each in sorted(prefixes)], None)
