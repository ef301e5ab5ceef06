"""What one journal record is to say, on its way from the caller to the Inker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from octavo.files import index_terms, record
from octavo.files.errors import Misuse
from octavo.files.record import MAX_INDEX_BYTES

if TYPE_CHECKING:
    from octavo.actors.journal_file import JournalFile


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


@dataclass(frozen=True, slots=True)
class IndexEdit:
    """Entries that a put adds to those of the version it replaces, and takes from them. Parts
    as index_terms has them; a part of ``removed`` takes every entry that begins with it."""

    added: tuple[bytes, ...]
    removed: tuple[bytes, ...]


def resolved(
    operations: Sequence[Operation],
    ledger_keys: Sequence[bytes],
    edits: Mapping[int, IndexEdit],
    current: Callable[[bytes], bytes | None],
    now_ms: int,
) -> list[Operation]:
    """The operations with the whole sets of entries that their edits lead to.

    ``current`` gives the packed entries of a ledger key's live version; an earlier operation of
    the same key in ``operations`` counts before it, unless it has expired by ``now_ms``. Raises
    Misuse.
    """
    out = list(operations)
    edited = {ledger_keys[at] for at in edits}
    latest: dict[bytes, bytes] = {}
    for at, (operation, ledger_key) in enumerate(zip(operations, ledger_keys, strict=True)):
        edit = edits.get(at)
        if edit is not None:
            before = latest[ledger_key] if ledger_key in latest else current(ledger_key) or b""
            parts = {
                part
                for part in index_terms.unpacked(before)
                if not any(part.startswith(gone) for gone in edit.removed)
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


def encoded(
    file: JournalFile,
    operations: Sequence[Operation],
    stored: Sequence[tuple[bytes, int | None]],
    time_ms: int,
    atomic: bool,
) -> tuple[list[bytes], list[int]]:
    """The operations as records for a file's end, and where each ends; ``stored``: (bytes,
    original length if they are compressed) of each value."""
    at = file.offsets[-1]
    relative = len(file.offsets) - 1
    parts, ends = [], []
    for number, (operation, (value, raw_bytes)) in enumerate(zip(operations, stored, strict=True)):
        kind, tag, bucket, key, _, expiry_ms, metadata, index = operation
        data = record.encode(
            relative + number,
            file.seed ^ at,
            kind,
            tag,
            bucket,
            key,
            value,
            time_ms,
            expiry_ms=expiry_ms,
            metadata=metadata,
            index=index,
            raw_bytes=raw_bytes,
            batch=(number, len(operations)) if atomic else None,
        )
        parts.append(data)
        at += len(data)
        ends.append(at)
    return parts, ends
