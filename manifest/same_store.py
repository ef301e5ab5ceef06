"""Checks whether a ledger is of the journal beside it: no file of either says of which store it is,
and a folder can be copied, or restored, into the wrong one.

A row of the ledger names a record by its sqn, and no store gives a sqn twice. So a few rows of the
newest files are held against the records that they name: in a ledger of another store, or of a
copy of this one that was written to since, keys or write times differ. If a record is gone, or
either of the two cannot be read, that shows nothing; damage is reported when it is read. Nor can a
ledger have an sqn that its journal never gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from octavo.files.door.disk import Disk
from octavo.files.errors import OctavoError
from octavo.files.journal import cdb, record
from octavo.files.ledger.sst import Sst
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.ledger_entry import LedgerEntry, refuse_another
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.recovery import Tail

_MOST_FILES = 3
_MOST_SEARCHED = 1 << 17
"""Rows of a file in which the newest one is looked for: 30 us."""
_MOST_ROWS = 3
_MORE_ROWS = 64
"""Of a file, where those looked at first are of records that the journal does not have."""

_MOST_BYTES = 1 << 14
"""Of a record: one with longer keys and metadata shows nothing."""


class Folders(NamedTuple):
    """Where ledger and journal are."""

    disk: Disk
    ledger: str
    journal: str


def beyond(ledger: LedgerManifest, journal: JournalManifest) -> str:
    """What shows that the ledger has sqns that the journal never gave; "" where nothing does.
    Nothing of the journal's manifest may have been lost."""
    has_more = ledger.persisted_sqn >= journal.ceiling > 1
    return "has more than the journal ever had" if has_more else ""


def difference(
    where: Folders, ledger: LedgerManifest, journal: JournalManifest, tails: Sequence[Tail]
) -> str:
    """What shows that the ledger is of another journal than this; "" where nothing does. Some 0.2
    ms: three rows of a file at most, and of another file only if those showed nothing."""
    files: list[JournalEntry | Tail] = [*journal.entries, *tails]
    oldest = min([file.base_sqn for file in files], default=1)
    held = range(oldest, max([file.last_sqn for file in files], default=0) + 1)
    some = [e for e in ledger.entries if e.max_sqn >= held.start and e.min_sqn < held.stop]
    for entry in nlargest(_MOST_FILES, some, key=attrgetter("max_sqn")):
        agreed = False
        for sqn, agreed in islice(_compared(where, entry, held, journal, tails), _MOST_ROWS):
            if not agreed:
                return (
                    "is of another store, or of a copy of this one: the journal has another key, "
                    f"or time, under sqn {sqn}"
                )
        if agreed:
            break
    return ""


def _compared(
    where: Folders,
    entry: LedgerEntry,
    held: range,
    journal: JournalManifest,
    tails: Sequence[Tail],
) -> Iterator[tuple[int, bool]]:
    """(sqn, whether the record that it names is the row's) of some rows of a file, as far as they
    and their records can be read: whoever reads damaged ones is told."""
    with suppress(OctavoError, OSError, StructError, ValueError, IndexError, OverflowError):
        for sqn, key, time_ms in _some_rows(where, entry, held):
            found = _record(where, journal, tails, sqn)
            if found is None:
                continue
            yield sqn, _is_of(found, key, time_ms)


def _some_rows(where: Folders, entry: LedgerEntry, held: range) -> Iterator[tuple[int, bytes, int]]:
    """(sqn, key without tag and bucket, write time) of the newest row of a file that is not large,
    of one in its middle and of the last one, then of some from everywhere; verified, and of sqns
    that may be in the journal. Raises Corruption, OSError."""
    sst = Sst(where.disk.map(f"{where.ledger}/{entry.name}"), entry.name)
    refuse_another(entry, sst)
    rows = [sst.rows // 2, sst.rows - 1, *range(0, sst.rows, max(sst.rows // _MORE_ROWS, 1))]
    if sst.rows <= _MOST_SEARCHED:
        rows.insert(0, _row_of(sst.sqns, min(entry.max_sqn, held.stop - 1) - entry.sqn_base))
    for row in dict.fromkeys(rows):
        if sst.sqns[row] + entry.sqn_base in held:
            key = sst.user_key(row)  # which verifies the rest of the row, too
            yield sst.sqns[row] + entry.sqn_base, key, sst.time(row)


def _row_of(sqns: memoryview, wanted: int) -> int:
    """A row that has this sqn, or else any. Makes no object a row, and does without NumPy, which
    takes longer to load than an opening."""
    width, column = sqns.itemsize, sqns.tobytes()
    number = wanted.to_bytes(width, "little")
    at = column.find(number)
    while at >= 0 and at % width:
        at = column.find(number, at + 1)
    return max(at, 0) // width


def _record(
    where: Folders, journal: JournalManifest, tails: Sequence[Tail], sqn: int
) -> record.Header | None:
    """The header of a record; None where the journal does not have it any more. Raises
    IndexError, ValueError, struct.error or Corruption where it cannot be read, OSError."""
    held: JournalEntry | Tail | None = journal.find(sqn)
    offsets: Sequence[int]
    if isinstance(held, JournalEntry):
        path = f"{where.journal}/{held.name}"
        view = memoryview(where.disk.map(path))
        trailer = cdb.read_trailer(bytes(view[-cdb.TRAILER_BYTES :]), len(view), path)
        # Not verified, which would take a pass over them: a record tells its own number.
        offsets = cdb.unverified_offsets(view[trailer.offsets_at :], trailer, path)
    else:
        held = next((tail for tail in tails if tail.base_sqn <= sqn <= tail.last_sqn), None)
        if held is None:
            return None
        path, offsets = f"{where.journal}/{held.name}", held.offsets
    relative = sqn - held.base_sqn
    at, end = offsets[relative], offsets[relative + 1]
    if at == end:
        return None
    data = where.disk.pread(path, min(end - at, _MOST_BYTES), at)  # its owner may cut a map of it
    with suppress(record.NotARecord):
        found = record.parse_header(data, held.seed ^ at, end - at)
        return found if found.relative_sqn == relative else None
    return None


def _is_of(found: record.Header, key: bytes, time_ms: int) -> bool:
    """Whether a row with this key may be of the record: its object's, or an index entry's, whose
    key ends in the object's."""
    if key != found.key and not key.endswith(bytes((found.tag,)) + found.key):
        return False
    return found.kind != record.PUT or time_ms == found.time_ms
