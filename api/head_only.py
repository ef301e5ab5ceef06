"""Head-only stores: small values that live in the ledger, under a key and a sub-key.

The journal holds an operation only until the ledger has it; then ``Store.trim`` lets go of it. So
reading never touches the journal for what is merged, and the ledger is not made anew from it:
a backup of such a store always has its ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeVar, overload

from octavo.actors.opening.startup import Running
from octavo.actors.reader import LEASE_SECONDS, Reader
from octavo.actors.scanning.scan import Bounds
from octavo.actors.view import Head
from octavo.actors.writing.operation import Operation
from octavo.arguments import (
    Key,
    Value,
    to_bucket,
    to_bytes,
    to_expiry,
    to_flag,
)
from octavo.batch import Together
from octavo.files.errors import Corruption, Misuse
from octavo.files.journal.record import DELETE, MAX_METADATA_BYTES, PUT
from octavo.files.ledger import ledger_key
from octavo.files.ledger.ledger_key import HEAD_ONLY, MAX_KEY_BYTES
from octavo.filters import to_limit
from octavo.handles import Handle

D = TypeVar("D")
_FEW = 32
"""Rows that are looked up together; each may be of a MiB."""


class HeadRow(NamedTuple):
    """One entry of a head-only store.

    ``key``: Its key.
    ``sub_key``: Its sub-key, empty where it was put without one.
    ``value``: Its value.
    ``sqn``: Sequence number of the put; what ``if_sqn`` compares with.
    ``written_at``: Moment of the put, ms UTC.
    ``expires_at``: Moment from which it reads as absent, ms UTC; None: never.
    """

    key: bytes
    sub_key: bytes
    value: bytes
    sqn: int
    written_at: int
    expires_at: int | None


def _key_part(key: bytes) -> bytes:
    return key.replace(b"\x00", b"\x00\xff")


def _whole(bucket: bytes, key: object, sub_key: object) -> bytes:
    """How the pair stands in a record and behind the bucket in a ledger key: the key escaped as
    bucket names are, an end mark, the sub-key raw. Raises Misuse."""
    name = to_bytes("key", key)
    if not name:
        raise Misuse("key is empty; a key has at least one byte")
    whole = _key_part(name) + b"\x00\x00" + to_bytes("sub_key", sub_key)
    if len(whole) + len(bucket) > MAX_KEY_BYTES:
        raise Misuse(
            f"key and sub_key of {len(whole)} bytes in a bucket named with {len(bucket)}: "
            f"together at most {MAX_KEY_BYTES} are allowed"
        )
    return whole


def parts_of(whole: bytes) -> tuple[bytes, bytes]:
    """(key, sub-key) of what ``_whole`` gave."""
    at = whole.find(b"\x00\x00")
    if at < 0:
        raise Corruption("ledger", 0, f"no key of a head-only store: {whole[:80]!r}")
    return whole[:at].replace(b"\x00\xff", b"\x00"), whole[at + 2 :]


def _operation(
    kind: int, bucket: bytes, key: object, sub_key: object, value: object, expiry: int
) -> Operation:
    stored = to_bytes("value", value)
    if len(stored) > MAX_METADATA_BYTES:
        raise Misuse(
            f"value of {len(stored)} bytes: a head-only store takes at most {MAX_METADATA_BYTES}"
        )
    return Operation(kind, HEAD_ONLY, bucket, _whole(bucket, key, sub_key), b"", expiry, stored)


class HeadReads(Handle, ABC):
    """The reading half of a head-only bucket."""

    def __init__(self, name: bytes, lookup: bool) -> None:
        self._name = name
        self._lookup = lookup
        self._prefix = ledger_key.prefix(HEAD_ONLY, name)

    @abstractmethod
    def _reader(self) -> Reader: ...

    @abstractmethod
    def _head(self, key: bytes) -> Head | None: ...

    @property
    def name(self) -> bytes:
        """The bucket's name."""
        return self._name

    def head(self, key: Key, sub_key: Key = b"") -> HeadRow | None:
        """An entry with its sqn, write time and expiry, or None.

        A probe a level of the ledger. Raises Misuse, also where the store was made with
        lookup=False.
        """
        if not self._lookup:
            raise Misuse(
                "this head-only store was made with lookup=False: list or fold over it instead"
            )
        whole = _whole(self._name, key, sub_key)
        found = self._head(self._prefix + whole)
        return None if found is None else _row(whole, found)

    @overload
    def get(self, key: Key, sub_key: Key = ...) -> bytes | None: ...
    @overload
    def get(self, key: Key, sub_key: Key, default: D) -> bytes | D: ...
    @overload
    def get(self, key: Key, sub_key: Key = ..., *, default: D) -> bytes | D: ...
    def get(self, key: Key, sub_key: Key = b"", default: Any = None) -> Any:
        """The value, or ``default`` if there is none. Otherwise, and in what it raises, as
        ``head``."""
        found = self.head(key, sub_key)
        return default if found is None else found.value

    def rows(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[HeadRow]:
        """Entries with ``start`` <= key < ``end``, in the order of key and sub-key, or with
        ``reverse`` against it. Reads from an implicit snapshot. Raises Misuse, SnapshotExpired."""
        low, high = self._prefix, ledger_key.after(self._prefix)
        if prefix is not None:
            low += _key_part(to_bytes("prefix", prefix))
            high = ledger_key.after(low)
        if start is not None:
            low = max(low, self._prefix + _key_part(to_bytes("start", start)) + b"\x00\x00")
        if end is not None:
            ends = self._prefix + _key_part(to_bytes("end", end)) + b"\x00\x00"
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
        low = self._prefix
        number = reader.count(Bounds(low, low, ledger_key.after(low), False))
        reader.close()
        return number

    def __bool__(self) -> bool:
        return next(self.rows(), None) is not None

    def _rows(self, bound: Bounds, limit: object) -> Iterator[HeadRow]:
        most = to_limit(limit)
        return islice(_rows(self._reader(), bound), most)


def _row(whole: bytes, head: Head) -> HeadRow:
    key, sub_key = parts_of(whole)
    return HeadRow(key, sub_key, head.metadata, head.sqn, head.written_at, head.expires_at)


def _rows(reader: Reader, bound: Bounds) -> Iterator[HeadRow]:
    head_of = reader.view.head_of
    for window in reader.windows(bound):
        found = window.found()
        for low in range(0, len(window.keys), _FEW):
            reader.step()
            with reader.reading():
                heads = list(map(head_of, islice(found, _FEW)))
            for whole, head in zip(window.keys[low : low + _FEW], heads, strict=True):
                if head is not None:
                    yield _row(whole, head)
    reader.close()  # one that is broken off is collected, which must not ask for a turn


class HeadBucket(HeadReads):
    """A bucket of a head-only store. Made by ``store.head_bucket(name)``."""

    def __init__(self, running: Running, name: bytes) -> None:
        super().__init__(name, running.identity.lookup)
        self._running = running
        self._bookie = running.bookie.actor

    def _reader(self) -> Reader:
        return Reader(self._bookie, LEASE_SECONDS, renewing=True)

    def _head(self, key: bytes) -> Head | None:
        if self._bookie.closed:
            raise self._bookie.stopped_error()
        return self._bookie.head(key)

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
        """Write an entry; its sequence number. Arguments and errors as Bucket.put; the value is
        at most 1 MiB, and ``if_sqn`` wants a store with lookup."""
        expiry = to_expiry(ttl, expires_at, self._bookie.now_ms())
        with HeadBatch(self._running, sync=sync) as batch:
            batch._add_told(_operation(PUT, self._name, key, sub_key, value, expiry), if_sqn)
        return batch.last_sqn

    def delete(
        self,
        key: Key,
        *,
        sub_key: Key = b"",
        sync: bool | None = None,
        if_sqn: int | None = None,
    ) -> int:
        """Delete an entry, present or not; the sqn of the deletion. Raises as ``put``."""
        with HeadBatch(self._running, sync=sync) as batch:
            batch._add_told(_operation(DELETE, self._name, key, sub_key, b"", 0), if_sqn)
        return batch.last_sqn

    def __repr__(self) -> str:
        return f"<octavo.HeadBucket {self._name!r} of {self._running.path!r}>"


class HeadBatch(Together):
    """Collects operations on any head-only buckets; leaving the ``with`` block writes them
    atomically, in one write of the journal. An exception in the block writes nothing."""

    def __init__(self, running: Running, *, sync: bool | None = None) -> None:
        super().__init__(running, sync)

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
        self._add_told(_operation(PUT, to_bucket(bucket), key, sub_key, value, expiry), if_sqn)

    def delete(
        self, bucket: Key, key: Key, *, sub_key: Key = b"", if_sqn: int | None = None
    ) -> None:
        """As HeadBucket.delete. Raises Misuse."""
        self._add_told(_operation(DELETE, to_bucket(bucket), key, sub_key, b"", 0), if_sqn)

    def _add_told(self, operation: Operation, if_sqn: int | None) -> None:
        if if_sqn is not None and not self._running.identity.lookup:
            raise Misuse("if_sqn wants a store with lookup; this one was made without")
        _, tag, name, key, _, _, value, _ = operation
        size = len(name) + len(key) + len(value)
        self._add(operation, ledger_key.prefix(tag, name) + key, size, if_sqn)

    def commit(self) -> int:
        """Write now; the last sqn, 0 for an empty batch. Otherwise as Batch.commit."""
        return self._commit(atomic=len(self) > 1)


class SnapshotHeadBucket(HeadReads):
    """A bucket of a head-only store as it was at a snapshot's sqn."""

    def __init__(self, name: bytes, lookup: bool, reader: Reader) -> None:
        super().__init__(name, lookup)
        self._shared = reader

    def _reader(self) -> Reader:
        self._shared.check()
        return self._shared

    def _head(self, key: bytes) -> Head | None:
        return self._shared.head(key)

    def __repr__(self) -> str:
        return f"<octavo.SnapshotHeadBucket {self._name!r} at sqn {self._shared.sqn}>"
