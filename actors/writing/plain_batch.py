"""The shortest path of a small batch of plain puts and deletes: one turn, one write.

As plain_put.py, and for the same reasons, but with several operations on any keys: they are in the
journal together or not at all, and are whole there before memory has the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.actors.writing.operation import Operation, encoded, packed_values
from octavo.files.journal.record import PUT
from octavo.files.wall_clock import in_ns

if TYPE_CHECKING:
    from octavo.actors.bookie import Bookie

MOST, MOST_BYTES = 256, 64 << 10
"""The most operations of such a batch, and bytes of their buckets, keys and values. So few need no
check of the ceiling or of the file's room: the Inker looks at both long before they run out."""
PlainBatch: TypeAlias = "Callable[[Sequence[Operation], Sequence[bytes], int], int]"
"""(operations, their ledger keys, bytes of all) -> the last sqn. One to MOST operations, MOST_BYTES
at most, without expiry, metadata or index entries, all checked. Raises StorageFull (nothing is
kept), StorageFailed, Closed."""


def plain_batches(bookie: Bookie) -> PlainBatch:
    """Make the function that writes such batches into a store."""
    turns, release = bookie.turns, bookie.turn_release
    cache, cached, empty = bookie.cache, bookie.cache.entries, bookie.empty_ranges.lows
    compress_from, packed_of = bookie.inker.compress_from, bookie.inker.compressor.packed
    now_ns = in_ns(bookie.clock_ms)

    def write(operations: Sequence[Operation], ledger_keys: Sequence[bytes], size: int) -> int:
        me = get_ident()
        for mine in turns:
            if not mine:
                bookie.enter()
            break
        try:
            bookie.holder = me
            if bookie.inbox:
                bookie.catch_up()
            active: Any = bookie.active
            if active is None or active.failed is not None:
                bookie.refuse()
            packed: dict[int, bytes] = {}
            if size >= compress_from:
                packed = packed_values(operations, compress_from, packed_of)
            # A single record is there or not in any case.
            atomic = len(operations) > 1
            time_ms = now_ns() // 1_000_000
            parts, ends = encoded(active, operations, packed, time_ms, atomic)
            offsets, written = active.offsets, b"".join(parts)
            at, end = offsets[-1], ends[-1]
            first = sqn = active.base + len(offsets) - 1
            table = bookie.view.recent
            if table.newest_pin >= 0:
                for ledger_key in ledger_keys:
                    table.keep(ledger_key)
            if empty:
                for ledger_key in ledger_keys:
                    bookie.take_back(ledger_key, None)
            try:
                mapped, most, until_ms = active.write_map
                if end <= most and time_ms < until_ms:
                    mapped[at:end] = written
                else:
                    active.write(written, at, end - at)
                offsets.fromlist(ends)  # they are records now, all at once
                active.commit.appended = end
                rows = table.rows
                for ledger_key, operation in zip(ledger_keys, operations, strict=True):
                    entry = sqn if operation[0] == PUT else -sqn
                    if ledger_key in cached:
                        cache.write_over(ledger_key, operation[4], rows, entry)
                    else:
                        rows[ledger_key] = entry  # no call: see ReadCache
                    sqn += 1
            except BaseException as error:
                bookie.undo(active, error, first, written, ends)
                raise
            if sqn > bookie.attention or end >= active.bound:
                bookie.attend()
        finally:
            bookie.holder = 0
            release()
            if bookie.inbox:
                bookie.schedule()
        if bookie.pause_seconds:
            bookie.wait_a_little()
        return sqn - 1  # type: ignore[no-any-return]

    return write
