"""The change feed: gives the journal's records as events."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from octavo.actors.bookie import Bookie
from octavo.actors.opening.tags import STANDARD
from octavo.actors.reader import STEP, Reader
from octavo.actors.reading.values_ahead import ask_in_order
from octavo.files.errors import Corruption, HistoryCompacted
from octavo.files.journal.plain_event import PlainEvent, event_of
from octavo.files.journal.record import DELETE, KEY_DELTA, PUT, Record
from octavo.files.ledger import head_key
from octavo.files.ledger.index_terms import Term, terms_by_field
from octavo.files.ledger.ledger_key import HEAD_ONLY

_AHEAD_BYTES = 1 << 20
_KINDS: dict[int, Literal["put", "delete", "delta"]] = {
    PUT: "put",
    DELETE: "delete",
    KEY_DELTA: "delta",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One operation, as it stands in the journal.

    ``sqn``: Its sequence number.
    ``kind``: "put", "delete", or "delta": all but the value of a put that was replaced since, which
        the strategy "retain" keeps; only in a journal that was compacted. There a put that was to
        expire may be left as a "delete" of its key.
    ``bucket``: Name of its bucket.
    ``key``: Its key.
    ``value``: The value of a put; None for a delete and a delta.
    ``metadata``: The metadata of the put.
    ``written_at``: When it was written, ms UTC.
    ``expires_at``: Moment from which the key reads as absent, ms UTC; None: never.
    ``batch``: (position from 0, length) of its atomic batch; None: written alone, or compaction
        dropped a part of it.
    ``tag``: The type of the object; "head_only" in a head-only store.
    ``index``: The whole set of the put's index entries: terms by field.
    ``sub_key``: Its sub-key in a head-only store; otherwise empty.
    """

    sqn: int
    kind: Literal["put", "delete", "delta"]
    bucket: bytes
    key: bytes
    value: bytes | None
    metadata: bytes
    written_at: int
    expires_at: int | None
    batch: tuple[int, int] | None
    tag: str = STANDARD
    index: Mapping[bytes, Sequence[Term]] = field(default_factory=dict, hash=False)
    sub_key: bytes = b""


class _Draft:
    """A change in the making, whose fields are plain attributes: setting those of a frozen
    dataclass takes a call each, ten times as long."""

    __slots__ = tuple(one.name for one in fields(Change))


def _plain_change(sqn: int, found: PlainEvent, names: dict[int, str]) -> Change:
    made: Any = _Draft()
    kind, tag, made.bucket, made.key, value, made.written_at = found
    made.sqn = sqn
    if kind == PUT:
        made.kind, made.value = "put", value
    else:
        made.kind, made.value = "delete", None
    made.metadata = made.sub_key = b""
    made.expires_at = made.batch = None
    made.tag = names.get(tag, "")
    made.index = {}
    made.__class__ = Change
    return made  # type: ignore[no-any-return]


def _change(whole: Record, file: str, names: dict[int, str]) -> Change:
    key, sub_key, value, metadata = whole.key, b"", whole.value, whole.metadata
    name = names.get(whole.tag, "")
    if whole.tag == HEAD_ONLY:
        name, (key, sub_key) = "head_only", head_key.apart(key)
        value, metadata = metadata, b""
    return Change(
        whole.sqn,
        _KINDS[whole.kind],
        whole.bucket,
        key,
        value if whole.kind == PUT else None,
        metadata,
        whole.time_ms,
        whole.expiry_ms or None,
        whole.batch,
        name,
        terms_by_field(whole.index_changes, file) if whole.index_changes else {},
        sub_key,
    )


def changes(
    bookie: Bookie, since: int, *, compacted: bool, names: dict[int, str]
) -> Iterator[Change]:
    """Yield the durable changes above ``since`` (exclusive), in sqn order, up to the newest now:
    see Store.changes; ``names`` as for ``changes_of``. Reads through a lease, and renews it as it
    goes on."""
    reader = Reader(bookie)
    try:
        # Only now that the lease is taken: what is dropped later stays in the files that it holds.
        refuse_gap(since, bookie.inker.manifest.horizon, compacted=compacted)
    except HistoryCompacted:
        reader.close()
        raise
    return _changes(bookie, reader, since, names)


def refuse_gap(since: int, horizon: int, *, compacted: bool) -> None:
    """Raise HistoryCompacted if compaction dropped changes above ``since``, unless the caller takes
    what is left (``compacted``)."""
    if since < horizon and not compacted:
        raise HistoryCompacted(
            f"since={since}: the journal is complete only above sqn {horizon}, for it was "
            "compacted; begin there, or take what is left: compacted=True, or --compacted"
        )


def _changes(bookie: Bookie, reader: Reader, since: int, names: dict[int, str]) -> Iterator[Change]:
    bookie.inker.make_durable(reader.sqn)
    yield from changes_of(reader, since, names)
    reader.close()  # not in a finally: the collector may end this, and must not ask for a turn


def changes_of(reader: Reader, since: int, names: dict[int, str]) -> Iterator[Change]:
    """Yield the changes above ``since`` (exclusive) that a reader sees; ``names``: the types' names
    by their numbers. Raises SnapshotExpired, Corruption."""
    upto = reader.sqn
    try:
        number = 0
        journal = reader.view.journal
        for file in journal.files[max(bisect_right(journal.bases, since + 1) - 1, 0) :]:
            if file.base > upto:
                break
            if file.missing:
                raise Corruption(
                    file.path, 0,
                    f"the journal file is missing, with the changes from sqn {file.base} to the "
                    "next file: begin after those, or repair the store with accept_missing",
                )  # fmt: skip
            if not file.offsets:
                file.ensure_open()
            if (wrong := file.damage) is not None:
                raise Corruption(
                    file.path, wrong.offset,
                    f"{wrong.what}; changes from sqn {file.base} to the next file may be missing: "
                    "repair the store, which lists what is lost",
                )  # fmt: skip
            asked = 0
            for sqn in file.sqns(since + 1, upto):
                if not number % STEP:
                    reader.step()
                number += 1
                data, at = file.raw(sqn - file.base)
                if at >= asked:
                    ask_in_order(file, at, at + 2 * _AHEAD_BYTES)
                    asked = at + _AHEAD_BYTES
                found = event_of(data, file.seed ^ at, sqn - file.base)
                if found is None:
                    yield _change(file.read(sqn), file.path, names)
                    continue
                yield _plain_change(sqn, found, names)
    except FileNotFoundError as missing:
        raise reader.gone(missing) from missing
    except Corruption as damage:
        reader.damaged(damage)
        raise
