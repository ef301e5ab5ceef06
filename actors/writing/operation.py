"""An operation: what one journal record is to say, on its way from the caller to the Inker; and
encoding many of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Misuse
from octavo.files.journal import record
from octavo.files.journal.record import MAX_INDEX_BYTES
from octavo.files.kernels.freed_memory import MUCH_BYTES, keep_freed
from octavo.files.ledger import index_terms

if TYPE_CHECKING:
    from octavo.actors.journal_file import JournalFile
    from octavo.files.door.disk import AppendFile


_WRITE_BYTES = 256 << 10
"""How much of many puts goes into one system call: more would not fit the processor's caches."""
APART_BYTES = 8 << 10
"""Values from this size on are not copied into one buffer with what stands before them."""
Data = bytes | Sequence[bytes]
"""Bytes, or the parts that joined make them."""
Ends = list[int] | int
"""Where records end: of many, or of one, as there may be no memory left for a list."""


class Operation(NamedTuple):
    """One put or delete."""

    kind: int
    tag: int
    bucket: bytes
    key: bytes
    value: bytes
    expiry_ms: int = 0
    """0: never."""
    metadata: bytes = b""
    index_changes: bytes = b""
    """The object's whole set of index entries: see index_terms.packed."""

    def entry_keys(self) -> list[bytes]:
        """Ledger keys of its index entries."""
        return index_terms.ledger_keys(self.tag, self.bucket, self.key, self.index_changes)


@dataclass(frozen=True, slots=True)
class IndexEdit:
    """What a put adds to, and removes from, the index entries of the version that it replaces.
    Parts as in index_terms; a part in ``removed`` removes every entry that begins with it."""

    added: tuple[bytes, ...]
    removed: tuple[bytes, ...]


def resolved(
    operations: Sequence[Operation],
    ledger_keys: Sequence[bytes],
    edits: Mapping[int, IndexEdit],
    current: Callable[[bytes], bytes | None],
    now_ms: int,
) -> list[Operation]:
    """The operations, those with an edit now with the whole set of entries that it leads to.

    ``current`` gives the packed entries of a ledger key's live version. An earlier operation of the
    same key in ``operations`` takes its place; one that has expired by ``now_ms`` has no entries.
    Raises Misuse.
    """
    out = list(operations)
    edited = {ledger_keys[at] for at in edits}
    latest: dict[bytes, bytes] = {}
    for at, (operation, ledger_key) in enumerate(zip(operations, ledger_keys, strict=True)):
        edit = edits.get(at)
        if edit is not None:
            before = latest[ledger_key] if ledger_key in latest else current(ledger_key) or b""
            parts = {
                part for part in index_terms.unpacked(before) if not part.startswith(edit.removed)
            }
            parts.update(edit.added)
            out[at] = operation._replace(index_changes=packed_index(parts))
        if ledger_key in edited:
            expired = 0 < operation.expiry_ms <= now_ms
            latest[ledger_key] = b"" if expired else out[at].index_changes
    return out


def packed_index(parts: Collection[bytes]) -> bytes:
    """A set of entry parts as a record carries it. Raises Misuse if it is too large."""
    if len(parts) > index_terms.MAX_ENTRIES:
        raise Misuse(
            f"index has {len(parts)} entries: at most {index_terms.MAX_ENTRIES} a key are allowed"
        )
    packed = index_terms.packed(parts)
    if len(packed) > MAX_INDEX_BYTES:
        raise Misuse(f"index of {len(packed)} bytes: at most {MAX_INDEX_BYTES} a key are allowed")
    return packed


def packed_values(
    operations: Sequence[Operation],
    compress_from: int,
    packed_of: Callable[[bytes], bytes | None],
) -> dict[int, bytes]:
    """By the place of their operation: the values from ``compress_from`` bytes on that
    ``packed_of`` compresses, compressed. It leaves others as they are, by giving None."""
    return {
        number: packed
        for number, operation in enumerate(operations)
        if len(operation[4]) >= compress_from and (packed := packed_of(operation[4])) is not None
    }


def encoded(
    file: JournalFile,
    operations: Sequence[Operation],
    packed: Mapping[int, bytes],
    time_ms: int,
    atomic: bool,
) -> tuple[list[bytes], list[int]]:
    """Encode the operations as records for a file's end: (parts to join, where each record ends).
    ``packed``: compressed values, by the place of their operation."""
    at, seed = file.offsets[-1], file.seed
    relative, count = len(file.offsets) - 1, len(operations)
    pack, pair, sums = record.PLAIN.pack, record.pack_pair, record.pack_sums
    key_length, low_32 = record.CDB_KEY_LENGTH, record.LOW_32
    batched, more = (record.BATCH, 8) if atomic else (0, 0)
    alike_kind = alike_tag = -1
    alike_bucket = middle = b""
    rest = 0
    parts: list[bytes] = []
    ends: list[int] = []
    for number, operation in enumerate(operations):
        kind, tag, bucket, key, value, expiry_ms, metadata, index = operation
        if not (expiry_ms or metadata or index or number in packed):
            # As record.encode, whose lines are repeated here for records without optional fields.
            if bucket is not alike_bucket or kind != alike_kind or tag != alike_tag:
                alike_kind, alike_tag, alike_bucket = kind, tag, bucket
                middle = record.middle(kind, tag, batched, len(bucket))
                rest = record.FRAME_BYTES - 16 + more + len(bucket)
            size = rest + len(key) + len(value)
            sqn = (relative + number).to_bytes(8, "big")
            head = pack(key_length, size, sqn, middle, len(key) - 1, time_ms)
            head += (pair(number, count) + bucket + key) if atomic else bucket + key
            h = xxh3(head, seed ^ at)
            parts += (head, sums(h & low_32, xxh3(value, h) & low_32), value)
            at += size + 16
            ends.append(at)
            continue
        small = packed.get(number)
        data = record.encode(
            relative + number, seed ^ at, kind, tag, bucket, key,
            value if small is None else small, time_ms,
            expiry_ms=expiry_ms, metadata=metadata, index=index,
            raw_bytes=None if small is None else len(value),
            batch=(number, count) if atomic else None,
        )  # fmt: skip
        parts.append(data)
        at += len(data)
        ends.append(at)
    if at - file.offsets[-1] >= MUCH_BYTES:
        keep_freed()
    return parts, ends


def plain_encoded(
    file: JournalFile,
    kind: int,
    tag: int,
    bucket: bytes,
    pairs: Sequence[tuple[bytes, bytes]],
    time_ms: int,
    compress_from: int,
    packed_of: Callable[[bytes], bytes | None],
) -> Iterator[tuple[Data, list[int]]]:
    """Encode records without optional fields, all puts or all deletes, for a file's end, a piece at
    a time: (what to write, where each of its records ends). Values from ``compress_from`` bytes on
    are compressed by ``packed_of``, unless it gives None."""
    start, seed = file.offsets[-1], file.seed
    numbers = record.numbers(len(file.offsets) - 1, len(pairs))
    pack, sums, raw_size = record.PLAIN.pack, record.pack_sums, record.pack_u32
    key_length, low_32 = record.CDB_KEY_LENGTH, record.LOW_32
    raw_middle = record.middle(kind, tag, 0, len(bucket))
    lz4_middle = record.middle(kind, tag, record.LZ4, len(bucket))
    rest = record.FRAME_BYTES - 16 + len(bucket)
    parts: list[bytes] = []
    ends: list[int] = []
    at, full = start, start + _WRITE_BYTES
    for (key, value), number in zip(pairs, numbers, strict=True):
        middle, fields, size = raw_middle, bucket, rest
        if len(value) >= compress_from and (packed := packed_of(value)) is not None:
            middle, size = lz4_middle, rest + 4
            fields, value = raw_size(len(value)) + bucket, packed
        size += len(key) + len(value)
        head = pack(key_length, size, number, middle, len(key) - 1, time_ms) + fields + key
        h = xxh3(head, seed ^ at)
        parts += (head, sums(h & low_32, xxh3(value, h) & low_32), value)
        at += size + 16
        ends.append(at)
        if at >= full:
            large = len(ends) * APART_BYTES <= _WRITE_BYTES
            yield parts if large else b"".join(parts), ends
            parts, ends = [], []
            full = at + _WRITE_BYTES
    if parts:
        yield b"".join(parts), ends
    if at - start >= MUCH_BYTES:
        keep_freed()


def joined(data: Data) -> bytes:
    """``data`` as one buffer."""
    return data if isinstance(data, bytes) else b"".join(data)


def standing(
    file: AppendFile, at: int, data: bytes, ends: Sequence[int], atomic: bool
) -> Sequence[int]:
    """Where those records end that stand whole in the file after an append of ``data`` at ``at``
    was cut short; ``atomic``: all records or none."""
    whole, start = 0, at
    for end in ends:
        if not file.holds(memoryview(data)[start - at : end - at], start):
            break
        whole, start = whole + 1, end
    return ends[:whole] if whole == len(ends) or not atomic else ()
