"""Yields live rows of any number of buckets in parts, each with what is asked of it: one pass, in
which a bucket costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.actors.reader import Reader
from octavo.actors.reading import bucket_names
from octavo.actors.scanning.batch_values import BatchValues, few_a_file
from octavo.actors.scanning.read_values import read_values
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import bounds, of_type
from octavo.files.ledger.chosen_rows import Asked, Span, of_all_buckets
from octavo.files.ledger.head import Head
from octavo.files.ledger.live_batches import Batch, buckets_of, heads_of, keys_of, parts_of

_PART_ROWS, _PART_BYTES = 1 << 13, 4 << 20
"""Rows, and bytes, of a part at most, unless a single row has more."""


def to_ask(reader: Reader, tag: int, bucket: bytes | None, span: Span) -> Asked:
    """The ledger keys of a span of keys in a bucket or (None) in all buckets of a type, which is
    O(buckets) unless the span is all keys. Raises Corruption."""
    if bucket is not None:
        return Asked([bounds(ledger_key.prefix(tag, bucket), *span, False)], None)
    if span == Span():
        return Asked([of_type(tag)], None)
    prefixes = reader.fronts(of_type(tag))
    return of_all_buckets(tag, [span], prefixes, bucket_names.most_rows(reader.view))


class RowPart:
    """Some rows in order. Only what is asked for is made."""

    def __init__(self, reader: Reader, located: BatchValues, rows: Batch, of: Batch) -> None:
        self._reader, self._located, self._rows, self._of = reader, located, rows, of

    def runs(self) -> Iterator[tuple[int, bytes, int, int]]:
        """Yield (tag, bucket, low, high): rows [low, high) are of this bucket."""
        for prefix, low, high in buckets_of(self._rows):
            tag, bucket, _ = ledger_key.split(prefix)
            yield tag, bucket, low, high

    def buckets(self) -> list[bytes]:
        """The name of the bucket of each row."""
        return [bucket for _, bucket, low, high in self.runs() for _ in range(low, high)]

    def keys(self) -> list[bytes]:
        """The key of each row."""
        return keys_of(self._rows)

    def heads(self) -> list[Head]:
        """The head of each row."""
        return heads_of(self._rows)

    def values(self) -> Iterator[bytes]:
        """Yield the value of each row, checksums verified. If one cannot be read, those before it
        come first. Raises Corruption, SnapshotExpired, Closed."""
        if few_a_file(self._reader, self._rows):
            yield from self._one_by_one()
            return
        located = self._located.locate(self._rows, of=self._of)
        low = 0
        while low < len(located):
            found = located.values(low, len(located))
            yield from found
            low += len(found)

    def _one_by_one(self) -> Iterator[bytes]:
        keys = self.keys()
        sqns = self._rows.columns.sqns[self._rows.rows].tolist()
        for tag, bucket, low, high in self.runs():
            while low < high:
                found = read_values(self._reader, bucket, keys[low:high], sqns[low:high], tag)
                yield from found
                low += len(found)


def row_parts(reader: Reader, asked: Asked, *, by_values: bool) -> Iterator[RowPart]:
    """Yield the live rows that are asked for. ``by_values``: their values will be asked for, too,
    so that a part has few bytes of them. Some us a row. Raises Corruption, SnapshotExpired,
    Closed."""
    located = BatchValues(reader)
    for bound in asked.ranges:
        for whole in reader.batches(bound, asked.chosen, heads=True, hashes=False):
            for rows in parts_of(whole, _PART_ROWS, _PART_BYTES, by_values=by_values):
                reader.step()
                yield RowPart(reader, located, rows, whole)
