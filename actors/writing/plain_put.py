"""The shortest path of a put or a delete of one key: one turn, one write.

A put concerns three actors: the Bookie knows the newest versions, the Inker which file is being
written, the file its bytes. Every append, and every change of the active file, happens in the
Bookie's turn; so that turn alone keeps all others from the file's end, and a put that only adds a
record takes no other turn. Whatever needs more (a roll, the ceiling, a full memory, a failed file)
takes the turns that it concerns, on the long path.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.writing.operation import APART_BYTES
from octavo.files.journal import record
from octavo.files.journal.record import LZ4
from octavo.files.kernels.freed_memory import keep_freed
from octavo.files.ledger import ledger_key as keys_of
from octavo.files.wall_clock import in_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.actors.bookie import Bookie
    from octavo.actors.writing.operation import Operation

_MUCH_BYTES = 32 << 10
"""Metadata and index entries from this size on are much: they are copied more than once."""
_REST = record.FRAME_BYTES - 16
"""Bytes that a record's size counts beside its optional fields, bucket, key and value."""


class PlainPut(Protocol):
    """(key, value) -> sqn. Both are bytes, already checked: the key is not empty, and at most 64
    KiB together with the bucket; the value is at most 1 MiB, and empty for a delete.

    ``told``: the whole operation, checked, if it has an expiry, metadata or index entries.
    ``expected``: the sqn that the key's live version must have, 0 for absent; below 0: no
    condition. Raises Conflict (nothing is written), StorageFull (nothing is kept),
    StorageFailed, Closed.
    """

    def __call__(
        self, key: bytes, value: bytes, told: Operation | None = None, expected: int = -1, /
    ) -> int: ...


def plain_puts(bookie: Bookie) -> Callable[[int, bytes, int], PlainPut]:
    """Make the function (tag, bucket, PUT or DELETE) -> PlainPut; all PlainPuts share its cells."""
    # Cells and constants: here, looking something up costs as much as doing something.
    turns, release = bookie.turns, bookie.turn_release
    cache, cached, empty = bookie.cache, bookie.cache.entries, bookie.empty_ranges.lows
    compress_from, packed_of = bookie.inker.compress_from, bookie.inker.compressor.packed
    pack, sums, now_ns = record.PLAIN.pack, record.pack_sums, in_ns(bookie.clock_ms)
    key_length, low_32, raw_size = record.CDB_KEY_LENGTH, record.LOW_32, record.pack_u32

    def plain_put(tag: int, bucket: bytes, kind: int) -> PlainPut:
        puts, prefix = kind == record.PUT, keys_of.prefix(tag, bucket)
        raw_middle, lz4_middle = (record.middle(kind, tag, f, len(bucket)) for f in (0, LZ4))

        def put(
            key: bytes, value: bytes, told: Operation | None = None, expected: int = -1, /
        ) -> int:
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
                at, relative = (offsets := active.offsets)[-1], len(offsets) - 1
                stored, middle, fields = value, raw_middle, bucket
                if len(value) >= compress_from and (packed := packed_of(value)) is not None:
                    stored, middle, fields = packed, lz4_middle, raw_size(len(value)) + bucket
                ledger_key, tail, expiry_ms, entries = prefix + key, key, 0, b""
                if expected >= 0:
                    bookie.check(ledger_key, key, expected)
                if told is not None:
                    expiry_ms, entries = told.expiry_ms, told.index_changes
                    middle, fields, tail = _with_more(told, middle, fields, key)
                size = _REST + len(fields) + len(tail) + len(stored)
                number, time_ms = relative.to_bytes(8, "big"), now_ns() // 1_000_000
                head = pack(key_length, size, number, middle, len(key) - 1, time_ms)
                h = xxh3(head := head + fields + tail, active.seed ^ at)
                check = sums(h & low_32, xxh3(stored, h) & low_32)
                written = head + check + stored if size < APART_BYTES else (head, check, stored)
                table = bookie.view.recent
                if table.newest_pin >= 0 and not entries:  # else table.enter does it
                    table.keep(ledger_key)
                if empty and puts:
                    bookie.take_back(ledger_key, told)
                end, sqn = at + size + 16, active.base + relative
                mapped, most, until_ms = active.write_map
                try:
                    if end <= most and time_ms < until_ms and size < APART_BYTES:
                        mapped[at:end] = written
                    else:
                        active.write(written, at, end - at)
                    offsets.append(end)  # it is a record now
                    active.commit.appended = end
                    entry = sqn if puts and not expiry_ms else -sqn
                    if expiry_ms:
                        table.expiring[sqn] = expiry_ms  # before anyone can find the entry
                    if told is not None and entries:
                        _enter(bookie, ledger_key, sqn, told)
                    elif ledger_key in cached:
                        cache.write_over(ledger_key, value, table.rows, entry)
                    else:
                        table.rows[ledger_key] = entry  # no call: see ReadCache
                except BaseException as error:
                    bookie.undo(active, error, sqn, written, end)
                    raise
                if sqn >= bookie.attention or end >= active.bound:
                    bookie.attend()
            finally:
                bookie.holder = 0
                release()
                if bookie.inbox:
                    bookie.schedule()
            if bookie.pause_seconds:
                bookie.wait_a_little()
            return sqn  # type: ignore[no-any-return]

        return put

    return plain_put


def _enter(bookie: Bookie, ledger_key: bytes, sqn: int, told: Operation) -> None:
    """Enter a put with index entries into memory; have attend() called if these fill it."""
    table = bookie.view.recent
    bookie.cache.write_without((ledger_key,), partial(table.enter, ledger_key, sqn, told))
    if table.entry_bytes >= bookie.limits.push_bytes:
        bookie.attention = 0


def _with_more(
    told: Operation, middle: bytes, fields: bytes, tail: bytes
) -> tuple[bytes, bytes, bytes]:
    """Add to these parts of a record the optional fields of ``told``."""
    flags, lengths, more = record.optional(told.expiry_ms, told.metadata, told.index_changes)
    if len(more) >= _MUCH_BYTES:
        keep_freed()
    return middle[:5] + bytes((middle[5] | flags,)) + middle[6:], lengths + fields, tail + more
