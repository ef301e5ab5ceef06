"""Journal files: append-only, and stock CDB once sealed.

    at       size
    0        2048  CDB pointers: 256 x (position, slots), zero until the file is sealed
    2048       66  first CDB pair: key "octavo", value = the file header below
    2114           records (record.py), in the order of their sequence numbers, dense
    R              CDB hash tables: 256 tables of (hash, position) slots, half full
    T              record offsets: u32 x (count + 1); record i begins at offset i and ends at or
                   before offset i + 1; where both are equal there is no record i (it was damaged,
                   or belongs to a batch that never became whole, or compaction dropped it).
                   Where few records are left, a sparse table instead: see sparse_offsets.py
    T+...          checksums of windows: xxh3-64 of each 64 KiB from 2114 up to R (the last one is
                   shorter), seed = file seed ^ where it begins; one more, of those before,
                   seed = file seed
    ...        48  origin, only in a file that compaction made
    ...        96  trailer

    file header (52): magic 8s, version u16, reserved u16, epoch u64, base sqn u64, seed u64,
                      created ms u64, xxh3-64 of the 44 bytes before, seed = 0
    origin (48):      rank u64, first sqn of the run u64, last sqn of the run u64, clean sqn u64,
                      horizon u64, xxh3-64 of the 40 before
    trailer (96):     magic 8s, version u16, flags u16, count u32, seed u64, first ms u64,
                      last ms u64, R u64, T u64, xxh3-64 of [0, 2048), xxh3-64 of [R, T),
                      xxh3-64 of the offsets, live u32, reserved u32, xxh3-64 of the 88 before;
                      first and last ms are the write times of the first and the last record, but
                      in the last file that a compaction writes last ms is the latest write time
                      of all records that it kept or dropped

Flags of the trailer: 1 the offsets are sparse, 2 there is an origin, 4 there are checksums of
windows (journal_windows.py); version 1 has none of them, version 2 no windows.

All little-endian. ``base`` is where the relative numbers of the records begin; a manifest may
give a file another base than the one it was written with, so files made elsewhere are adopted
without rewriting. cdblib and tinycdb read pointers, records and tables and never look behind
them, where our trailer is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.journal import record
from octavo.files.journal.runs import Run, runs
from octavo.files.journal.sparse_offsets import SparseOffsets
from octavo.files.kernels.cold_pages import ask_to_read

POINTERS_BYTES = 2048
MAX_FILE_BYTES = (1 << 32) - 1
VERSION = 3
_HEADER_VERSION = 1

HEADER_KEY = b"octavo"
_HEADER_MAGIC = b"OCTAVOJ\n"
_TRAILER_MAGIC = b"OCTAVOT\n"
_PAIR = Struct("<II")
_HEADER = Struct("<8sHHQQQQ")
_TRAILER = Struct("<8sHHIQQQQQQQQII")
_ORIGIN = Struct("<5Q")
_U64 = Struct("<Q")
HEADER_BYTES = _HEADER.size + 8
TRAILER_BYTES = _TRAILER.size + 8
ORIGIN_BYTES = _ORIGIN.size + 8
assert HEADER_BYTES == 52  # the layouts above, not guards
assert TRAILER_BYTES == 96
_HEADER_FRONT = _PAIR.pack(len(HEADER_KEY), HEADER_BYTES) + HEADER_KEY
RECORDS_AT = POINTERS_BYTES + len(_HEADER_FRONT) + HEADER_BYTES

WINDOW_BYTES = 1 << 16
"""This many bytes of records share a checksum in a sealed file."""

TABLE_BYTES_PER_RECORD = 16 + 4
"""What sealing adds for each record: two CDB slots and an offset."""
SEALING_BYTES = 64
"""More than a sealed file needs for a record besides its header and value."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a journal file says of itself in its first pair."""

    epoch: int
    base_sqn: int
    seed: int
    created_ms: int


def beginning(header: FileHeader) -> bytes:
    """The first RECORDS_AT bytes of a new journal file."""
    fixed = _HEADER.pack(
        _HEADER_MAGIC,
        _HEADER_VERSION,
        0,
        header.epoch,
        header.base_sqn,
        header.seed,
        header.created_ms,
    )
    return b"".join(
        (
            bytes(POINTERS_BYTES),
            _HEADER_FRONT,
            fixed,
            _U64.pack(xxh3(fixed)),
        )
    )


def read_header(head: bytes | memoryview, file: str) -> FileHeader:
    """Parse the first RECORDS_AT bytes. Raises Corruption or UnsupportedFormat."""
    at = RECORDS_AT - HEADER_BYTES
    if len(head) < RECORDS_AT:
        raise Corruption(file, len(head), "journal file header cut short")
    if bytes(head[POINTERS_BYTES:at]) != _HEADER_FRONT:
        raise Corruption(file, POINTERS_BYTES, "journal file header: not a CDB pair of ours")
    magic, version, _, epoch, base, seed, created = _HEADER.unpack_from(head, at)
    (found,) = _U64.unpack_from(head, at + _HEADER.size)
    expected = xxh3(bytes(head[at : at + _HEADER.size]))
    if magic != _HEADER_MAGIC or found != expected:
        raise Corruption(file, at, "journal file header", expected=expected, found=found)
    if version != _HEADER_VERSION:
        raise UnsupportedFormat(
            f"{file}: journal file of version {version}; "
            f"this release knows version {_HEADER_VERSION}"
        )
    return FileHeader(epoch, base, seed, created)


# ---------------------------------------------------------------- sealed files


_SPARSE = 1
_COMPACTED = 2
_WINDOWS = 4


class Origin(NamedTuple):
    """What a compacted file says of the compaction that made it, for when no manifest does."""

    rank: int
    """Higher than that of every file whose records went into this one; a sealed log has 0."""
    run_base: int
    run_last: int
    """From ``run_base`` on, both inclusive: the sqns of all files that this compaction made."""
    clean_sqn: int
    """As of this sqn no put in the file was superseded; 0: not known."""
    horizon: int
    """The highest sqn of a record that compaction ever dropped."""


def origin_bytes(origin: Origin) -> bytes:
    """The ORIGIN_BYTES before the trailer."""
    fixed = _ORIGIN.pack(*origin)
    return fixed + _U64.pack(xxh3(fixed))


def read_origin(buffer: bytes | memoryview, trailer: Trailer | None, file: str) -> Origin | None:
    """The origin of a sealed file, which is the whole buffer; None: no compaction made it.
    ``trailer``: None where it is damaged; the origin is then looked for. Raises Corruption."""
    if trailer is not None and not trailer.compacted:
        return None
    at = len(buffer) - TRAILER_BYTES - ORIGIN_BYTES
    if at < RECORDS_AT:
        raise Corruption(file, 0, "origin: the file is cut short")
    fixed = bytes(buffer[at : at + _ORIGIN.size])
    (expected,) = _U64.unpack_from(buffer, at + _ORIGIN.size)
    found = xxh3(fixed)
    if found != expected:
        raise Corruption(file, at, "origin", expected=expected, found=found)
    made = Origin(*_ORIGIN.unpack(fixed))
    if made.rank >> 62:
        raise Corruption(file, at, "origin: no compaction comes so far", found=made.rank)
    return made


def trailer_bytes(trailer: Trailer) -> bytes:
    """The last TRAILER_BYTES of a sealed file."""
    flags = trailer.sparse * _SPARSE | trailer.compacted * _COMPACTED
    flags |= trailer.windows * _WINDOWS
    fixed = _TRAILER.pack(
        _TRAILER_MAGIC,
        VERSION if trailer.windows else 2 if flags else 1,
        flags,
        trailer.count,
        trailer.seed,
        trailer.first_ms,
        trailer.last_ms,
        trailer.tables_at,
        trailer.offsets_at,
        trailer.pointers_sum,
        trailer.tables_sum,
        trailer.offsets_sum,
        trailer.live,
        0,
    )
    return fixed + _U64.pack(xxh3(fixed))


@dataclass(frozen=True, slots=True)
class Trailer:
    """Where things stand in a sealed file, its own checksum verified."""

    count: int
    live: int
    seed: int
    first_ms: int
    last_ms: int
    tables_at: int
    offsets_at: int
    pointers_sum: int
    tables_sum: int
    offsets_sum: int
    sparse: bool = False
    compacted: bool = False
    windows: bool = False

    @property
    def windows_at(self) -> int:
        """Where the checksums of windows begin, or would."""
        return self.offsets_at + self.offsets_bytes

    @property
    def windows_bytes(self) -> int:
        """Bytes of the checksums of windows; 0 where there are none."""
        return windows_bytes(self.tables_at) if self.windows else 0

    @property
    def offsets_bytes(self) -> int:
        """Bytes of the table of offsets."""
        return 4 * (2 * self.live + 1 if self.sparse else self.count + 1)


def windows_bytes(records_end: int) -> int:
    """Bytes of the checksums of windows, for records that end at ``records_end``."""
    return 8 * (-(-(records_end - RECORDS_AT) // WINDOW_BYTES) + 1)


def read_trailer(tail: bytes, file_bytes: int, file: str) -> Trailer:
    """Parse the last TRAILER_BYTES of a sealed file. Raises Corruption or UnsupportedFormat."""
    at = file_bytes - TRAILER_BYTES
    if at < RECORDS_AT or len(tail) != TRAILER_BYTES:
        raise Corruption(file, max(at, 0), "sealed journal file cut short")
    (found,) = _U64.unpack_from(tail, _TRAILER.size)
    expected = xxh3(tail[: _TRAILER.size])
    fields = _TRAILER.unpack_from(tail)
    magic, version, flags, count, seed, first, last, tables_at, offsets_at, *sums, live, _ = fields
    if magic != _TRAILER_MAGIC or found != expected:
        raise Corruption(file, at, "journal trailer", expected=expected, found=found)
    if not 1 <= version <= VERSION or flags & ~(_SPARSE | _COMPACTED | _WINDOWS):
        raise UnsupportedFormat(
            f"{file}: sealed journal file of version {version}, flags {flags:#x}; "
            f"this release knows versions 1 to {VERSION}"
        )
    made = Trailer(
        count, live, seed, first, last, tables_at, offsets_at, sums[0], sums[1], sums[2],
        bool(flags & _SPARSE), bool(flags & _COMPACTED), bool(flags & _WINDOWS),
    )  # fmt: skip
    behind = made.windows_at + made.windows_bytes + made.compacted * ORIGIN_BYTES
    if not RECORDS_AT <= tables_at <= offsets_at or behind != at or live > count:
        raise Corruption(file, at, "journal trailer: positions do not fit the file")
    return made


def trailer_of(whole: memoryview, file: str) -> Trailer:
    """The trailer of the sealed file ``whole``. Raises Corruption, UnsupportedFormat."""
    return read_trailer(bytes(whole[-TRAILER_BYTES:]), len(whole), file)


def read_offsets(stored: memoryview, trailer: Trailer, file: str) -> memoryview | SparseOffsets:
    """The offsets of a sealed file as ints, sharing ``stored``'s memory, checksum verified.

    ``stored`` begins with them. One pass over 4 bytes a record. Raises Corruption.
    """
    stored = stored[: trailer.offsets_bytes]
    found = xxh3(stored)
    if found != trailer.offsets_sum or len(stored) != trailer.offsets_bytes:
        raise Corruption(
            file, trailer.offsets_at, "record offsets", expected=trailer.offsets_sum, found=found
        )
    return unverified_offsets(stored, trailer, file)


def unverified_offsets(
    stored: memoryview, trailer: Trailer, file: str
) -> memoryview | SparseOffsets:
    """As ``read_offsets``, but without comparing the checksum. O(1). Raises Corruption."""
    table = stored[: trailer.offsets_bytes].cast("I")
    if trailer.sparse:
        numbers, table = table[: trailer.live], table[trailer.live :]
    if table[0] < RECORDS_AT or table[-1] > trailer.tables_at:
        raise Corruption(file, trailer.offsets_at, "record offsets do not fit the file")
    return SparseOffsets(numbers, table, trailer.count) if trailer.sparse else table


def sealed_offsets(
    buffer: bytes | memoryview | mmap, file: str
) -> tuple[Trailer, memoryview | SparseOffsets]:
    """(trailer, offsets) of a sealed file, which is the whole buffer. Raises Corruption."""
    view = memoryview(buffer)
    trailer = trailer_of(view, file)
    ask_to_read(buffer, trailer.offsets_at, trailer.offsets_at + trailer.offsets_bytes)
    return trailer, read_offsets(view[trailer.offsets_at :], trailer, file)


def verify_tables(buffer: bytes | memoryview, trailer: Trailer, file: str) -> None:
    """Check the CDB pointers and tables against the trailer. Raises Corruption. O(tables)."""
    found = xxh3(buffer[:POINTERS_BYTES])
    if found != trailer.pointers_sum:
        raise Corruption(file, 0, "CDB pointers", expected=trailer.pointers_sum, found=found)
    found = xxh3(buffer[trailer.tables_at : trailer.offsets_at])
    if found != trailer.tables_sum:
        raise Corruption(
            file, trailer.tables_at, "CDB tables", expected=trailer.tables_sum, found=found
        )


# ---------------------------------------------------------------- scanning

AHEAD_BYTES = 512 << 10
"""The most zeros that a file may have behind its records while it is being written."""


@dataclass(slots=True)
class Damage:
    """A stretch [start, end) of a journal file that holds no whole record."""

    start: int
    end: int
    what: str


def search(buffer: memoryview, at: int, end: int, seed: int) -> int:
    """Position of the next whole record header at or after ``at``; ``end`` if there is none."""
    step = 1 << 20
    while at < end:
        window = bytes(buffer[at : min(end, at + step + 18)])
        found = window.find(record.MAGIC, 16)
        while found >= 0:
            start = at + found - 16
            try:
                record.parse_header(
                    buffer[start : start + record.MAX_HEADER_BYTES], seed ^ start, end - start
                )
                return start
            except record.NotARecord:
                found = window.find(record.MAGIC, found + 1)
        at += step
    return end


class Scanned(NamedTuple):
    """A whole record that a scan found: everything but its value, which was verified."""

    at: int
    end: int
    relative_sqn: int
    kind: int
    tag: int
    bucket: bytes
    key: bytes
    expiry_ms: int
    batch: tuple[int, int] | None
    index_changes: bytes = b""


def scan(
    buffer: bytes | mmap, start: int, end: int, seed: int, damages: list[Damage]
) -> Iterator[Scanned]:
    """Every whole record in [start, end), one by one. Otherwise as scan_runs."""
    for found in scan_runs(buffer, start, end, seed, damages):
        if isinstance(found, Scanned):
            yield found
        else:
            yield from each_of(found)


def each_of(run: Run) -> Iterator[Scanned]:
    """The records of a run, which has one at the least, one by one."""
    expiries, indexes, batches = run.expiries, run.indexes, run.batches
    ends = [*run.starts[1:], run.end]
    each = zip(run.starts, ends, run.keys, run.families, strict=True)
    for number, (at, stop, key, (kind, tag, bucket)) in enumerate(each, run.relative_sqn):
        yield Scanned(
            at, stop, number, kind, tag, bucket, key, expiries.get(number, 0), batches.get(number),
            indexes.get(number, b""),
        )  # fmt: skip


def scan_runs(
    buffer: bytes | mmap, start: int, end: int, seed: int, damages: list[Damage]
) -> Iterator[Scanned | Run]:
    """Every whole record in [start, end), header and value verified: most in runs.

    What is not a whole record is stepped over and listed in ``damages``; a last entry there that
    reaches ``end`` is a torn tail. O(bytes), about a microsecond a small record. Raises
    UnsupportedFormat.
    """
    view = memoryview(buffer)
    at = start
    while at < end:
        for run in runs(buffer, at, end, seed):
            yield run
            at = run.end
        if at < end:
            found, at = _scan_one(view, at, end, seed, damages)
            if found is not None:
                yield found


def _scan_one(
    view: memoryview, at: int, end: int, seed: int, damages: list[Damage]
) -> tuple[Scanned | None, int]:
    """Parse one record that is in no run, or note damage: (record or None, where to go on)."""
    stop = at
    try:
        head = record.parse_header(view[at : at + record.MAX_HEADER_BYTES], seed ^ at, end - at)
        value_at = at + head.header_bytes + record.SUMS_BYTES
        stop = value_at + head.value_bytes
        if xxh3(view[value_at:stop], head.hash64) & record.LOW_32 != head.value_sum:
            raise record.NotARecord("value checksum")
    except record.NotARecord as wrong:
        # A whole header tells how far to step; without one, look for the next mark.
        follows = stop if stop > at else search(view, at + 1, end, seed)
        damages.append(Damage(at, follows, str(wrong)))
        return None, follows
    return Scanned(
        at,
        stop,
        head.relative_sqn,
        head.kind,
        head.tag,
        head.bucket,
        head.key,
        head.expiry_ms,
        head.batch,
        head.index_changes,
    ), stop
