"""Journal files: append-only, and stock CDB once sealed.

    at       size
    0        2048  CDB pointers: 256 x (position, slots), zero until the file is sealed
    2048       66  first CDB pair: key "octavo", value = the file header below
    2114           records (record.py), in the order of their sequence numbers, dense
    R              CDB hash tables: 256 tables of (hash, position) slots, half full
    T              record offsets: u32 x (count + 1); record i begins at offset i and ends at or
                   before offset i + 1; where both are equal there is no record i (it was damaged,
                   or belongs to a batch that never became whole)
    T+...      96  trailer

    file header (52): magic 8s, version u16, reserved u16, epoch u64, base sqn u64, seed u64,
                      created ms u64, xxh3-64 of the 44 bytes before, seed = 0
    trailer (96):     magic 8s, version u16, reserved u16, count u32, seed u64, first ms u64,
                      last ms u64, R u64, T u64, xxh3-64 of [0, 2048), xxh3-64 of [R, T),
                      xxh3-64 of the offsets, live u32, reserved u32, xxh3-64 of the 88 before

All little-endian. ``base`` is where the relative numbers of the records begin; a manifest may
give a file another base than the one it was written with, so files made elsewhere are adopted
without rewriting. cdblib and tinycdb read pointers, records and tables and never look behind
them, where our trailer is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import record
from octavo.files.errors import Corruption, UnsupportedFormat

POINTERS_BYTES = 2048
MAX_FILE_BYTES = (1 << 32) - 1
VERSION = 1

_HEADER_KEY = b"octavo"
_HEADER_MAGIC = b"OCTAVOJ\n"
_TRAILER_MAGIC = b"OCTAVOT\n"
_PAIR = Struct("<II")
_HEADER = Struct("<8sHHQQQQ")
_TRAILER = Struct("<8sHHIQQQQQQQQII")
_U64 = Struct("<Q")
HEADER_BYTES = _HEADER.size + 8
TRAILER_BYTES = _TRAILER.size + 8
assert HEADER_BYTES == 52  # the layouts above, not guards
assert TRAILER_BYTES == 96
RECORDS_AT = POINTERS_BYTES + _PAIR.size + len(_HEADER_KEY) + HEADER_BYTES

TABLE_BYTES_PER_RECORD = 16 + 4
"""What sealing adds for each record: two CDB slots and an offset."""


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
        _HEADER_MAGIC, VERSION, 0, header.epoch, header.base_sqn, header.seed, header.created_ms
    )
    return b"".join(
        (
            bytes(POINTERS_BYTES),
            _PAIR.pack(len(_HEADER_KEY), HEADER_BYTES),
            _HEADER_KEY,
            fixed,
            _U64.pack(xxh3(fixed)),
        )
    )


def read_header(head: bytes | memoryview, file: str) -> FileHeader:
    """Parse the first RECORDS_AT bytes. Raises Corruption or UnsupportedFormat."""
    at = RECORDS_AT - HEADER_BYTES
    if len(head) < RECORDS_AT:
        raise Corruption(file, len(head), "journal file header cut short")
    magic, version, _, epoch, base, seed, created = _HEADER.unpack_from(head, at)
    (found,) = _U64.unpack_from(head, at + _HEADER.size)
    expected = xxh3(bytes(head[at : at + _HEADER.size]))
    if magic != _HEADER_MAGIC or found != expected:
        raise Corruption(file, at, "journal file header", expected=expected, found=found)
    if version != VERSION:
        raise UnsupportedFormat(
            f"{file}: journal file of version {version}; this release knows version {VERSION}"
        )
    return FileHeader(epoch, base, seed, created)


# ---------------------------------------------------------------- sealing


def _cdb_hashes(relative: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """CDB's hash of each number written as 8 bytes big-endian."""
    h = np.full(len(relative), 5381, dtype=np.uint32)
    for shift in range(56, -8, -8):
        byte = ((relative >> np.uint64(shift)) & np.uint64(255)).astype(np.uint32)
        h = ((h << np.uint32(5)) + h) ^ byte
    return h


def _header_hash() -> int:
    h = 5381
    for byte in _HEADER_KEY:
        h = (((h << 5) + h) & 0xFFFFFFFF) ^ byte
    return h


def hash_tables(
    relative: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint32], at: int
) -> tuple[bytes, bytes]:
    """(pointers, tables) of a CDB whose tables begin at ``at``; the header pair is included.

    Array kernels only. Entries are placed in rounds: each still unplaced entry claims its next
    slot, the last claimant of a free one wins. A slot once taken stays taken, so every slot
    that an entry was turned away from is full, which is all that CDB's probing asks for.
    """
    hashes = np.concatenate([np.array([_header_hash()], np.uint32), _cdb_hashes(relative)])
    where = np.concatenate([np.array([POINTERS_BYTES], np.uint32), positions.astype(np.uint32)])
    table = hashes & np.uint32(255)
    slots = 2 * np.bincount(table, minlength=256).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(slots)[:-1]])
    size = slots[table]
    begin = starts[table]
    step = (hashes >> np.uint32(8)).astype(np.int64) % size
    owner = np.full(int(slots.sum()), -1, dtype=np.int64)
    pending = np.arange(len(hashes), dtype=np.int64)
    while len(pending):
        target = begin[pending] + step[pending]
        free = owner[target] < 0
        owner[target[free]] = pending[free]
        pending = pending[owner[target] != pending]
        step[pending] = (step[pending] + 1) % size[pending]
    out = np.zeros((len(owner), 2), dtype="<u4")
    full = owner >= 0
    out[full, 0] = hashes[owner[full]]
    out[full, 1] = where[owner[full]]
    pointers = np.empty((256, 2), dtype="<u4")
    pointers[:, 0] = at + 8 * starts
    pointers[:, 1] = slots
    return pointers.tobytes(), out.tobytes()


def sealing(
    offsets: array[int] | npt.NDArray[np.uint32], seed: int, first_ms: int, last_ms: int
) -> tuple[bytes, bytes]:
    """(the 2048 bytes at the front, everything behind the records) that seal a journal file.

    ``offsets`` has count + 1 entries and ends where the records end. O(records), array kernels.
    """
    table = np.frombuffer(offsets, dtype=np.uint32)
    records_end = int(table[-1])
    live = np.flatnonzero(table[1:] > table[:-1])
    pointers, tables = hash_tables(live.astype(np.uint64), table[live], records_end)
    stored_offsets = table.astype("<u4").tobytes()
    fixed = _TRAILER.pack(
        _TRAILER_MAGIC,
        VERSION,
        0,
        len(table) - 1,
        seed,
        first_ms,
        last_ms,
        records_end,
        records_end + len(tables),
        xxh3(pointers),
        xxh3(tables),
        xxh3(stored_offsets),
        len(live),
        0,
    )
    return pointers, b"".join((tables, stored_offsets, fixed, _U64.pack(xxh3(fixed))))


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


def read_trailer(tail: bytes, file_bytes: int, file: str) -> Trailer:
    """Parse the last TRAILER_BYTES of a sealed file. Raises Corruption or UnsupportedFormat."""
    at = file_bytes - TRAILER_BYTES
    if at < RECORDS_AT or len(tail) != TRAILER_BYTES:
        raise Corruption(file, max(at, 0), "sealed journal file cut short")
    (found,) = _U64.unpack_from(tail, _TRAILER.size)
    expected = xxh3(tail[: _TRAILER.size])
    fields = _TRAILER.unpack_from(tail)
    magic, version, _, count, seed, first, last, tables_at, offsets_at, *sums, live, _ = fields
    if magic != _TRAILER_MAGIC or found != expected:
        raise Corruption(file, at, "journal trailer", expected=expected, found=found)
    if version != VERSION:
        raise UnsupportedFormat(
            f"{file}: sealed journal file of version {version}; "
            f"this release knows version {VERSION}"
        )
    if not RECORDS_AT <= tables_at <= offsets_at or offsets_at + 4 * (count + 1) != at:
        raise Corruption(file, at, "journal trailer: positions do not fit the file")
    return Trailer(count, live, seed, first, last, tables_at, offsets_at, *sums)


def read_offsets(stored: bytes | memoryview, trailer: Trailer, file: str) -> npt.NDArray[np.uint32]:
    """The offsets of a sealed file, checksum and order verified, as an array that shares memory.

    O(records). Raises Corruption.
    """
    found = xxh3(stored)
    if found != trailer.offsets_sum:
        raise Corruption(
            file, trailer.offsets_at, "record offsets", expected=trailer.offsets_sum, found=found
        )
    table = np.frombuffer(stored, dtype="<u4")
    if (
        len(table) != trailer.count + 1
        or int(table[0]) < RECORDS_AT
        or int(table[-1]) > trailer.tables_at
        or bool((table[1:] < table[:-1]).any())
    ):
        raise Corruption(file, trailer.offsets_at, "record offsets are out of order")
    return table


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


@dataclass(slots=True)
class Damage:
    """A stretch [start, end) of a journal file that holds no whole record."""

    start: int
    end: int
    what: str


def _search(buffer: memoryview, at: int, end: int, seed: int) -> int:
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


def scan(
    buffer: bytes | memoryview, start: int, end: int, seed: int, damages: list[Damage]
) -> Iterator[tuple[int, int, record.Header]]:
    """(offset, end, header) of every whole record in [start, end), values verified.

    What is not a whole record is stepped over and listed in ``damages``; a last entry there that
    reaches ``end`` is a torn tail. O(bytes). Raises UnsupportedFormat.
    """
    view = memoryview(buffer)
    at = start
    while at < end:
        stop = at
        try:
            head = record.parse_header(
                view[at : at + record.MAX_HEADER_BYTES], seed ^ at, end - at
            )
            value_at = at + head.header_bytes + record.SUMS_BYTES
            stop = value_at + head.value_bytes
            if xxh3(view[value_at:stop], head.hash64) & record.LOW_32 != head.value_sum:
                raise record.NotARecord("value checksum")
        except record.NotARecord as wrong:
            # A whole header tells how far to step; without one, look for the next mark.
            follows = stop if stop > at else _search(view, at + 1, end, seed)
            damages.append(Damage(at, follows, str(wrong)))
            at = follows
            continue
        yield at, stop, head
        at = stop
