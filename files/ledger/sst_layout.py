"""The bytes of a ledger file (sorted string table): what stands where, written and checked.

A ledger file is immutable: written once, read through a memory map. Integers are
little-endian. It consists of a header, a summary, and sections, each a column of all rows or a
small table, each beginning at a multiple of 64 bytes:

    header, 64 bytes
        magic 8s, format version u32, reserved u32 (0), length of the file u64,
        length of the summary u32, reserved u32 (0), xxh3-64 of the summary u64,
        reserved 16 bytes (0), xxh3-64 of the 56 bytes before u64
    summary
        offset of the first section u64, lowest sqn u64, highest sqn u64, base of the write
        times u64, rows u32, tombstones u32, rows that expire u32, home slots of the hash table
        u32, bits of a row number in the hash table u32, sections u32, windows u32, length of
        the first ledger key u32, length of the last ledger key u32, reserved u32 (0)
        for each section: kind u32, reserved u32 (0), offset u64, length u64
        for each window: xxh3-64 u64
        first ledger key, last ledger key
    sections, zeros between them

A window is 64 KiB of the file, counted from the first section, the last one shorter: so the
sections and all between them are covered, and a reader checks the parts that it touches.

Sections (n rows, ascending by ledger key, each key once):

    KEYS          user keys end to end, without tag and bucket
    KEY_ENDS      n + 1 u32: key i is KEYS[e[i] : e[i + 1]]; at most 2**31 - 1, as in Arrow
    SQNS          n u32, or n u64 where they do not fit, relative to a base that the manifest
                  holds; in version 1 always u64
    FLAGS         n u8: rows.TOMBSTONE, rows.EXPIRES
    SIZES         n u32, bytes of the value
    TIMES         n u32 above the base of the write times, or n u64 where they do not fit
    HASHES        n u32: hashing.hash_of the ledger key
    TABLE         u32 slots: the hash table, see below
    PREFIXES      tag and bucket of each group of rows, end to end
    PREFIX_ENDS   g + 1 u32, as KEY_ENDS
    FIRSTS        g u32: the first row of each group; groups ascend, as their prefixes do
    EXPIRIES      n u64, ms UTC, 0 = none; absent where no row expires
    METAS         user metadata end to end; absent, with META_ENDS, where no row has any
    META_ENDS     n + 1 u32, as KEY_ENDS

Hash table: a row's home is slot ``hash * homes >> 32``. Rows stand in the order of their hashes,
each in its home or in the next free slot above it; there is no wrap-around, slots behind the
last home take the overflow, and the last slot is empty. A slot holds the low bits of the hash
above ``row bits`` bits of row + 1; 0 is empty.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.ledger.index_terms import MAX_FIELD_BYTES, MAX_TERM_BYTES
from octavo.files.ledger.ledger_key import MAX_KEY_BYTES

MAGIC = b"\x93octSST\n"
VERSION = 2
"""What is written. Version 1, whose sqns are u64, is read as it is: lengths tell widths."""
ALIGNMENT = 64
WINDOW_BYTES = 64 * 1024
MAX_BLOB_BYTES = 2**31 - 1
"""The most bytes of a file's keys, and of its metadata: Arrow's binary offsets are signed."""
MAX_ROWS = 1 << 24
"""So a table slot keeps 7 bits of the hash at least."""

_HEADER = struct.Struct("<8sIIQIIQ16s")
HEADER_BYTES = _HEADER.size + 8
_FIXED = struct.Struct("<QQQQ10I")
_SECTION = struct.Struct("<IIQQ")
_MAX_SUMMARY_BYTES = 64 << 20
_MAX_KEY_BYTES = 2 * (MAX_KEY_BYTES + MAX_FIELD_BYTES + MAX_TERM_BYTES) + 16
"""Escapes may double the name of a bucket, and an index entry's field and term."""

if HEADER_BYTES != 64 or _FIXED.size != 72 or _SECTION.size != 24:
    raise ImportError("the layout of ledger files is not what its description says")


class Section(IntEnum):
    """What a section holds."""

    KEYS = 1
    KEY_ENDS = 2
    SQNS = 3
    FLAGS = 4
    SIZES = 5
    TIMES = 6
    HASHES = 7
    TABLE = 8
    PREFIXES = 9
    PREFIX_ENDS = 10
    FIRSTS = 11
    EXPIRIES = 12
    METAS = 13
    META_ENDS = 14


ROW_COLUMNS = (
    Section.KEY_ENDS, Section.SQNS, Section.FLAGS, Section.SIZES, Section.TIMES, Section.EXPIRIES,
    Section.META_ENDS,
)  # fmt: skip
"""The columns that are read for a row, besides the bytes of its key and metadata."""
_KINDS = frozenset(int(kind) for kind in Section)
_OPTIONAL = {Section.EXPIRIES, Section.METAS, Section.META_ENDS}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the header and the summary of a file say."""

    file_bytes: int
    data_at: int
    rows: int
    tombstones: int
    expiring: int
    min_sqn: int
    max_sqn: int
    time_base: int
    homes: int
    row_bits: int
    first_key: bytes
    last_key: bytes
    sections: dict[Section, tuple[int, int]]  # offset, length


def aligned(offset: int) -> int:
    """The next multiple of 64, ``offset`` itself if it is one."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def summary_bytes(sections: int, windows: int, keys_bytes: int) -> int:
    """Length of a summary."""
    return _FIXED.size + sections * _SECTION.size + windows * 8 + keys_bytes


def place(
    lengths: dict[Section, int], keys_bytes: int
) -> tuple[int, dict[Section, tuple[int, int]], int]:
    """(offset of the first section, each section's offset and length, length of the file)."""
    at = 0
    relative = {}
    for kind, length in lengths.items():
        at = aligned(at)
        relative[kind] = (at, length)
        at += length
    windows = -(-at // WINDOW_BYTES)
    data_at = aligned(HEADER_BYTES + summary_bytes(len(lengths), windows, keys_bytes))
    placed = {kind: (data_at + offset, length) for kind, (offset, length) in relative.items()}
    return data_at, placed, data_at + at


def encode(layout: Layout, sums: Sequence[int]) -> bytes:
    """Header and summary. ``sums`` are the checksums of the windows."""
    fixed = _FIXED.pack(
        layout.data_at,
        layout.min_sqn,
        layout.max_sqn,
        layout.time_base,
        layout.rows,
        layout.tombstones,
        layout.expiring,
        layout.homes,
        layout.row_bits,
        len(layout.sections),
        len(sums),
        len(layout.first_key),
        len(layout.last_key),
        0,
    )
    table = b"".join(_SECTION.pack(kind, 0, *span) for kind, span in layout.sections.items())
    summary = b"".join(
        (fixed, table, struct.pack(f"<{len(sums)}Q", *sums), layout.first_key, layout.last_key)
    )
    header = _HEADER.pack(
        MAGIC, VERSION, 0, layout.file_bytes, len(summary), 0, xxh3(summary), bytes(16)
    )
    return header + xxh3(header).to_bytes(8, "little") + summary


def decode(view: memoryview, name: str) -> tuple[Layout, memoryview]:
    """(layout, checksums of the windows as u64) of a whole file; sections are not looked at.

    O(sections + windows). Raises Corruption, UnsupportedFormat.
    """
    summary = _summary(view, name)
    try:
        return _layout(view, summary, name)
    except (struct.error, ValueError, IndexError) as wrong:
        raise Corruption(name, HEADER_BYTES, f"summary: {wrong}") from wrong


def _summary(view: memoryview, name: str) -> memoryview:
    """The bytes of the summary, their checksum compared."""
    if len(view) < HEADER_BYTES:
        raise Corruption(name, 0, "length of the file", expected=">= 64", found=len(view))
    magic, version, zero, file_bytes, length, zero_2, summary_sum, zeros = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise Corruption(name, 0, "magic of a ledger file", expected=MAGIC, found=magic)
    expected = int.from_bytes(view[56:64], "little")
    found = xxh3(view[:56])
    if found != expected:
        raise Corruption(name, 56, "header checksum", expected=f"{expected:x}", found=f"{found:x}")
    if not 1 <= version <= VERSION or zero or zero_2 or any(zeros):
        raise UnsupportedFormat(
            f"{name}: ledger file of version {version}, this release reads versions 1 to {VERSION}"
        )
    if file_bytes != len(view):
        raise Corruption(name, 16, "length of the file", expected=file_bytes, found=len(view))
    if length > min(_MAX_SUMMARY_BYTES, len(view) - HEADER_BYTES):
        raise Corruption(name, 24, "length of the summary", expected="less", found=length)
    summary = view[HEADER_BYTES : HEADER_BYTES + length]
    found = xxh3(summary)
    if found != summary_sum:
        raise Corruption(
            name, HEADER_BYTES, "summary checksum", expected=f"{summary_sum:x}", found=f"{found:x}"
        )
    return summary


def _layout(view: memoryview, summary: memoryview, name: str) -> tuple[Layout, memoryview]:
    (
        data_at, min_sqn, max_sqn, time_base,
        rows, tombstones, expiring, homes, row_bits, sections, windows, first, last, zero,
    ) = _FIXED.unpack_from(summary)  # fmt: skip
    if zero:
        raise UnsupportedFormat(f"{name}: the summary of this ledger file has unknown fields")
    sums_at = _FIXED.size + sections * _SECTION.size
    keys_at = sums_at + 8 * windows
    data_bytes = len(view) - data_at
    if (
        keys_at + first + last != len(summary)
        or data_at < HEADER_BYTES + len(summary)
        or data_bytes < 1
        or windows != -(-data_bytes // WINDOW_BYTES)
    ):
        raise ValueError("lengths do not fit the file")
    if not 1 <= rows <= MAX_ROWS or max(tombstones, expiring) > rows or min_sqn > max_sqn:
        raise ValueError("counts")
    if max(first, last) > _MAX_KEY_BYTES or row_bits > MAX_ROWS.bit_length() or rows >> row_bits:
        raise ValueError("limits")
    placed: dict[Section, tuple[int, int]] = {}
    end = data_at
    for index in range(sections):
        kind, reserved, offset, length = _SECTION.unpack_from(
            summary, _FIXED.size + index * _SECTION.size
        )
        if reserved or kind not in _KINDS:
            raise UnsupportedFormat(f"{name}: unknown section {kind} in this ledger file")
        if Section(kind) in placed or offset % ALIGNMENT or offset < end:
            raise ValueError(f"section {kind} is not in its place")
        end = offset + length
        placed[Section(kind)] = (offset, length)
    if end != len(view):
        raise ValueError("sections do not end with the file")
    _check_lengths(placed, rows, homes)
    keys = bytes(summary[keys_at:])
    layout = Layout(
        len(view), data_at, rows, tombstones, expiring, min_sqn, max_sqn, time_base, homes,
        row_bits, keys[:first], keys[first:], placed,
    )  # fmt: skip
    return layout, summary[sums_at:keys_at].cast("Q")


def _check_lengths(placed: dict[Section, tuple[int, int]], rows: int, homes: int) -> None:
    """Check that no section is missing, and each is as long as the rows say. Raises ValueError."""
    length = {kind: placed[kind][1] for kind in placed}
    missing = set(Section) - _OPTIONAL - set(length)
    if missing or (Section.METAS in length) != (Section.META_ENDS in length):
        raise ValueError(f"sections are missing: {sorted(missing)}")
    for kind, width, extra in (
        (Section.KEY_ENDS, 4, 1),
        (Section.FLAGS, 1, 0),
        (Section.SIZES, 4, 0),
        (Section.HASHES, 4, 0),
        (Section.EXPIRIES, 8, 0),
        (Section.META_ENDS, 4, 1),
    ):
        if kind in length and length[kind] != width * (rows + extra):
            raise ValueError(f"length of section {kind.name}")
    groups, odd = divmod(length[Section.FIRSTS], 4)
    if odd or not 1 <= groups <= rows or length[Section.PREFIX_ENDS] != 4 * (groups + 1):
        raise ValueError("length of section FIRSTS")
    slots, odd = divmod(length[Section.TABLE], 4)
    if odd or not 1 <= homes < slots:
        raise ValueError("length of section TABLE")
    for kind in (Section.SQNS, Section.TIMES):
        if length[kind] not in (4 * rows, 8 * rows):
            raise ValueError(f"length of section {kind.name}")
    if max(length[Section.KEYS], length.get(Section.METAS, 0)) > MAX_BLOB_BYTES:
        raise ValueError("length of a blob")
