"""The stores of the small bench: Octavo, its floor, and the peers that are installed.

All take and give bytes. A write is acknowledged when the operating system has it, and survives
the end of the process; none of them syncs. RocksDB and LevelDB get the same read cache as Octavo.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol

from floor_adapter import FloorStore
from octavo_adapter import READ_CACHE_BYTES, OctavoStore

_LOOK_SECONDS = 0.1
_PENDING = (
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-compactions",
)
_WRITE_BUFFER_BYTES = 64 << 20
_BLOB_FROM_BYTES = 512


class Peer(Protocol):
    """A store under test. ``put``, ``get`` and ``head`` may be bound by ``open``."""

    @property
    def put(self) -> Callable[[bytes, bytes], object]: ...

    @property
    def put_many(self) -> Callable[[list[tuple[bytes, bytes]]], object]: ...

    @property
    def get(self) -> Callable[[bytes], bytes | None]: ...

    @property
    def head(self) -> Callable[[bytes], object]: ...

    def open(self, path: str) -> None: ...

    def iter_keys(self) -> Iterable[bytes]: ...

    def iter_items(self) -> Iterable[tuple[bytes, bytes]]: ...

    def close(self) -> None: ...


class Rocks:
    """RocksDB: raw bytes, LZ4, Bloom filters."""

    blobs = False
    cache_bytes = READ_CACHE_BYTES
    """Of blocks that were read; 0: none are kept."""

    def open(self, path: str) -> None:
        rocksdict: Any = import_module("rocksdict")

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_max_background_jobs(2)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        tables = rocksdict.BlockBasedOptions()
        tables.set_bloom_filter(10, False)
        if self.cache_bytes:
            tables.set_block_cache(rocksdict.Cache(self.cache_bytes))
        else:
            tables.disable_cache()
        options.set_block_based_table_factory(tables)
        if self.blobs:
            options.set_enable_blob_files(True)
            options.set_min_blob_size(_BLOB_FROM_BYTES)
            options.set_blob_compression_type(rocksdict.DBCompressionType.lz4())
        self._batch: Callable[[], Any] = lambda: rocksdict.WriteBatch(raw_mode=True)
        # Named as those of its only family, too: of a database that is there rocksdict would take
        # them as they are on disk, without the cache and the filters.
        self._db: Any = rocksdict.Rdict(path, options, {"default": options})
        self.put = self._db.put
        self.get = self._db.get
        self.head = self._db.get

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        batch = self._batch()
        for key, value in pairs:
            batch.put(key, value)
        self._db.write(batch)

    def iter_keys(self) -> Iterable[bytes]:
        keys: Iterable[bytes] = self._db.keys()
        return keys

    def iter_items(self) -> Iterable[tuple[bytes, bytes]]:
        items: Iterable[tuple[bytes, bytes]] = self._db.items()
        return items

    def settle(self) -> None:
        """Wait until nothing is left to be flushed or compacted."""
        while any(self._db.property_value(name) != "0" for name in _PENDING):
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        del self.put, self.get, self.head
        self._db.close()


class RocksBlobs(Rocks):
    """RocksDB with values of 512 bytes and more in blob files."""

    blobs = True


class Lmdb:
    """LMDB, without syncs; a transaction a put."""

    def open(self, path: str) -> None:
        lmdb: Any = import_module("lmdb")
        self._env: Any = lmdb.open(path, map_size=32 << 30, sync=False, metasync=False)

    def put(self, key: bytes, value: bytes) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.put(key, value)

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(pairs)

    def get(self, key: bytes) -> bytes | None:
        with self._env.begin() as transaction:
            value: bytes | None = transaction.get(key)
        return value

    head = get

    def iter_keys(self) -> Iterator[bytes]:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            yield from cursor.iternext(keys=True, values=False)

    def iter_items(self) -> Iterator[tuple[bytes, bytes]]:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            yield from cursor.iternext()

    def close(self) -> None:
        self._env.close()


class Level:
    """LevelDB through plyvel."""

    def open(self, path: str) -> None:
        plyvel: Any = import_module("plyvel")

        self._db: Any = plyvel.DB(
            path,
            create_if_missing=True,
            write_buffer_size=_WRITE_BUFFER_BYTES,
            lru_cache_size=READ_CACHE_BYTES,
            bloom_filter_bits=10,
        )
        self.put = self._db.put
        self.get = self._db.get
        self.head = self._db.get

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        with self._db.write_batch() as batch:
            for key, value in pairs:
                batch.put(key, value)

    def iter_keys(self) -> Iterable[bytes]:
        keys: Iterable[bytes] = self._db.iterator(include_value=False)
        return keys

    def iter_items(self) -> Iterable[tuple[bytes, bytes]]:
        items: Iterable[tuple[bytes, bytes]] = self._db.iterator()
        return items

    def close(self) -> None:
        del self.put, self.get, self.head
        self._db.close()


PEERS: dict[str, tuple[Callable[[], Peer], str | None]] = {
    "octavo": (OctavoStore, None),
    "rocksdb": (Rocks, "rocksdict"),
    "rocksblob": (RocksBlobs, "rocksdict"),
    "lmdb": (Lmdb, "lmdb"),
    "leveldb": (Level, "plyvel"),
    "floor": (FloorStore, None),
}
"""Name: (what makes it, the module that it needs beside Octavo)."""
