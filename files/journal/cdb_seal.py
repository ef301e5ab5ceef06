"""Builds the hash tables that turn a full journal file into stock CDB, and the trailer behind."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.journal.cdb import (
    HEADER_KEY,
    POINTERS_BYTES,
    TRAILER_BYTES,
    Origin,
    Trailer,
    origin_bytes,
    trailer_bytes,
)
from octavo.files.journal.sparse_offsets import SPARSE_BELOW, plain
from octavo.files.kernels.arrays import distinct, np, npt

_AT_A_TIME = 1 << 16
"""Entries worked on at a time, unless one table has more."""
_ROW_BITS = 32
_TABLES = 256
_MANY = 1 << 13
"""From so many entries on it is worth while to look whether their numbers have no gaps."""


def _cdb_hashes(relative: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """CDB's hash of each number written as 8 bytes big-endian."""
    high = int(relative.max(initial=0))
    alike = max((64 - high.bit_length()) // 8, 0)  # first bytes that are 0 in all of them
    h = np.full(len(relative), 5381 * 33**alike & 0xFFFFFFFF, dtype=np.uint32)
    for shift in range(56 - 8 * alike, -8, -8):
        byte = (relative >> np.uint64(shift)).astype(np.uint8)
        np.multiply(h, np.uint32(33), out=h)
        np.bitwise_xor(h, byte, out=h)
    return h


def _header_hash() -> int:
    h = 5381
    for byte in HEADER_KEY:
        h = (((h << 5) + h) & 0xFFFFFFFF) ^ byte
    return h


def hash_tables(
    relative: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint32], at: int
) -> tuple[bytes, memoryview]:
    """(pointers, tables) of a CDB whose tables begin at ``at``; the header pair is included.

    Array kernels only, over some tables at a time, so that their data stays in the processor's
    cache. ``relative`` is ascending.
    """
    many = len(relative) >= _MANY
    if many and int(relative[0]) == 0 and int(relative[-1]) == len(relative) - 1:
        return _pointers(*_without_gaps(positions), at)
    hashes = np.concatenate([np.array([_header_hash()], np.uint32), _cdb_hashes(relative)])
    where = np.concatenate([np.array([POINTERS_BYTES], np.uint32), positions])
    table = hashes.astype(np.uint8)
    by_table = np.argsort(table, kind="stable")
    counts = np.bincount(table, minlength=_TABLES).astype(np.int64)
    ends = np.cumsum(counts)
    out = np.zeros((2 * len(hashes), 2), dtype="<u4")
    done, low = 0, 0
    while done < _TABLES:
        until = max(int(np.searchsorted(ends, low + _AT_A_TIME, side="right")), done + 1)
        high = int(ends[until - 1])
        rows = by_table[low:high]
        if len(rows):
            _fill(out[2 * low : 2 * high], hashes[rows], where[rows], counts[done:until])
        done, low = until, high
    return _pointers(out, counts, at)


def _pointers(
    out: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], at: int
) -> tuple[bytes, memoryview]:
    pointers = np.empty((_TABLES, 2), dtype="<u4")
    pointers[:, 0] = at + 16 * (np.cumsum(counts) - counts)
    pointers[:, 1] = 2 * counts
    return pointers.tobytes(), out.data.cast("B")


def _without_gaps(
    positions: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """(the tables, how many entries each has) for records that are numbered from 0 on.

    256 numbers that differ only in their last byte go to 256 different tables, and to the same
    slot in each. So one table of each size is worked out, and the others are filled like it: a
    quarter of the cost.
    """
    count = len(positions)
    first = _cdb_hashes(np.arange(0, count, _TABLES, dtype=np.uint64))
    each = np.arange(_TABLES, dtype=np.uint8)
    grid = np.zeros((len(first), _TABLES), dtype=np.uint32)
    grid.reshape(-1)[:count] = positions
    place = each ^ first.astype(np.uint8)[:, None]  # of a table's number among the 256
    of_tables = np.ascontiguousarray(np.take_along_axis(grid, place.astype(np.intp), axis=1).T)
    whole, rest = divmod(count, _TABLES)
    counts = np.full(_TABLES, whole, dtype=np.int64)
    counts[place[-1] < rest] += whole < len(first)
    header = _header_hash()
    own = header % _TABLES
    counts[own] += 1
    like = {size: _order(first[:size]) for size in (whole, len(first))}
    out = np.zeros((2 * (count + 1), 2), dtype="<u4")
    low = 0
    for table, size in enumerate(counts.tolist()):
        part = out[2 * low : 2 * (low + size)]
        low += size
        size -= table == own
        entries = np.zeros((size + 1, 2), dtype="<u4")
        entries[:size, 0] = (first[:size] & np.uint32(0xFFFFFF00)) | np.uint32(table)
        entries[:size, 1] = of_tables[table, :size]
        if table == own:
            entries[size] = header, POINTERS_BYTES
            entries = np.roll(entries, 1, axis=0)
            _fill(part, entries[:, 0], entries[:, 1], np.array([size + 1]))
        else:
            part.view("<u8")[:, 0] = entries.view("<u8")[:, 0][like[size]]
    return out, counts


def _order(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Which of the entries each slot of their table holds; ``len(hashes)`` for an empty slot."""
    count = len(hashes)
    slots = np.zeros((2 * count, 2), dtype="<u4")
    _fill(slots, hashes, np.arange(1, count + 1, dtype=np.uint32), np.array([count]))
    order: npt.NDArray[np.int64] = slots[:, 1].astype(np.int64) - 1
    order[order < 0] = count
    return order


def _fill(
    out: npt.NDArray[np.uint32],
    hashes: npt.NDArray[np.uint32],
    where: npt.NDArray[np.uint32],
    counts: npt.NDArray[np.int64],
) -> None:
    """Fill neighbouring tables of twice as many slots as entries. The entries come table by table,
    ``counts`` of them each.

    Linear probing without inserting one by one: with the entries in the order of their home
    slots, entry i ends at the larger of its home and the slot behind entry i - 1. Entries that run
    over the end of a table take its first free slots, in any order, since every slot from their
    home to there is full. While this is worked out, each table has room for all its entries behind
    its end, so that tables do not run into each other.
    """
    table = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    slots = 2 * counts
    starts = np.cumsum(slots) - slots
    roomy = np.cumsum(slots + counts) - (slots + counts)
    home = roomy[table] + ((hashes >> np.uint32(8)) % slots.astype(np.uint32)[table])
    sequence = np.arange(len(table), dtype=np.int64)
    ordered = np.sort((home << _ROW_BITS) | sequence)  # cheaper than to sort numbers of rows
    order, home = ordered & ((1 << _ROW_BITS) - 1), ordered >> _ROW_BITS
    slot = np.maximum.accumulate(home - sequence) + sequence - roomy[table]
    fits = slot < slots[table]
    taken = order if bool(fits.all()) else order[fits]
    into = starts[table[taken]] + slot[fits]
    out[into, 0], out[into, 1] = hashes[taken], where[taken]
    over = order[~fits]
    for number in distinct(table[over]).tolist():
        late = over[table[over] == number]
        part = out[int(starts[number]) : int(starts[number] + slots[number])]
        free = np.flatnonzero(part[:, 1] == 0)[: len(late)]  # no record stands at 0
        part[free, 0], part[free, 1] = hashes[late], where[late]


def sealing(
    offsets: bytes | memoryview | npt.NDArray[np.uint32],
    seed: int,
    first_ms: int,
    last_ms: int,
    windows: bytes = b"",
    room: int = 0,
) -> tuple[bytes, bytes]:
    """(the 2048 bytes at the front, everything behind the records) that seal a journal file.

    ``offsets`` has count + 1 entries, the last of which is where the records end. ``windows``: the
    checksums of their windows, or nothing. The part behind the records has at least ``room``
    bytes: zeros fill up the tables. O(records), array kernels.
    """
    table = np.frombuffer(offsets, dtype=np.uint32)
    live = np.flatnonzero(table[1:] > table[:-1])
    starts = table if len(live) == len(table) - 1 else np.append(table[live], table[-1])
    return _sealing(
        live.view(np.uint64), starts, table, seed, (first_ms, last_ms), windows, room=room
    )


def compacted_sealing(
    numbers: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.uint32],
    count: int,
    seed: int,
    times_ms: tuple[int, int],
    origin: Origin,
    windows: bytes = b"",
) -> tuple[bytes, bytes]:
    """As ``sealing``, for a compacted file: of its ``count`` numbers only ``numbers`` have a
    record; ``starts`` has one entry more than these, for the end."""
    if SPARSE_BELOW * len(numbers) < count:
        table = np.concatenate([numbers, starts])
    else:
        table = plain(numbers, starts, count)
    wide = numbers.astype(np.uint64)
    return _sealing(wide, starts, table, seed, times_ms, windows, count=count, origin=origin)


def _sealing(
    numbers: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.uint32],
    table: npt.NDArray[np.uint32],
    seed: int,
    times_ms: tuple[int, int],
    windows: bytes,
    *,
    count: int | None = None,
    origin: Origin | None = None,
    room: int = 0,
) -> tuple[bytes, bytes]:
    records_end = int(starts[-1])
    pointers, tables = hash_tables(numbers, starts[:-1], records_end)
    stored_offsets = table.astype("<u4", copy=False).data.cast("B")
    before = b"" if origin is None else origin_bytes(origin)
    others = len(stored_offsets) + len(windows) + len(before) + TRAILER_BYTES
    tables_bytes = max(len(tables), room - others)
    if len(tables) < tables_bytes:
        tables = memoryview(bytes(tables).ljust(tables_bytes, b"\0"))
    count = len(table) - 1 if count is None else count
    trailer = Trailer(
        count=count,
        live=len(numbers),
        seed=seed,
        first_ms=times_ms[0],
        last_ms=times_ms[1],
        tables_at=records_end,
        offsets_at=records_end + len(tables),
        pointers_sum=xxh3(pointers),
        tables_sum=xxh3(tables),
        offsets_sum=xxh3(stored_offsets),
        sparse=len(table) != count + 1,
        compacted=origin is not None,
        windows=bool(windows),
    )
    return pointers, b"".join((tables, stored_offsets, windows, before, trailer_bytes(trailer)))
