"""Makes ledger files out of columns, by array kernels; the layout is in sst_layout.py."""

from __future__ import annotations

from dataclasses import dataclass

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.kernels.arrays import U32, U64, np, npt
from octavo.files.kernels.byte_strings import Ints, as_strides, fill, offsets_of
from octavo.files.kernels.columns import Bytes
from octavo.files.kernels.constant_columns import take_into, taken
from octavo.files.ledger import sst_layout
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns, SqnColumn
from octavo.files.ledger.sst_layout import WINDOW_BYTES, Layout, Section

_LOAD = 0.5
"""Rows per home slot. Of 0.5, 0.6 and 0.7 this made lookups of absent keys cheapest; the table then
takes 8 bytes a row."""


def table_shape(rows: int) -> tuple[int, int]:
    """(home slots, bits of a row number) for a hash table of so many rows."""
    return max(int(rows / _LOAD), 1), rows.bit_length()


def hash_table(hashes: npt.NDArray[np.uint32], homes: int, row_bits: int) -> npt.NDArray[np.uint32]:
    """The hash table of a file whose rows have these hashes. Some 15 ns a row."""
    count = len(hashes)
    places, half = np.arange(count, dtype=np.int64), np.uint64(32)
    # Hash and row in one number: sorted by value, which is much faster than sorting indexes.
    pairs = hashes.astype(np.uint64)
    pairs <<= half
    pairs |= places.view(np.uint64)
    pairs.sort()
    ordered = pairs >> half
    homes_of = ordered * np.uint64(homes)
    homes_of >>= half
    # Rows in the order of their homes: each goes home, or next to the one before it.
    slots = homes_of.view(np.int64)
    slots -= places
    np.maximum.accumulate(slots, out=slots)
    slots += places
    table = np.zeros(max(int(slots[-1]) + 1, homes) + 1, dtype=np.uint32)
    ordered &= np.uint64((1 << (32 - row_bits)) - 1)
    ordered <<= np.uint64(row_bits)
    pairs &= np.uint64(0xFFFFFFFF)
    pairs += np.uint64(1)
    ordered |= pairs
    table[slots] = ordered
    return table


@dataclass(slots=True)
class _Plan:
    """What a file will consist of, worked out before its bytes are laid out."""

    rows: Ints
    key_ends: Ints
    key_lengths: Ints
    hashes: U32
    sqns: SqnColumn
    times: U64
    table: U32
    group_firsts: Ints
    prefixes: list[bytes]
    time_base: int
    wide_sqns: bool
    wide_times: bool
    meta_lengths: Ints | None
    meta_ends: Ints | None
    expires: bool


class Writer:
    """Lays out files of some columns' rows in memory, one after the other, in a buffer that it uses
    again."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        keys = columns.keys
        even = as_strides(keys.blob, keys.starts, keys.lengths)
        self._keys = even if even is not None and even.flags.c_contiguous else None
        self._buffer = np.empty(0, dtype=np.uint8)

    def image(self, rows: Ints) -> tuple[memoryview, Layout]:
        """(the bytes of a file of these rows, which are in key order; its layout).

        The view is valid until the next call. Memory: the file itself, and some 60 bytes a row.
        """
        columns = self._columns
        plan = _plan(columns, rows)
        lengths = _section_lengths(plan)
        first_key = columns.ledger_key(int(rows[0]))
        last_key = columns.ledger_key(int(rows[-1]))
        data_at, sections, file_bytes = sst_layout.place(lengths, len(first_key) + len(last_key))
        if len(self._buffer) < file_bytes:
            self._buffer = np.empty(file_bytes, dtype=np.uint8)
        image = self._buffer[:file_bytes]
        _fill(image, sections, columns, plan, data_at, self._keys)
        flags = _section(image, sections, Section.FLAGS, "u1")
        layout = Layout(
            file_bytes=file_bytes,
            data_at=data_at,
            rows=len(rows),
            tombstones=int(np.count_nonzero(flags & TOMBSTONE)),
            expiring=int(np.count_nonzero(flags & EXPIRES)),
            min_sqn=int(plan.sqns.min()),
            max_sqn=int(plan.sqns.max()),
            time_base=plan.time_base,
            homes=table_shape(len(rows))[0],
            row_bits=table_shape(len(rows))[1],
            first_key=first_key,
            last_key=last_key,
            sections=sections,
        )
        view = image.data
        sums = [
            xxh3(view[at : at + WINDOW_BYTES]) for at in range(data_at, file_bytes, WINDOW_BYTES)
        ]
        front = sst_layout.encode(layout, sums)
        view[: len(front)] = front
        view[len(front) : data_at] = bytes(data_at - len(front))
        return view, layout


def _plan(columns: Columns, rows: Ints) -> _Plan:
    key_lengths = taken(columns.keys.lengths, rows)
    sqns = columns.sqns[rows]
    times = taken(columns.times, rows)
    hashes = columns.hashes[rows]
    time_base = int(times.min())
    metas = columns.metas
    meta_lengths = None if metas is None else metas.lengths[rows]
    if meta_lengths is not None and not meta_lengths.any():
        meta_lengths = None
    if columns.groups is None:
        firsts, prefixes = np.zeros(1, np.int64), columns.prefixes
    else:
        groups = columns.groups[rows]
        firsts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        prefixes = [columns.prefixes[group] for group in groups[firsts].tolist()]
    return _Plan(
        rows=rows,
        key_ends=offsets_of(key_lengths),
        key_lengths=key_lengths,
        hashes=hashes,
        sqns=sqns,
        times=times,
        table=hash_table(hashes, *table_shape(len(rows))),
        group_firsts=firsts,
        prefixes=prefixes,
        time_base=time_base,
        wide_sqns=int(sqns.max()) >= 1 << 32,
        wide_times=int(times.max()) - time_base >= 1 << 32,
        meta_lengths=meta_lengths,
        meta_ends=None if meta_lengths is None else offsets_of(meta_lengths),
        expires=columns.expiries is not None and bool(columns.expiries[rows].any()),
    )


def _section_lengths(plan: _Plan) -> dict[Section, int]:
    count = len(plan.rows)
    lengths = {
        Section.TABLE: plan.table.nbytes,
        Section.KEY_ENDS: 4 * (count + 1),
        Section.KEYS: int(plan.key_ends[-1]),
        Section.SQNS: (8 if plan.wide_sqns else 4) * count,
        Section.FLAGS: count,
        Section.SIZES: 4 * count,
        Section.TIMES: (8 if plan.wide_times else 4) * count,
        Section.HASHES: 4 * count,
        Section.FIRSTS: 4 * len(plan.group_firsts),
        Section.PREFIX_ENDS: 4 * (len(plan.prefixes) + 1),
        Section.PREFIXES: sum(map(len, plan.prefixes)),
    }
    if plan.expires:
        lengths[Section.EXPIRIES] = 8 * count
    if plan.meta_ends is not None:
        lengths[Section.META_ENDS] = 4 * (count + 1)
        lengths[Section.METAS] = int(plan.meta_ends[-1])
    return lengths


def _section(
    image: Bytes, sections: dict[Section, tuple[int, int]], kind: Section, dtype: str
) -> npt.NDArray[np.unsignedinteger]:
    offset, length = sections[kind]
    return image[offset : offset + length].view(dtype)


def _fill(
    image: Bytes,
    sections: dict[Section, tuple[int, int]],
    columns: Columns,
    plan: _Plan,
    data_at: int,
    even_keys: npt.NDArray[np.void] | None,
) -> None:
    """Write every section, and zeros between them. ``even_keys``: the keys, where they are of one
    length and stand end to end."""
    rows = plan.rows

    def column(kind: Section, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        return _section(image, sections, kind, dtype)

    end = data_at
    for offset, length in sections.values():
        image[end:offset] = 0
        end = offset + length
    column(Section.TABLE, "<u4")[:] = plan.table
    column(Section.KEY_ENDS, "<u4")[:] = plan.key_ends
    keys, into = columns.keys, column(Section.KEYS, "u1")
    if even_keys is not None:
        np.take(even_keys, rows, out=into.view(even_keys.dtype), mode="clip")
    else:
        fill(keys.blob, keys.starts[rows], plan.key_lengths, into, plan.key_ends[:-1])
    column(Section.SQNS, "<u8" if plan.wide_sqns else "<u4")[:] = plan.sqns
    take_into(columns.flags, rows, column(Section.FLAGS, "u1"))
    take_into(columns.sizes, rows, column(Section.SIZES, "<u4"))
    column(Section.HASHES, "<u4")[:] = plan.hashes
    if plan.wide_times:
        column(Section.TIMES, "<u8")[:] = plan.times
    else:
        column(Section.TIMES, "<u4")[:] = plan.times - np.uint64(plan.time_base)
    column(Section.FIRSTS, "<u4")[:] = plan.group_firsts
    prefix_lengths = np.array([len(prefix) for prefix in plan.prefixes], dtype=np.int64)
    column(Section.PREFIX_ENDS, "<u4")[:] = offsets_of(prefix_lengths)
    column(Section.PREFIXES, "u1")[:] = np.frombuffer(b"".join(plan.prefixes), np.uint8)
    if plan.expires and columns.expiries is not None:
        np.take(columns.expiries, rows, out=column(Section.EXPIRIES, "<u8"), mode="clip")
    metas = columns.metas
    if metas is not None and plan.meta_lengths is not None and plan.meta_ends is not None:
        column(Section.META_ENDS, "<u4")[:] = plan.meta_ends
        found, ends = metas.picked(rows), plan.meta_ends[:-1]
        fill(found.blob, found.starts, found.lengths, column(Section.METAS, "u1"), ends)
