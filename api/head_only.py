"""Head-only stores: small values that live in the ledger, under a key and a sub-key.

The journal holds an operation only until the ledger has it; then ``Store.trim`` drops it. So reads
of what is merged never touch the journal, and the ledger cannot be made anew from it: a backup of
such a store always has the ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar, overload

from octavo.actors.latency import Meter
from octavo.actors.opening.startup import Running
from octavo.actors.reader import STEP, Reader
from octavo.actors.scanning.scan_sources import FIRST_WINDOW
from octavo.actors.writing.operation import Operation
from octavo.actors.writing.plain_put import PlainPut
from octavo.actors.writing.reserve import RECORD
from octavo.arguments import (
    Key,
    Value,
    to_bucket,
    to_bytes,
    to_condition,
    to_expiry,
    to_flag,
    to_sync,
)
from octavo.batch import Together
from octavo.files.errors import Misuse
from octavo.files.journal.record import DELETE, MAX_METADATA_BYTES, PUT
from octavo.files.journal.short_value import plain_fields
from octavo.files.ledger import head_key, ledger_key
from octavo.files.ledger.bounds import Bounds, of_bucket
from octavo.files.ledger.head import Head
from octavo.files.ledger.ledger_key import HEAD_ONLY, MAX_KEY_BYTES
from octavo.filters import to_limit
from octavo.handles import Handle
from octavo.scans import LEAST_FIRST

D = TypeVar("D")
_made = tuple.__new__


class HeadRow(NamedTuple):
    """One entry of a head-only store.

    ``key``: Its key.
    ``sub_key``: Its sub-key, empty if it was put without one.
    ``value``: Its value.
    ``sqn``: Sequence number of the put; what ``if_sqn`` compares with.
    ``written_at``: When it was put, ms UTC.
    ``expires_at``: Moment from which it reads as absent, ms UTC; None: never.
    """

    key: bytes
    sub_key: bytes
    value: bytes
    sqn: int
    written_at: int
    expires_at: int | None


def _whole(bucket: bytes, key: object, sub_key: object) -> bytes:
    """Key and sub-key as one, checked: see head_key.py. Raises Misuse."""
    name = key if type(key) is bytes else to_bytes("key", key)
    if not name:
        raise Misuse("key is empty; a key has at least one byte")
    sub = sub_key if type(sub_key) is bytes else to_bytes("sub_key", sub_key)
    whole = head_key.whole(name, sub)
    if len(whole) + len(bucket) > MAX_KEY_BYTES:
        raise Misuse(
            f"key and sub_key take {len(whole)} bytes (with two between them, and two for each "
            f"zero byte of the key), the bucket's name {len(bucket)}: together at most "
            f"{MAX_KEY_BYTES} are allowed"
        )
    return whole


def _operation(
    kind: int, bucket: bytes, key: object, sub_key: object, value: object, expiry: int
) -> Operation:
    stored = value if type(value) is bytes else to_bytes("value", value)
    if len(stored) > MAX_METADATA_BYTES:
        raise Misuse(
            f"value of {len(stored)} bytes: a head-only store takes at most {MAX_METADATA_BYTES}"
        )
    whole = _whole(bucket, key, sub_key)
    return _made(Operation, (kind, HEAD_ONLY, bucket, whole, b"", expiry, stored, b""))


def _to_condition(if_sqn: object, lookup: bool) -> int:
    """The sqn of a condition, below 0 for none. Raises Misuse."""
    if if_sqn is None:
        return -1
    if not lookup:
        raise Misuse("if_sqn needs a store with lookup; this one was made with lookup=False")
    return to_condition(if_sqn)


class HeadReads(Handle, ABC):
    """The reading half of a head-only bucket."""

    def __init__(self, name: bytes, lookup: bool) -> None:
        self._name = name
        self._lookup = lookup
        self._prefix = ledger_key.prefix(HEAD_ONLY, name)

    @abstractmethod
    def _reader(self) -> Reader: ...

    @abstractmethod
    def _head(self, whole: bytes) -> Head | None:
        """The Head of a whole key, or None."""

    def _get(self, whole: bytes) -> Head | None:
        """As ``_head``, for a caller that wants the value."""
        return self._head(whole)

    @property
    def name(self) -> bytes:
        """The bucket's name."""
        return self._name

    def head(self, key: Key, sub_key: Key = b"") -> HeadRow | None:
        """An entry with its sqn, write time and expiry, or None.

        One probe for each level of the ledger. Raises Misuse (always in a store made with
        lookup=False), Corruption, Closed; in a snapshot also SnapshotExpired.
        """
        found = self._head(whole := self._sought(key, sub_key))
        return None if found is None else _row(whole, found)

    def _sought(self, key: object, sub_key: object) -> bytes:
        """The whole key to look up, as ``_whole`` makes it. Raises Misuse."""
        if not self._lookup:
            raise Misuse(
                "this head-only store was made with lookup=False: list or fold over it instead"
            )
        return _whole(self._name, key, sub_key)

    @overload
    def get(self, key: Key, sub_key: Key = ...) -> bytes | None: ...
    @overload
    def get(self, key: Key, sub_key: Key, default: D) -> bytes | D: ...
    @overload
    def get(self, key: Key, sub_key: Key = ..., *, default: D) -> bytes | D: ...
    def get(self, key: Key, sub_key: Key = b"", default: Any = None) -> Any:
        """The value, or ``default`` if the entry is absent. Otherwise, and in its errors, as
        ``head``."""
        found = self._get(self._sought(key, sub_key))
        return default if found is None else found.metadata

    def rows(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[HeadRow]:
        """Entries with ``start`` <= key < ``end`` whose key begins with ``prefix``, at most
        ``limit``, in the order of key and sub-key; with ``reverse`` in the opposite order. Reads
        from an implicit snapshot. Raises Misuse; Corruption, Closed and SnapshotExpired also during
        the iteration."""
        low, high = self._prefix, ledger_key.after(self._prefix)
        if prefix is not None:
            low += head_key.beginning(to_bytes("prefix", prefix))
            high = ledger_key.after(low)
        if start is not None:
            low = max(low, self._prefix + head_key.whole(to_bytes("start", start)))
        if end is not None:
            ends = self._prefix + head_key.whole(to_bytes("end", end))
            high = ends if high is None else min(ends, high)
        return self._rows(Bounds(self._prefix, low, high, to_flag("reverse", reverse)), limit)

    def sub_keys(self, key: Key, *, reverse: bool = False) -> Iterator[HeadRow]:
        """The entries of one key, in the order of their sub-keys. Otherwise as ``rows``."""
        low = self._prefix + _whole(self._name, key, b"")
        return self._rows(
            Bounds(self._prefix, low, ledger_key.after(low), to_flag("reverse", reverse)), None
        )

    def __len__(self) -> int:
        """How many entries there are. O(entries): 0.01 to 0.3 us each."""
        reader = self._reader()
        number = reader.count(of_bucket(self._prefix))
        reader.close()
        return number

    def __bool__(self) -> bool:
        return next(self.rows(), None) is not None

    def _rows(self, bound: Bounds, limit: object) -> Iterator[HeadRow]:
        return _rows(self._reader(), bound, to_limit(limit))


def _row(whole: bytes, head: Head) -> HeadRow:
    key, sub_key = head_key.apart(whole)
    sqn, _, value, written_at, expires_at = head
    return _made(HeadRow, (key, sub_key, value, sqn, written_at, expires_at))


def _rows(reader: Reader, bound: Bounds, most: int | None) -> Iterator[HeadRow]:
    """Yield the rows of a range, so many at a time that a look at the lease before each will do."""
    first = FIRST_WINDOW if most is None else max(min(most, FIRST_WINDOW), LEAST_FIRST)
    for window in () if most == 0 else reader.head_windows(bound, first, most):
        if most is not None:
            window.cut(most)
            most -= len(window.keys)
        with reader.reading():
            keys, heads = window.keys, window.heads()
        for low in range(0, len(keys), STEP):
            reader.step()
            stretch = slice(low, low + STEP)
            yield from list(map(_row, keys[stretch], heads[stretch]))
        del heads  # before the next window's are made: each has up to a MiB
        if most == 0:
            break
    reader.close()  # not in a finally: the collector may end this, and must not ask for a turn


class HeadBucket(HeadReads):
    """A bucket of a head-only store. Made by ``store.head_bucket(name)``."""

    def __init__(self, running: Running, name: bytes) -> None:
        super().__init__(name, running.identity.lookup)
        self._running = running
        self._bookie = running.bookie.actor
        self._plain = plain_fields(HEAD_ONLY, name)
        self._plain_put: PlainPut | None = None
        self._measures = running.inker.actor.measures

    def _reader(self) -> Reader:
        return Reader(self._bookie)

    def _head(self, whole: bytes) -> Head | None:
        return self._looked_up(whole, self._measures.head)

    def _get(self, whole: bytes) -> Head | None:
        return self._looked_up(whole, self._measures.get)

    def _looked_up(self, whole: bytes, meter: Meter) -> Head | None:
        left = meter.left
        if left <= 0 and not (left := meter.skip()):
            self._bookie.wants_heads()
            return meter.timed(self._looked_up, whole, meter)
        meter.left = left - 1
        if self._bookie.closed:
            raise self._bookie.stopped_error()
        return self._bookie.head(self._prefix + whole, self._name + whole, self._plain)

    def put(
        self,
        key: Key,
        value: Value,
        *,
        sub_key: Key = b"",
        ttl: float | timedelta | None = None,
        expires_at: int | datetime | None = None,
        sync: bool | None = None,
        if_sqn: int | None = None,
    ) -> int:
        """Write an entry; returns its sequence number. Arguments and errors as for Bucket.put, but
        the value is at most 1 MiB, and ``if_sqn`` needs a store with lookup."""
        meter = self._measures.put
        left = meter.left
        if left <= 0 and not (left := meter.skip()):
            return meter.timed(
                self.put, key, value, sub_key=sub_key, ttl=ttl, expires_at=expires_at, sync=sync,
                if_sqn=if_sqn,
            )  # fmt: skip
        meter.left = left - 1
        expiry = 0
        if ttl is not None or expires_at is not None:
            expiry = to_expiry(ttl, expires_at, self._bookie.now_ms())
        operation = _operation(PUT, self._name, key, sub_key, value, expiry)
        expected, durable = _to_condition(if_sqn, self._lookup), to_sync(sync)
        put_one = self._plain_put
        if put_one is None:  # made on first use, since making it costs as much as a put
            put_one = self._plain_put = self._bookie.plain_put(HEAD_ONLY, self._name, PUT)
        return self._written(put_one(operation.key, b"", operation, expected), durable)

    def delete(
        self,
        key: Key,
        *,
        sub_key: Key = b"",
        sync: bool | None = None,
        if_sqn: int | None = None,
    ) -> int:
        """Delete an entry, present or not; returns the sqn of the deletion. Raises as ``put``."""
        whole = _whole(self._name, key, sub_key)
        expected, durable = _to_condition(if_sqn, self._lookup), to_sync(sync)
        delete_one = self._bookie.plain_put(HEAD_ONLY, self._name, DELETE)
        one = partial(delete_one, whole, b"", None, expected)
        return self._written(self._running.with_reserve(one, RECORD), durable)

    def _written(self, sqn: int, durable: bool) -> int:
        if durable or self._running.options.sync == "always":
            self._running.inker.actor.make_durable(sqn)
        return sqn

    def __repr__(self) -> str:
        return f"<octavo.HeadBucket {self._name!r} of {self._running.path!r}>"


class HeadBatch(Together):
    """Collects operations on any buckets of a head-only store; otherwise as Batch."""

    def put(
        self,
        bucket: Key,
        key: Key,
        value: Value,
        *,
        sub_key: Key = b"",
        ttl: float | timedelta | None = None,
        expires_at: int | datetime | None = None,
        if_sqn: int | None = None,
    ) -> None:
        """As HeadBucket.put. Raises Misuse."""
        expiry = to_expiry(ttl, expires_at, self._running.bookie.actor.now_ms())
        self._add_if(_operation(PUT, to_bucket(bucket), key, sub_key, value, expiry), if_sqn)

    def delete(
        self, bucket: Key, key: Key, *, sub_key: Key = b"", if_sqn: int | None = None
    ) -> None:
        """As HeadBucket.delete. Raises Misuse."""
        self._add_if(_operation(DELETE, to_bucket(bucket), key, sub_key, b"", 0), if_sqn)

    def _add_if(self, operation: Operation, if_sqn: int | None) -> None:
        _to_condition(if_sqn, self._running.identity.lookup)
        self._add_told(operation, if_sqn)

    def commit(self) -> int:
        """Write now; returns the last sqn, 0 for an empty batch. Otherwise as Batch.commit."""
        meter = self._running.inker.actor.measures.batch
        if meter.left <= 0:
            return meter.timed(self.commit)
        meter.left -= 1
        return self._commit(atomic=len(self) > 1)


class SnapshotHeadBucket(HeadReads):
    """A bucket of a head-only store as it was at a snapshot's sqn."""

    def __init__(self, name: bytes, lookup: bool, reader: Reader) -> None:
        super().__init__(name, lookup)
        self._shared = reader

    def _reader(self) -> Reader:
        self._shared.check()
        return self._shared

    def _head(self, whole: bytes) -> Head | None:
        return self._shared.head(self._prefix + whole)

    def __repr__(self) -> str:
        return f"<octavo.{type(self).__name__} {self._name!r} at sqn {self._shared.sqn}>"
