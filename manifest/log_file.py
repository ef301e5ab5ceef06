"""A file of a change log: its layout, and reading one that may be damaged.

A file is called ``<epoch:016x>-<number:08d>.log``. Integers are little-endian.

    header, 64 bytes
        magic            8   "OCTAVOCL"
        version          2   1
        begins           2   1: with a snapshot, 2: goes on with changes
        reserved         4   0
        epoch            8   as in the name
        number           8   as in the name
        follows          8   sequence of the last change before this file
        parent epoch     8   where the state of this epoch's first snapshot comes from: the
        parent sequence  8   epoch, and the last change of it that is in; 0, 0: from nothing
        checksum         8   xxh3-64 of the 56 bytes before, seeded with the file's identity

    records, one after the other
        magic            4   "OcR1"
        length           4   bytes of the payload
        kind             1   1 snapshot, 2 change
        flags            1   bit 0: all that stands before it in the file was durable by then
        reserved         2   0
        epoch            8
        sequence         8   of a change: 1, 2, 3, ... within the epoch;
                             of a snapshot: that of the last change it includes
        head checksum    4   xxh3-64 of the 28 bytes before, low half
        payload
        checksum         8   xxh3-64 of head and payload

All checksums are seeded with the file's identity, those of a record with its offset, too: bytes
that stand in another file, or elsewhere in this one, are not taken for a header or a record. So
epoch and number themselves are not read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import UnsupportedFormat

FILE_MAGIC = b"OCTAVOCL"
VERSION = 1
HEADER = struct.Struct("<8sHHIQQQQQ")
CHECK = struct.Struct("<Q")
HEADER_BYTES = 64

RECORD_MAGIC = b"OcR1"
HEAD = struct.Struct("<4sIBBHQQ")
HEAD_CHECK = struct.Struct("<I")
HEAD_BYTES = 32
RECORD_BYTES = HEAD_BYTES + CHECK.size
"""What a record takes besides its payload."""

SNAPSHOT = 1
CHANGE = 2
_SETTLED = 1
"""Flag: everything before this record was durable when it was written. All records have it."""

MAX_EPOCH = 1 << 62
"""No store is opened so often: a file name beyond it is not one of ours, and uses up no epoch."""
MAX_PAYLOAD_BYTES = 128 << 20
"""Enough for the manifest of a ledger of 1,024 files (64 GiB at most) whose keys all have 64
KiB."""
FULL_BYTES = 16 << 20
"""A file of this size is not continued; one record may pass it."""
MAX_FILE_BYTES = FULL_BYTES + RECORD_BYTES + MAX_PAYLOAD_BYTES

SECTOR_BYTES = 512
"""The unit of a write that a power cut leaves whole: each such piece is there, or is zeros."""
_MAX_WOUNDS = 64
"""Damaged places after which the rest of a file is given up: bounds the time a file can cost."""

_U64 = (1 << 64) - 1
_NAME = re.compile(r"([0-9a-f]{16})-([0-9]{8,12})\.log")

if HEADER.size + CHECK.size != HEADER_BYTES or HEAD.size + HEAD_CHECK.size != HEAD_BYTES:
    raise ImportError("the layout of change log files does not add up")


class FileId(NamedTuple):
    """Which file of the log: sorts in the order of writing."""

    epoch: int
    number: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.epoch:016x}-{self.number:08d}.log"

    @property
    def seed(self) -> int:
        """What the checksums of this file begin with."""
        return xxh3(struct.pack("<QQ", self.epoch, self.number))


def id_of(name: str) -> FileId | None:
    """The identity in a file's name; None where it is not the name of such a file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    found = FileId(int(match[1], 16), int(match[2]))
    return found if found.name == name and found.epoch <= MAX_EPOCH else None


# ---------------------------------------------------------------- writing


def header(who: FileId, begins: int, follows: int, parent: tuple[int, int]) -> bytes:
    """The first 64 bytes of a file."""
    front = HEADER.pack(FILE_MAGIC, VERSION, begins, 0, *who, follows, *parent)
    return front + CHECK.pack(xxh3(front, who.seed))


def record(seed: int, offset: int, kind: int, epoch: int, sequence: int, payload: bytes) -> bytes:
    """A whole record as it stands at ``offset``. One copy of the payload."""
    seed = (seed + offset) & _U64
    head = HEAD.pack(RECORD_MAGIC, len(payload), kind, _SETTLED, 0, epoch, sequence)
    head += HEAD_CHECK.pack(xxh3(head, seed) & 0xFFFFFFFF)
    body = head + payload
    return body + CHECK.pack(xxh3(body, seed))


# ---------------------------------------------------------------- reading


class Header(NamedTuple):
    """What a file says of itself."""

    begins: int
    follows: int
    parent: tuple[int, int]


class Record(NamedTuple):
    """A whole record; ``sequence`` as in the layout."""

    offset: int
    kind: int
    sequence: int
    payload: bytes


class Wound(NamedTuple):
    """Bytes [start, end) that are no whole record."""

    start: int
    end: int
    torn: bool  # may be what a power cut left of a write that never ended; else it is damage
    kind: int  # of the record that stood there, 0 where its head is lost too


@dataclass(slots=True)
class LogFile:
    """What could be read of a file."""

    who: FileId
    header: Header | None = None
    header_torn: bool = False  # only where there is none
    records: list[Record] = field(default_factory=list)
    wounds: list[Wound] = field(default_factory=list)

    @property
    def follows(self) -> int | None:
        """Sequence of the last change before this file, or, where its beginning is lost, a bound
        that is not above it; None where nothing tells."""
        if self.header is not None:
            return self.header.follows
        if not self.records:
            return None
        first = self.records[0]
        if first.kind == SNAPSHOT:
            return first.sequence
        return max(first.sequence - (2 if self.beginning_lost else 1), 0)

    @property
    def beginning_lost(self) -> bool:
        """Whether neither a header nor a first record tells where the file begins."""
        if self.header is not None:
            return False
        first = self.records[0].offset if self.records else MAX_FILE_BYTES
        return any(wound.start < first and wound.kind != SNAPSHOT for wound in self.wounds)

    def last_snapshot(self) -> int | None:
        """Index of the newest whole snapshot among the records."""
        for at in range(len(self.records) - 1, -1, -1):
            if self.records[at].kind == SNAPSHOT:
                return at
        return None


def parse(who: FileId, path: str, data: bytes) -> LogFile:
    """Read a file as far as it can be read. O(bytes), one copy of the payloads.

    Raises UnsupportedFormat where a whole header or record is of a version or kind not known
    here. Damage raises nothing.
    """
    found = LogFile(who)
    found.header = _header(who, path, data)
    if found.header is None:
        found.header_torn = may_be_torn(data, 0, HEADER_BYTES)
    view = memoryview(data)
    for what in _records(who, path, view, data):
        if isinstance(what, Record):
            found.records.append(what)
        else:
            found.wounds.append(what)
    return found


def may_be_torn(data: bytes, start: int, end: int) -> bool:
    """Whether [start, end) may be a write that a power cut interrupted: it is cut short, or
    one of its sectors never came."""
    if end > len(data):
        return True
    at = start
    while at < end:
        stop = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(data[at:stop]):
            return True
        at = stop
    return False


def _header(who: FileId, path: str, data: bytes) -> Header | None:
    if len(data) < HEADER_BYTES:
        return None
    (checksum,) = CHECK.unpack_from(data, HEADER.size)
    if data[: len(FILE_MAGIC)] != FILE_MAGIC or xxh3(data[: HEADER.size], who.seed) != checksum:
        return None
    _, version, begins, reserved, _, _, follows, *parent = HEADER.unpack_from(data)
    if version != VERSION or begins not in (SNAPSHOT, CHANGE) or reserved:
        raise UnsupportedFormat(
            f"{path}: a change log file of version {version}, beginning {begins}; "
            f"this release knows version {VERSION}"
        )
    return Header(begins, follows, (parent[0], parent[1]))


def _records(who: FileId, path: str, view: memoryview, data: bytes) -> Iterator[Record | Wound]:
    seed = who.seed
    at = HEADER_BYTES
    wounds = 0
    while at < len(view):
        if wounds == _MAX_WOUNDS:
            yield Wound(at, len(view), False, 0)
            return
        head = _head(view, at, seed)
        if head is None:
            wounds += 1
            end = _next_head(data, view, at, seed)
            yield Wound(at, end, may_be_torn(data, at, at + HEAD_BYTES), 0)
            at = end
            continue
        length, kind, flags, reserved, sequence = head
        end = at + RECORD_BYTES + length
        if end > len(view):
            yield Wound(at, len(view), True, kind)
            return
        (checksum,) = CHECK.unpack_from(view, end - CHECK.size)
        if xxh3(view[at : end - CHECK.size], (seed + at) & _U64) != checksum:
            wounds += 1
            yield Wound(at, end, may_be_torn(data, at, end), kind)
        else:
            if kind not in (SNAPSHOT, CHANGE) or flags & ~_SETTLED or reserved:
                raise UnsupportedFormat(
                    f"{path} at offset {at}: a record of kind {kind} with flags {flags}, "
                    "which this release does not know"
                )
            payload = bytes(view[at + HEAD_BYTES : end - CHECK.size])
            yield Record(at, kind, sequence, payload)
        at = end


def _head(view: memoryview, at: int, seed: int) -> tuple[int, int, int, int, int] | None:
    """(length, kind, flags, reserved, sequence); None where no whole head stands."""
    if len(view) - at < HEAD_BYTES or view[at : at + 4] != RECORD_MAGIC:
        return None
    (checksum,) = HEAD_CHECK.unpack_from(view, at + HEAD.size)
    if xxh3(view[at : at + HEAD.size], (seed + at) & _U64) & 0xFFFFFFFF != checksum:
        return None
    _, length, kind, flags, reserved, _, sequence = HEAD.unpack_from(view, at)
    return length, kind, flags, reserved, sequence


def _next_head(data: bytes, view: memoryview, at: int, seed: int) -> int:
    """Offset of the next record head behind ``at``, or the end of the file."""
    for _ in range(_MAX_WOUNDS):
        at = data.find(RECORD_MAGIC, at + 1)
        if at < 0:
            break
        if _head(view, at, seed) is not None:
            return at
    return len(data)
