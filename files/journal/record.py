"""The journal record: one operation, framed so that damage is seen and stepped over.

A record stands in a journal file as one CDB pair (little-endian unless marked):

    at  size
     0     4  CDB key length, always 8
     4     4  CDB data length: everything from 16 on
     8     8  sequence number relative to the file's base, big-endian (the CDB key)
    16     2  magic
    18     1  version of this layout
    19     1  kind
    20     1  tag
    21     1  flags: which optional fields follow
    22     2  bucket length
    24     2  key length - 1 (a key is never empty, and may be 64 KiB)
    26     8  write time, ms UTC
    34        optional fields, in the order of their flags:
              EXPIRY 8 (ms UTC) | METADATA 4 (length) | INDEX 4 (length) |
              BATCH 4 + 4 (position, length) | LZ4 4 (length of the value before compression) |
              SUB_KEY 2 (length)
     .        bucket, key, sub-key, metadata, index changes
     e     4  header checksum: low half of xxh3-64 of bytes [0, e), seed = file seed ^ offset
   e+4     4  value checksum: low half of xxh3-64 of the stored value, seed = the header's xxh3-64
   e+8        stored value

The header checksum covers CDB's lengths and is bound to the file and the place, so a value
that happens to be a journal file is never taken for records. The value checksum is seeded by
the header's, so a value cannot be swapped for another record's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

import lz4.block
from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption, UnsupportedFormat

MAGIC = b"\xd7\x4f"
VERSION = 1

# kinds; 4 and 5 are reserved, for replication and for long-term storage
PUT = 1
DELETE = 2
KEY_DELTA = 3  # what compaction retains of a superseded put: all but its value

# flags
EXPIRY = 1
METADATA = 2
INDEX = 4
BATCH = 8
LZ4 = 16
SUB_KEY = 32
KNOWN_FLAGS = 63
OPTIONAL_FIELDS = (
    (EXPIRY, 8), (METADATA, 4), (INDEX, 4), (BATCH, 8), (LZ4, 4), (SUB_KEY, 2),
)  # fmt: skip
"""In the order in which they stand: the flag, and the bytes in front of the bucket."""
OPTIONAL_BYTES = sum(size for _, size in OPTIONAL_FIELDS)

FIXED = Struct("<II8s2sBBBBHHQ")
FIXED_BYTES = 34
assert FIXED.size == FIXED_BYTES  # the layout above, not a guard
PLAIN = Struct("<4sI8s8sHQ")
"""The same, with all that is alike in the records of a bucket as one field, the middle:
CDB_KEY_LENGTH, CDB data length, sqn, middle, key length - 1, write time."""
CDB_KEY_LENGTH = b"\x08\x00\x00\x00"
_MIDDLE = Struct("<2sBBBBH")
_SUMS = Struct("<II")
SUMS_BYTES = 8
FRAME_BYTES = FIXED_BYTES + SUMS_BYTES
"""What a record takes beside its bucket, key, value and optional fields."""
LEAST_BYTES = FRAME_BYTES + 1
_U64 = Struct("<Q")
_U32 = Struct("<I")
_U32_PAIR = Struct("<II")
_U16 = Struct("<H")

LOW_32 = 0xFFFFFFFF
MAX_METADATA_BYTES = 1 << 20
MAX_INDEX_BYTES = 1 << 20
MAX_HEADER_BYTES = (
    FIXED_BYTES + OPTIONAL_BYTES + 2 * (64 << 10) + MAX_METADATA_BYTES + MAX_INDEX_BYTES
)

pack_fixed = FIXED.pack
pack_sums = _SUMS.pack
pack_u32 = _U32.pack
pack_pair = _U32_PAIR.pack
unpack_sums = _SUMS.unpack_from
unpack_u32 = _U32.unpack_from
unpack_u64 = _U64.unpack_from
unpack_middle = _MIDDLE.unpack


def middle(kind: int, tag: int, flags: int, bucket_bytes: int) -> bytes:
    """The middle that PLAIN takes: everything from the magic to the bucket's length."""
    return _MIDDLE.pack(MAGIC, VERSION, kind, tag, flags, bucket_bytes)


def numbers(first: int, count: int) -> tuple[bytes, ...]:
    """The relative numbers [first, first + count), each as the 8 bytes that a record carries."""
    packed = _struct(f">{count}Q").pack(*range(first, first + count))
    return _struct("8s" * count).unpack(packed)


@lru_cache(maxsize=16)
def _struct(layout: str) -> Struct:
    return Struct(layout)


class Record(NamedTuple):
    """A decoded journal record; ``value`` is as the user gave it."""

    sqn: int
    kind: int
    tag: int
    bucket: bytes
    key: bytes
    sub_key: bytes
    time_ms: int
    expiry_ms: int  # 0: never
    metadata: bytes
    index_changes: bytes
    batch: tuple[int, int] | None  # (position from 0, length)
    size: int  # of the value before compression
    value: bytes


class Header(NamedTuple):
    """What a record says of itself, its header checksum verified, its value not yet read."""

    relative_sqn: int
    kind: int
    tag: int
    bucket: bytes
    key: bytes
    sub_key: bytes
    time_ms: int
    expiry_ms: int
    metadata: bytes
    index_changes: bytes
    batch: tuple[int, int] | None
    raw_bytes: int | None  # None: stored uncompressed
    header_bytes: int  # where the sums begin
    value_bytes: int  # as stored
    hash64: int  # seed of the value checksum
    value_sum: int

    @property
    def size(self) -> int:
        return self.value_bytes if self.raw_bytes is None else self.raw_bytes


def optional(expiry_ms: int, metadata: bytes, index: bytes) -> tuple[int, bytes, bytes]:
    """(flags, what stands behind the fixed fields, what stands behind the key) of a record with
    these; 0 or empty: without."""
    flags, front = (EXPIRY, _U64.pack(expiry_ms)) if expiry_ms else (0, b"")
    if metadata:
        flags |= METADATA
        front += _U32.pack(len(metadata))
    if index:
        flags |= INDEX
        front += _U32.pack(len(index))
    return flags, front, metadata + index


def encode(
    relative_sqn: int,
    check: int,
    kind: int,
    tag: int,
    bucket: bytes,
    key: bytes,
    value: bytes,
    time_ms: int,
    *,
    expiry_ms: int = 0,
    metadata: bytes = b"",
    index: bytes = b"",
    batch: tuple[int, int] | None = None,
    raw_bytes: int | None = None,
    sub_key: bytes = b"",
) -> bytes:
    """The bytes of one record. ``check`` is file seed ^ offset; ``value`` is as stored.

    One copy of the value. Lengths are the caller's to check.
    """
    flags, more, behind = optional(expiry_ms, metadata, index)
    if batch is not None:
        flags |= BATCH
        more += _U32_PAIR.pack(*batch)
    if raw_bytes is not None:
        flags |= LZ4
        more += _U32.pack(raw_bytes)
    if sub_key:
        flags |= SUB_KEY
        more += _U16.pack(len(sub_key))
    tail = key + sub_key + behind if flags else key
    head_bytes = FIXED_BYTES + len(more) + len(bucket) + len(tail)
    head = (
        pack_fixed(
            8,
            head_bytes - 8 + len(value),  # - 16 for the CDB part, + 8 for the sums
            relative_sqn.to_bytes(8, "big"),
            MAGIC,
            VERSION,
            kind,
            tag,
            flags,
            len(bucket),
            len(key) - 1,
            time_ms,
        )
        + more
        + bucket
        + tail
    )
    h = xxh3(head, check)
    return b"".join((head, pack_sums(h & LOW_32, xxh3(value, h) & LOW_32), value))


class NotARecord(Exception):  # noqa: N818 - internal: where a scan looks further
    """These bytes are no whole record. ``args[0]`` says what was wrong."""


def parse_header(buffer: bytes | memoryview, check: int, available: int) -> Header:
    """The header of the record at the start of ``buffer``, its checksum verified.

    ``available`` is how many bytes of file there are from the record's first byte on; no length
    is believed beyond it. Raises NotARecord, or UnsupportedFormat for a record that is whole but
    of a version or kind this release does not know. The value's bytes need not be in ``buffer``.
    """
    if available < FIXED_BYTES + SUMS_BYTES or len(buffer) < FIXED_BYTES:
        raise NotARecord("cut short")
    klen, dlen, sqn, magic, version, kind, tag, flags, blen, key_1, time_ms = FIXED.unpack_from(
        buffer
    )
    if magic != MAGIC or klen != 8:
        raise NotARecord("no record mark")
    if dlen + 16 > available:
        raise NotARecord("longer than the file")
    at = FIXED_BYTES
    expiry = meta_len = index_len = sub_len = 0
    batch = raw = None
    try:
        if flags:
            if flags & EXPIRY:
                (expiry,) = _U64.unpack_from(buffer, at)
                at += 8
            if flags & METADATA:
                (meta_len,) = _U32.unpack_from(buffer, at)
                at += 4
            if flags & INDEX:
                (index_len,) = _U32.unpack_from(buffer, at)
                at += 4
            if flags & BATCH:
                batch = _U32_PAIR.unpack_from(buffer, at)
                at += 8
            if flags & LZ4:
                (raw,) = _U32.unpack_from(buffer, at)
                at += 4
            if flags & SUB_KEY:
                (sub_len,) = _U16.unpack_from(buffer, at)
                at += 2
        end = at + blen + key_1 + 1 + sub_len + meta_len + index_len
        if end - 8 > dlen or end + SUMS_BYTES > len(buffer):
            raise NotARecord("header longer than the record")
        head_sum, value_sum = _SUMS.unpack_from(buffer, end)
    except StructError as wrong:
        raise NotARecord("cut short in its optional fields") from wrong
    h = xxh3(buffer[:end], check)
    if h & LOW_32 != head_sum:
        raise NotARecord("header checksum")
    if version != VERSION or not PUT <= kind <= KEY_DELTA or flags & ~KNOWN_FLAGS:
        raise UnsupportedFormat(
            f"journal record of version {version}, kind {kind}, flags {flags:#x}: "
            f"this release knows version {VERSION}, kinds {PUT} to {KEY_DELTA}; "
            "open the store with the release that wrote it"
        )
    p = at + blen
    q = p + key_1 + 1
    r = q + sub_len
    s = r + meta_len
    return Header(
        int.from_bytes(sqn, "big"),
        kind,
        tag,
        bytes(buffer[at:p]),
        bytes(buffer[p:q]),
        bytes(buffer[q:r]),
        time_ms,
        expiry,
        bytes(buffer[r:s]),
        bytes(buffer[s:end]),
        batch,
        raw,
        end,
        dlen + 8 - end,
        h,
        value_sum,
    )


def decompress(stored: bytes | memoryview, raw_bytes: int) -> bytes:
    """LZ4 block to bytes, never allocating more than ``stored`` can hold. ValueError if wrong."""
    if raw_bytes > 255 * len(stored) + 64:
        raise ValueError(f"{len(stored)} bytes cannot hold {raw_bytes}")
    try:
        value: bytes = lz4.block.decompress(stored, uncompressed_size=raw_bytes)
    except lz4.block.LZ4BlockError as wrong:
        raise ValueError(str(wrong)) from wrong
    if len(value) != raw_bytes:
        raise ValueError(f"decompressed to {len(value)} bytes, not {raw_bytes}")
    return value


def decompress_all(stored: Sequence[bytes | memoryview], raw_bytes: Sequence[int]) -> list[bytes]:
    """As ``decompress``, for many blocks. ValueError if any of them is wrong."""
    values: list[bytes] = []
    add, one = values.append, lz4.block.decompress
    try:
        for block, size in zip(stored, raw_bytes, strict=True):
            if size > 255 * len(block) + 64:
                raise ValueError(f"{len(block)} bytes cannot hold {size}")
            add(one(block, size))
    except lz4.block.LZ4BlockError as wrong:
        raise ValueError(str(wrong)) from wrong
    if list(map(len, values)) != list(raw_bytes):
        raise ValueError("a value of another length than its record says")
    return values


def decode(buffer: bytes | memoryview, check: int, base_sqn: int, file: str, offset: int) -> Record:
    """The whole record in ``buffer`` (exactly its bytes), every checksum verified.

    Raises Corruption naming ``file`` and ``offset``, or UnsupportedFormat.
    """
    try:
        head = parse_header(buffer, check, len(buffer))
    except NotARecord as wrong:
        raise Corruption(file, offset, f"journal record: {wrong}") from None
    value = checked_value(buffer, head, file, offset)
    return Record(
        base_sqn + head.relative_sqn, head.kind, head.tag, head.bucket, head.key, head.sub_key,
        head.time_ms, head.expiry_ms, head.metadata, head.index_changes, head.batch, len(value),
        value,
    )  # fmt: skip


def checked_value(buffer: bytes | memoryview, head: Header, file: str, offset: int) -> bytes:
    """The value of a record whose header was parsed, as the user gave it. Raises Corruption."""
    at = head.header_bytes + SUMS_BYTES
    stored = buffer[at : at + head.value_bytes]
    found = xxh3(stored, head.hash64) & LOW_32
    if found != head.value_sum or len(stored) != head.value_bytes:
        raise Corruption(file, offset + at, "value checksum", expected=head.value_sum, found=found)
    if head.raw_bytes is None:
        return bytes(stored)
    try:
        return decompress(stored, head.raw_bytes)
    except ValueError as wrong:
        raise Corruption(file, offset + at, f"compressed value: {wrong}") from wrong
