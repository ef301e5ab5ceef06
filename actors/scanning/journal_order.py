"""Yields live versions in the order in which they were written.

One pass over the ledger's columns finds which sequence numbers are live; they are kept as bits, one
page for each 65,536 numbers. Then the journal is read from front to back: its records have bucket,
key and value themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import STEP, Reader
from octavo.actors.reading.values_ahead import ask_for_heads, ask_in_order
from octavo.actors.scanning.batch_values import OpenJournal
from octavo.files.errors import Corruption
from octavo.files.jobs.live_bits import Marking
from octavo.files.journal import record
from octavo.files.journal.journal_values import puts_of, spans
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints
from octavo.files.kernels.cold_pages import COLD
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.head import Head

_STRETCH_ROWS = 1024
_STRETCH_BYTES = 1 << 20


def live_sqns(reader: Reader, bound: Bounds, since: int) -> Iterator[Ints]:
    """Yield the sequence numbers above ``since`` of the live rows of a range of ledger keys,
    ascending.

    Some 0.1 us a row before the first is given. Memory: 8 KiB for each 65,536 consecutive
    numbers of which any is live. Raises Corruption.
    """
    live = Marking()
    for batch in reader.batches(bound, heads=False, hashes=False):
        sqns = batch.columns.sqns[batch.rows].astype(np.int64)
        live.add(sqns[sqns > since])
    for page in live.taken():
        reader.step()
        yield page


def items(reader: Reader, bound: Bounds, since: int) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Yield (sqn, bucket, key, value) of the live rows of a range of ledger keys, by sqn, ``since``
    exclusive. See Snapshot.items_by_sqn."""
    journal = OpenJournal()
    bases, files = reader.view.journal
    starts = np.array(bases, dtype=np.int64)
    for sqns in live_sqns(reader, bound, since):
        which = np.maximum(np.searchsorted(starts, sqns, side="right") - 1, 0)
        at = 0
        while at < len(sqns):
            reader.step()
            file = files[int(which[at])]
            with reader.reading():
                mapped, offsets = journal.open(file)
                end = at + int(np.searchsorted(which[at : at + _STRETCH_ROWS], which[at], "right"))
                begins, ends = spans(offsets, sqns[at:end] - file.base)
                count = _few(ends - begins)
                COLD.ahead(mapped, begins[:count], ends[:count])
                if COLD.left and ends[count - 1] - begins[0] < 2 * _STRETCH_BYTES:
                    # Most of it is live: have the next stretch read while this one is looked at.
                    ask_in_order(file, int(ends[count - 1]), int(ends[count - 1]) + _STRETCH_BYTES)
                found = puts_of(
                    mapped, offsets, sqns[at : at + count] - file.base, file.seed, _STRETCH_BYTES
                )
            end = at + len(found)
            for sqn, put in zip(sqns[at:end].tolist(), found, strict=True):
                yield sqn, *(put or _with_care(reader, file, sqn))
            at = end


def _with_care(reader: Reader, file: JournalFile, sqn: int) -> tuple[bytes, bytes, bytes]:
    """Bucket, key and value of a record that the short way did not give; raises what is wrong."""
    with reader.reading():
        whole = file.read(sqn)
        if whole.kind != record.PUT:
            raise Corruption(file.path, 0, f"sqn {sqn} is no put, though the ledger says it is")
        return whole.bucket, whole.key, whole.value


def heads(reader: Reader, bound: Bounds, since: int) -> Iterator[tuple[bytes, bytes, Head]]:
    """Yield (bucket, key, Head) of the live rows of a range of ledger keys, by sqn, ``since``
    exclusive. See Snapshot.heads_by_sqn."""
    file_of = reader.view.journal.file_of
    for page in live_sqns(reader, bound, since):
        sqns = page.tolist()
        low = 0
        while low < len(sqns):
            reader.step()
            with reader.reading():
                ask_for_heads(reader.view.journal, page[low : low + STEP])
                found = _headers(file_of, sqns[low : low + STEP])
            low += len(found)
            for sqn, header in found:
                head: Head | None = Head(
                    sqn, header.size, header.metadata, header.time_ms, header.expiry_ms or None
                )
                if header.tag != ledger_key.STANDARD:
                    # The ledger's metadata may have been computed anew since.
                    head = reader.head(ledger_key.prefix(header.tag, header.bucket) + header.key)
                if head is not None:
                    yield header.bucket, header.key, head


def _headers(
    file_of: Callable[[int], JournalFile], sqns: list[int]
) -> list[tuple[int, record.Header]]:
    """The first of these sqns with their headers: as many as are not too large together."""
    found: list[tuple[int, record.Header]] = []
    left = _STRETCH_BYTES
    for sqn in sqns:
        header = file_of(sqn).header(sqn)
        found.append((sqn, header))
        left -= len(header.key) + len(header.metadata)
        if left <= 0:
            break
    return found


def _few(lengths: Ints) -> int:
    """How many of these records, at least one, make up a stretch that is not too long."""
    return max(int(np.searchsorted(np.cumsum(lengths), _STRETCH_BYTES, side="right")), 1)
