"""Ledger rows worked out from values: what a rebuild takes for types under "recalc"."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from octavo.actors.index_sets import index_parts
from octavo.actors.operation import packed_index
from octavo.actors.tags import Tag
from octavo.actors.view import JournalView
from octavo.files import index_terms, ledger_key, record
from octavo.files.errors import Corruption
from octavo.files.hashing import hash_column
from octavo.files.journal_rows import column_of
from octavo.files.record import Record
from octavo.files.rows import EXPIRES, TOMBSTONE, Rows

log = logging.getLogger("octavo.recovery")


def recalculated(
    journal: JournalView, since: int, upto: int, tags: Mapping[int, Tag], notes: list[str]
) -> Rows | None:
    """The rows of the records (since, upto] of these types, their metadata and index entries as
    the types' functions say now; None if there are none.

    Reads every value of the types. Where a function fails, the record's own are taken and
    ``notes`` says so; damaged records are left out, as the job for the others tells of them.
    """
    keys: list[bytes] = []
    metas: list[bytes] = []
    columns: list[tuple[int, int, int, int, int]] = []  # sqn, flags, size, time, expiry
    for file in journal.files:
        if file.base > upto:
            break
        for sqn in file.sqns(since + 1, upto):
            try:
                header = file.header(sqn)
                if header.tag not in tags or header.kind == record.KEY_DELTA:
                    continue
                whole = file.read(sqn)
            except Corruption as damage:
                log.debug("%s", damage)
                continue
            metadata, index = whole.metadata, whole.index_changes
            if whole.kind == record.PUT:
                try:
                    metadata, index = derived(tags[whole.tag], whole)
                except Exception as failed:  # noqa: BLE001 - the user's code: anything may come
                    told = f"{file.path}: sqn {sqn}: its type's functions failed: {failed!r}"
                    log.error("%s", told)
                    notes.append(told)
            flags = TOMBSTONE if whole.kind == record.DELETE else 0
            flags |= EXPIRES if whole.expiry_ms else 0
            keys.append(ledger_key.prefix(whole.tag, whole.bucket) + whole.key)
            metas.append(metadata)
            columns.append((sqn, flags, whole.size, whole.time_ms, whole.expiry_ms))
            if whole.kind == record.PUT:
                entries = index_terms.ledger_keys(whole.tag, whole.bucket, whole.key, index)
                keys += entries
                metas += [b""] * len(entries)
                row = (sqn, flags, 0, whole.time_ms, whole.expiry_ms)
                columns += [row] * len(entries)
    return _rows(keys, metas, columns) if keys else None


def derived(tag: Tag, whole: Record) -> tuple[bytes, bytes]:
    """(metadata, packed index entries) that a type's functions give for a record."""
    metadata, index = whole.metadata, whole.index_changes
    if tag.metadata is not None:
        found = tag.metadata(whole.key, whole.value)
        metadata = found.encode() if isinstance(found, str) else bytes(found)
    if tag.index is not None:
        index = packed_index(index_parts(tag.index(whole.key, whole.value)))
    return metadata, index


def _rows(
    keys: Sequence[bytes],
    metas: Sequence[bytes],
    columns: Sequence[tuple[int, int, int, int, int]],
) -> Rows:
    sqns, flags, sizes, times, expiries = (
        np.array(column, dtype=np.uint64) for column in zip(*columns, strict=True)
    )
    column = column_of(keys)
    return Rows(
        keys=column,
        hashes=hash_column(column),
        sqns=sqns,
        flags=flags.astype(np.uint8),
        sizes=sizes.astype(np.uint32),
        times=times,
        expiries=expiries if bool(expiries.any()) else None,
        metas=column_of(metas) if any(metas) else None,
    )
