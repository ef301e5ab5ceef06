"""Works out ledger rows from values: a rebuild does so for types under the strategy "recalc"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.actors.journal_file import JournalFile
from octavo.actors.opening.tags import NamedTag
from octavo.actors.view import JournalView
from octavo.actors.writing.derivation import derived_index, derived_metadata
from octavo.files.errors import Corruption
from octavo.files.journal import record
from octavo.files.journal.record import Record
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import column_of
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Rows
from octavo.files.messages import messages_of

log = messages_of("octavo.recovery")

MOST_TOLD = 20
"""How many failures of a stretch are named in the store's notes; the log has all."""


def recalculated(
    journal: JournalView, since: int, upto: int, tags: Mapping[int, NamedTag], notes: list[str]
) -> Rows | None:
    """The rows of the records (since, upto] of these types, with the metadata and index entries
    that the types' functions give now; None if there are none.

    Reads the newest value of each key. If a function fails, or the value is damaged, the record's
    own are taken and ``notes`` says so. Records with damaged headers are left out: the job for the
    other types reports them.
    """
    newest: dict[bytes, tuple[JournalFile, int]] = {}
    for file in journal.files:
        if file.base > upto:
            break
        for sqn in file.sqns(since + 1, upto):
            try:
                header = file.header(sqn)
            except Corruption as damage:
                log.debug("%s", damage)
                continue
            if header.tag in tags and header.kind != record.KEY_DELTA:
                newest[ledger_key.prefix(header.tag, header.bucket) + header.key] = (file, sqn)
    keys: list[bytes] = []
    metas: list[bytes] = []
    columns: list[tuple[int, int, int, int, int]] = []  # sqn, flags, size, time, expiry
    told: list[str] = []
    for key, (file, sqn) in newest.items():
        header = file.header(sqn)
        metadata, index = header.metadata, header.index_changes
        if header.kind == record.PUT:
            try:
                metadata, index = _derived(tags[header.tag], file.read(sqn))
            except Corruption as damage:
                told.append(f"{damage}: what its record says is taken")
            except Exception as failed:  # noqa: BLE001 - the user's code: anything may come
                told.append(
                    f"{file.path}: sqn {sqn}: a function of type {tags[header.tag].name!r} "
                    f"failed, so what its record says is taken: {failed!r}"
                )
        flags = TOMBSTONE if header.kind == record.DELETE else 0
        flags |= EXPIRES if header.expiry_ms else 0
        keys.append(key)
        metas.append(metadata)
        columns.append((sqn, flags, header.size, header.time_ms, header.expiry_ms))
        if header.kind == record.PUT:
            entries = index_terms.ledger_keys(header.tag, header.bucket, header.key, index)
            keys += entries
            metas += [b""] * len(entries)
            columns += [(sqn, flags, 0, header.time_ms, header.expiry_ms)] * len(entries)
    for line in told:
        log.error("%s", line)
    notes += told[:MOST_TOLD]
    if len(told) > MOST_TOLD:
        notes.append(f"and {len(told) - MOST_TOLD} more, which the log names")
    return _rows(keys, metas, columns) if keys else None


def _derived(named: NamedTag, whole: Record) -> tuple[bytes, bytes]:
    """(metadata, packed index entries) that a type's functions give for a record."""
    metadata, index = whole.metadata, whole.index_changes
    name, tag = named
    if tag.metadata is not None:
        metadata = derived_metadata(name, tag.metadata, whole.key, whole.value)
    if tag.index is not None:
        index = derived_index(name, tag.index, whole.key, whole.value)
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
        metas=column_of(metas).strings() if any(metas) else None,
    )
