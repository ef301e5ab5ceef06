"""Octavo and RocksDB as the two sides of the shapes of work: each method is one operation, the same
on both.

What a peer does not offer is done as its users do it: metadata and an expiry stand before the
value, an index entry is a key of its own with an empty value, in one batch with its object, and a
condition is a read before the put. All keys of objects are above ``_LOWEST``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from octavo_adapter import READ_CACHE_BYTES
from peers import Rocks, RocksBlobs
from workload import settle

import octavo

Pairs = list[tuple[bytes, bytes]]
Indexed = Sequence[tuple[bytes, bytes, Mapping[str, int]]]

METADATA = b"text/plain;draft;me;"
EXPIRY_BYTES = 8
_TTL_SECONDS = 3600
_LOWEST = b"\x02"
_SETTLING_SECONDS = 0.25


class Side(ABC):
    """A store under test. What is put, deleted or got one by one is called without a frame of this
    class."""

    front = 0
    """Bytes before each value of a user's, where the store keeps something else there."""

    put: Callable[[bytes, bytes], object]
    get: Callable[[bytes], bytes | None]
    delete: Callable[[bytes], object]
    put_many: Callable[[Pairs], object]
    batch: Callable[[Pairs], object]
    """Puts, all or nothing."""
    get_many: Callable[[list[bytes]], list[bytes | None]]

    def __init__(self, path: Path, *, cached: bool) -> None:
        """Open the store, made if it is not there. If not ``cached``, only the operating system
        keeps what was read."""
        self._taken = _LOWEST
        self._open(path, cached)

    # ------------------------------------------------------------ of each side's own

    @abstractmethod
    def _open(self, path: Path, cached: bool) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def settle(self) -> None:
        """Wait until no background work is left."""

    @abstractmethod
    def put_with_metadata(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def put_with_ttl(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def put_indexed(self, key: bytes, value: bytes, terms: Mapping[str, int]) -> None:
        """A put of a key that is new, with an index entry for each field."""

    @abstractmethod
    def batch_indexed(self, rows: Indexed) -> None:
        """The same of many, together."""

    @abstractmethod
    def put_if(self, key: bytes, value: bytes) -> None:
        """A put on condition that the version seen just before is the newest."""

    @abstractmethod
    def put_if_known(self, key: bytes, value: bytes) -> None:
        """A put on condition that the version that was put here before, if any, is the newest."""

    @abstractmethod
    def items(self, first: bytes, count: int) -> Pairs:
        """So many from a place on."""

    @abstractmethod
    def keys(self, first: bytes, count: int) -> list[bytes]:
        """So many from a place on."""

    @abstractmethod
    def prefix(self, prefix: bytes) -> Pairs:
        """All items below it."""

    @abstractmethod
    def newest(self, prefix: bytes) -> list[bytes]:
        """The last key below it."""

    @abstractmethod
    def indexed(self, field: str, term: int) -> list[bytes]:
        """The keys that have the term."""

    # ------------------------------------------------------------ made of these

    def every_key(self) -> list[bytes]:
        """The keys of all objects."""
        return self.keys(_LOWEST, 1 << 40)

    def rewrite(self, key: bytes, value: bytes) -> bytes | None:
        """Read, modify, write."""
        before = self.get(key)
        self.put(key, value)
        return before

    def count_up(self, key: bytes) -> int:
        """One more in a counter of 8 bytes."""
        count = int.from_bytes(self.get(key) or b"", "big") + 1
        self.put(key, count.to_bytes(8, "big"))
        return count

    def renew(self, key: bytes, value: bytes) -> None:
        """Delete and put again."""
        self.delete(key)
        self.put(key, value)

    def put_and_prefix(self, key: bytes, value: bytes, prefix: bytes) -> Pairs:
        """A put below the prefix first."""
        self.put(key, value)
        return self.prefix(prefix)

    def pass_on(self, key: bytes, value: bytes) -> Pairs:
        """A queue: one comes at the end, the first one goes, wherever it is."""
        self.put(key, value)
        found = self.items(_LOWEST, 1)
        self.delete(found[0][0])
        return found

    def pass_on_from(self, key: bytes, value: bytes) -> Pairs:
        """The same where it is known which one went before."""
        self.put(key, value)
        found = self.items(self._taken, 1)
        self._taken = found[0][0]
        self.delete(self._taken)
        return found


class OctavoSide(Side):
    """Octavo by its own words."""

    def _open(self, path: Path, cached: bool) -> None:
        store = octavo.open(path, read_cache_bytes=READ_CACHE_BYTES if cached else 0)
        self.store = store
        self.put = store.put
        self.get = store.get
        self.delete = store.delete
        self.put_many = store.put_many
        self.batch = self._together
        self.get_many = store.get_many
        self._sqns: dict[bytes, int] = {}

    def close(self) -> None:
        self.store.close()

    def settle(self) -> None:
        settle(self.store, _SETTLING_SECONDS)

    def _together(self, pairs: Pairs) -> None:
        with self.store.batch() as batch:
            put = batch.put
            for key, value in pairs:
                put(b"", key, value)

    def put_with_metadata(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value, metadata=METADATA)

    def put_with_ttl(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value, ttl=_TTL_SECONDS)

    def put_indexed(self, key: bytes, value: bytes, terms: Mapping[str, int]) -> None:
        self.store.put(key, value, index=terms)

    def batch_indexed(self, rows: Indexed) -> None:
        with self.store.batch() as batch:
            put = batch.put
            for key, value, terms in rows:
                put(b"", key, value, index=terms)

    def put_if(self, key: bytes, value: bytes) -> None:
        head = self.store.head(key)
        self.store.put(key, value, if_sqn=head.sqn if head else 0)

    def put_if_known(self, key: bytes, value: bytes) -> None:
        sqns = self._sqns
        sqns[key] = self.store.put(key, value, if_sqn=sqns.get(key, 0))

    def items(self, first: bytes, count: int) -> Pairs:
        return list(self.store.items(first, limit=count))

    def keys(self, first: bytes, count: int) -> list[bytes]:
        return list(self.store.keys(first, limit=count))

    def prefix(self, prefix: bytes) -> Pairs:
        return list(self.store.items(prefix=prefix))

    def newest(self, prefix: bytes) -> list[bytes]:
        return list(self.store.keys(prefix=prefix, reverse=True, limit=1))

    def indexed(self, field: str, term: int) -> list[bytes]:
        return list(self.store.index(field).having(term))


class RocksSide(Side):
    """RocksDB through rocksdict."""

    kind = Rocks

    def _open(self, path: Path, cached: bool) -> None:
        rocks = self.kind()
        if not cached:
            rocks.cache_bytes = 0
        rocks.open(str(path))
        database: Any = rocks._db
        self._rocks, self._database = rocks, database
        self._options: Callable[[], Any] = import_module("rocksdict").ReadOptions
        self.put = database.put
        self.get = database.get
        self.delete = database.delete
        self.put_many = self.batch = rocks.put_many
        self.get_many = database.get

    def close(self) -> None:
        self._rocks.close()

    def settle(self) -> None:
        self._rocks.settle()

    def put_with_metadata(self, key: bytes, value: bytes) -> None:
        self.put(key, METADATA + value)

    def put_with_ttl(self, key: bytes, value: bytes) -> None:
        expiry = time.time_ns() // 1_000_000 + _TTL_SECONDS * 1000
        self.put(key, expiry.to_bytes(EXPIRY_BYTES, "big") + value)

    def put_indexed(self, key: bytes, value: bytes, terms: Mapping[str, int]) -> None:
        self.batch_indexed([(key, value, terms)])

    def batch_indexed(self, rows: Indexed) -> None:
        entries = [
            (_entry(field, term) + key, b"")
            for key, _, terms in rows
            for field, term in terms.items()
        ]
        self._rocks.put_many([*((key, value) for key, value, _ in rows), *entries])

    def put_if(self, key: bytes, value: bytes) -> None:
        self.get(key)
        self.put(key, value)

    put_if_known = put_if

    def items(self, first: bytes, count: int) -> Pairs:
        return list(islice(self._database.items(from_key=first), count))

    def keys(self, first: bytes, count: int) -> list[bytes]:
        return list(islice(self._database.keys(from_key=first), count))

    def prefix(self, prefix: bytes) -> Pairs:
        below = self._below(_after(prefix))
        return list(self._database.items(from_key=prefix, read_opt=below))

    def newest(self, prefix: bytes) -> list[bytes]:
        # With an upper bound only: rocksdict takes what it calls a lower bound for an upper one,
        # too.
        below = self._below(_after(prefix))
        found = islice(self._database.keys(backwards=True, read_opt=below), 1)
        return [key for key in found if key.startswith(prefix)]

    def indexed(self, field: str, term: int) -> list[bytes]:
        front = _entry(field, term)
        below = self._below(_entry(field, term + 1))
        size = len(front)
        return [key[size:] for key in self._database.keys(from_key=front, read_opt=below)]

    def _below(self, end: bytes) -> Any:
        """Options of a read that ends at ``end``. Keep them until it has ended: its iterator does
        not keep the bound alive, and without it now and then gives too few."""
        options = self._options()
        options.set_iterate_upper_bound(end)
        return options


class BlobSide(RocksSide):
    """RocksDB with values of 512 bytes and more in blob files."""

    kind = RocksBlobs


SIDES: dict[str, Callable[..., Side]] = {
    "octavo": OctavoSide,
    "rocksdb": RocksSide,
    "rocksblob": BlobSide,
}


def _entry(field: str, term: int) -> bytes:
    """What an index entry's key begins with at a peer: below those of all objects."""
    return b"\x01%b\x00%b" % (field.encode(), term.to_bytes(8, "big"))


def _after(prefix: bytes) -> bytes:
    """The first key behind all that begin so; the last byte is none of 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
