"""Values of a batch's rows, read in the order of the journal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from mmap import mmap

from octavo.actors.journal_file import JournalFile
from octavo.actors.read_values import Opened, read_values
from octavo.actors.reader import Reader
from octavo.files import ledger_key
from octavo.files.arrays import np
from octavo.files.byte_strings import Ints, as_list, copy, gather, in_order, lengths_of, offsets_of
from octavo.files.journal_values import Right, places_of, values_of
from octavo.files.journal_windows import RecordSums
from octavo.files.lifecycle import State
from octavo.files.live_batches import Batch, buckets_of, strings_of
from octavo.files.rows import ByteColumn

Value = bytes | memoryview
_ROWS_A_LENGTH = 16
"""So many values of each length make it worth while to move them by length."""


class OpenJournal:
    """Maps of journal files, for one reader.

    Of the file that is being written it keeps the map and the offsets of one moment: all that the
    reader may see is there already.
    """

    def __init__(self) -> None:
        self._growing: dict[JournalFile, Opened] = {}
        self._sums: dict[JournalFile, RecordSums] = {}

    def right(self, file: JournalFile, mapped: mmap | bytes) -> Right:
        """What says which records of the file are as they were written; for this reader, that it
        was looked at is kept in mind."""
        known = self._sums.get(file)
        if known is None or known.mapped is not mapped:
            known = self._sums[file] = RecordSums(mapped, file.seed)
        return known.right

    def open(self, file: JournalFile) -> Opened:
        """The file's map and its offsets. Raises Corruption."""
        growing = self._growing.get(file)
        if growing is None and file.state is State.WRITING:
            # A copy: while somebody has a view of an array it cannot grow.
            offsets = memoryview(file.offsets[:])
            growing = self._growing[file] = file.growing.up_to(offsets[-1]), offsets
        if growing is not None:
            return growing
        return file.ensure_open()


class BatchValues:
    """Reads values for one reader, many at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._journal = OpenJournal()

    def read(self, batch: Batch) -> list[Value]:
        """The value of each row, in their order, both checksums verified.

        Raises Corruption. Memory: what is compressed or small; the rest are views of maps.
        """
        sqns = batch.columns.sqns[batch.rows].astype(np.int64)
        out: list[Value] = []
        for prefix, low, high in buckets_of(batch):
            tag, bucket, _ = ledger_key.split(prefix)
            keys = strings_of(batch.columns.keys, batch.rows[low:high])
            found = self.found(keys, sqns[low:high], tag, bucket)
            if None in found:
                self._with_care(found, keys, sqns[low:high], tag, bucket)
            out += found  # type: ignore[arg-type]  # none is None any more
        return out

    def column(self, batch: Batch) -> ByteColumn | None:
        """The values of all rows end to end, in their order, both checksums verified: one copy and
        some 0.7 us each. None where some have to be gone the long way, see ``read``: they are
        compressed, in memory's file only, or of too many lengths to be moved by length."""
        sqns = batch.columns.sqns[batch.rows].astype(np.int64)
        count = len(sqns)
        lengths, starts = np.zeros(count, np.int64), np.zeros(count, np.int64)
        parts: list[tuple[mmap | bytes, Ints]] = []
        with self._reader.reading():
            for prefix, low, high in buckets_of(batch):
                tag, bucket, _ = ledger_key.split(prefix)
                keys = strings_of(batch.columns.keys, batch.rows[low:high])
                for file, rows, relative in self._by_file(sqns[low:high]):
                    mapped, offsets = self._journal.open(file)
                    wanted, right = _picked(keys, rows), self._journal.right(file, mapped)
                    found = places_of(mapped, offsets, relative, right, tag, bucket, wanted)
                    if not bool((found.good & (found.raw_bytes < 0)).all()):
                        return None
                    rows = rows + low
                    lengths[rows], starts[rows] = found.lengths, found.at
                    parts.append((mapped, rows))
        if np.count_nonzero(np.bincount(lengths)) * _ROWS_A_LENGTH > count:
            return None
        goals = offsets_of(lengths)
        if len(parts) == 1:
            whole = in_order(np.frombuffer(parts[0][0], dtype=np.uint8), starts, lengths)
            if whole is not None:
                return ByteColumn(whole, goals)
        blob = np.empty(int(goals[-1]), dtype=np.uint8)
        for mapped, rows in parts:
            source = np.frombuffer(mapped, dtype=np.uint8)
            rows = np.sort(rows)  # so that what is written is written from front to back
            copy(source, starts[rows], lengths[rows], blob, goals[rows])
        return ByteColumn(blob, goals)

    def _by_file(self, sqns: Ints) -> Iterator[tuple[JournalFile, Ints, Ints]]:
        """(file, which of the rows are in it, their relative numbers, ascending)."""
        order = np.argsort(sqns)
        ordered = sqns[order]
        bases, files = self._reader.view.journal
        cuts = np.searchsorted(ordered, np.array(bases, dtype=np.int64)).tolist()
        for file, (at, end) in zip(files, pairwise([0, *cuts[1:], len(order)]), strict=True):
            if at < end:
                yield file, order[at:end], ordered[at:end] - file.base

    def found(self, keys: ByteColumn, sqns: Ints, tag: int, bucket: bytes) -> list[Value | None]:
        """The values of rows of one bucket, in their order; None where the long way has to be
        gone, which says what is wrong. 0.6 to 1 us a row, and 0.2 ms."""
        order: list[Ints] = []
        out: list[Value | None] = []
        with self._reader.reading():
            for file, rows, relative in self._by_file(sqns):
                mapped, offsets = self._journal.open(file)
                wanted, right = _picked(keys, rows), self._journal.right(file, mapped)
                out += values_of(mapped, offsets, relative, right, tag, bucket, wanted)
                order.append(rows)
        places = np.empty(len(sqns), dtype=np.int64)
        places[np.concatenate(order)] = np.arange(len(sqns))
        return list(map(out.__getitem__, places.tolist()))

    def _with_care(
        self, found: list[Value | None], keys: ByteColumn, sqns: Ints, tag: int, bucket: bytes
    ) -> None:
        """What did not come the short way, record by record; this says what is wrong, if so."""
        names = as_list(keys.blob.tobytes(), keys.offsets)
        for at, value in enumerate(found):
            if value is None:
                one = read_values(self._reader, bucket, [names[at]], [int(sqns[at])], tag)
                found[at] = one[0]


def _picked(keys: ByteColumn, rows: Ints) -> ByteColumn:
    return gather(keys.blob, keys.offsets[:-1][rows], lengths_of(keys.offsets)[rows])
