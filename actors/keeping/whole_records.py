"""Finds what can be read of a damaged journal file, and what it lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.actors.keeping.lost_records import Lost
from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_windows import read_windows, verify_windows
from octavo.files.journal.sparse_offsets import numbers_of
from octavo.manifest import recovery
from octavo.manifest.journal_manifest import JournalEntry


@dataclass(slots=True)
class Whole:
    """The parts of a journal file that could be read."""

    path: str
    base: int
    seed: int
    view: memoryview
    trailer: cdb.Trailer | None = None
    numbers: frozenset[int] | None = None  # numbers with a record; None: the offsets are damaged
    origin: cdb.Origin | None = None
    faults: list[str] = field(default_factory=list)


def read_whole(disk: Disk, file: str, base: int, seed: int) -> Whole:
    """Read a sealed file, comparing every checksum of it."""
    view = memoryview(disk.map(file))
    whole = Whole(file, base, seed, view)
    try:
        cdb.read_header(view[: cdb.RECORDS_AT], file)
    except Corruption as wrong:
        whole.faults.append(str(wrong))
    try:
        whole.trailer = cdb.trailer_of(view, file)
    except Corruption as wrong:
        whole.faults.append(str(wrong))
    trailer = whole.trailer
    try:  # the origin has a checksum of its own, whatever else is damaged
        whole.origin = cdb.read_origin(view, trailer, file)
    except Corruption as wrong:
        if trailer is not None:
            whole.faults.append(str(wrong))
    if trailer is None:
        return whole
    try:
        offsets = cdb.read_offsets(view[trailer.offsets_at :], trailer, file)
        # In a file that was compacted often, numbers reach far, and few of them have a record.
        numbers = list(numbers_of(offsets, 0, len(offsets) - 1))
        whole.numbers = frozenset(numbers)
        cdb.verify_tables(view, trailer, file)
        read_windows(view, trailer, file)
    except Corruption as wrong:
        whole.faults.append(str(wrong))
        return whole
    for number in numbers:
        at, end = offsets[number], offsets[number + 1]
        try:
            record.decode(view[at:end], seed ^ at, 0, file, at)
        except Corruption as wrong:
            whole.faults.append(str(wrong))
    if not whole.faults:
        try:
            verify_windows(view, trailer, file)
        except Corruption as wrong:
            whole.faults.append(str(wrong))
    return whole


HEADERLESS = "nothing is left of its header"
"""Why a record is lost if only its number is known."""


def lost_of(
    whole: Whole,
    last: int,
    entry: JournalEntry | None,
    found: list[Found],
    damaged: list[Found],
) -> list[Lost]:
    """The lost records: those the file had, up to the number ``last``, that are not whole."""
    lost = []
    file, base = whole.path, whole.base
    there = {head.relative_sqn for _, head in found}
    known = {head.relative_sqn: head for _, head in damaged}
    wanted = whole.numbers
    gaps = whole.origin is not None if entry is None else entry.count <= last
    if wanted is None and (gaps or last > len(whole.view) // record.FIXED_BYTES):
        # A compacted file has gaps, and only their number tells them from losses.
        wanted = frozenset(known)
        missing = 0 if entry is None else entry.count - len(there) - len(known)
        if missing > 0:
            why = f"{missing} records up to sqn {base + last} are gone; which, nothing tells"
            lost.append(Lost(base, file, why))
    elif wanted is None:
        wanted = frozenset(range(last + 1))
    for number in sorted(wanted - there):
        told = known.get(number)
        if told is None:
            lost.append(Lost(base + number, file, HEADERLESS))
        else:
            lost.append(Lost(base + number, file, "its value is damaged", told.bucket, told.key))
    return lost


Found = tuple[int, record.Header]
"""Where a record stands, and its header."""


def records_of(whole: Whole) -> tuple[list[Found], list[Found]]:
    """Return the records that are whole, and those of which only the header is. Records that the
    offsets, if they can be read, do not list are left out."""
    view, seed = whole.view, whole.seed
    end = whole.trailer.tables_at if whole.trailer is not None else len(view)
    found: list[Found] = []
    damaged: list[Found] = []
    newest = -1
    at = cdb.RECORDS_AT
    while at < end:
        try:
            head = record.parse_header(view[at : at + record.MAX_HEADER_BYTES], seed ^ at, end - at)
        except record.NotARecord:
            at = cdb.search(view, at + 1, end, seed)
            continue
        number = head.relative_sqn
        stop = at + head.header_bytes + record.SUMS_BYTES + head.value_bytes
        told = whole.numbers is None or number in whole.numbers
        if told and newest < number <= recovery.HIGHEST:
            newest = number
            try:
                record.checked_value(view[at:stop], head, "", at)
                found.append((at, head))
            except Corruption:
                damaged.append((at, head))
        at = stop
    return found, damaged


def broken_batches(found: list[Found]) -> set[int]:
    """The first numbers of the batches that lack a record."""
    sizes: dict[int, list[int]] = {}
    for _, head in found:
        if head.batch is not None:
            sizes.setdefault(head.relative_sqn - head.batch[0], []).append(head.batch[1])
    return {first for first, each in sizes.items() if len(each) != each[0]}


def lost_of_unsealed(whole: Whole) -> list[Lost]:
    """The records that a file without tables lost before the last one that an opening takes from
    it. A batch at the end that is not whole was never acknowledged."""
    found, damaged = records_of(whole)
    broken = broken_batches(found)
    taken: list[Found] = []
    dropped: dict[int, record.Header] = {}
    for at, head in found:
        number = head.relative_sqn
        if head.batch is not None and number - head.batch[0] in broken:
            dropped[number] = head
        else:
            taken.append((at, head))
    if not taken:
        return []
    lost = lost_of(whole, taken[-1][1].relative_sqn, None, taken, damaged)
    for place, each in enumerate(lost):
        if (gone := dropped.get(each.sqn - whole.base)) is not None:
            why = "its batch is not whole"
            lost[place] = Lost(each.sqn, each.file, why, gone.bucket, gone.key)
    return lost
