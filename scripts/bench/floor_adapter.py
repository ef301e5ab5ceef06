"""The floor: what Octavo's work costs in Python with nothing but the calls that cannot be left out.

Has the same protocol as octavo_adapter.py, for the same benchmarks. It is a yardstick, not a real
store: no levels, snapshots, deletes, recovery, locks, sequence numbers or checks of arguments.
Its index is made by ``close``, so no worker shares the machine while it is loaded.

    put       LZ4 from 2 KiB where it shrinks, a header, one join, a copy into the log's map, from
              4 KiB up one ``pwrite``, one dict entry; durable: one ``pwrite``, ``fdatasync``. One
              XXH3 of the value, seeded by that of the key, which an index needs anyway: so it
              covers the key too, and no other length gives the same
    get       of what was put since opening: a dict; else the key's hash, a probe of a table of
              32-bit slots in a map. Then the header, the key compared, one slice, one checksum
    head      that probe, the key compared with a column of keys, the size from another
    scans     a sorted column of keys, cut by their lengths, and gets by place: 64 rows at first;
              from 1,024 on slices by columns of places, and one checksum of each 64 KiB of the log
    cache     an OrderedDict of 128 MiB, from which the least recently used leaves: a dict that
              takes nothing more once it is full misses twice as many Zipfian reads
    Arrow     columns as they stand in files, without copies; values one copy each, or an LZ4
              frame a batch; one checksum of each 64 KiB of the log
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain, islice, starmap
from mmap import PROT_READ, mmap
from pathlib import Path
from struct import Struct
from time import time_ns
from typing import TYPE_CHECKING, Any

import lz4.block
import numpy as np
from xxhash import xxh3_64_intdigest as xxh3

if TYPE_CHECKING:

    class Adapter:
        """What a benchmark expects to inherit from."""
else:
    try:
        from adapters import Adapter
    except ImportError:

        class Adapter:
            pass


_SEED = 20261122
_HEAD = Struct("<QQIIH")
_HEAD_TYPE = [("sum", "<u8"), ("ns", "<u8"), ("stored", "<u4"), ("raw", "<u4"), ("key", "<u2")]
"""Checksum, time of writing, bytes of the value as it stands and as it was given (0: it is not
compressed), bytes of the key. Then the key, then the value."""
_COLUMNS = {
    "slots": "I", "places": "Q", "hashes": "Q", "sizes": "I", "key_ends": "i", "key_bytes": "H",
    "keys": "B", "sqns": "Q", "times": "q", "stored": "I", "raw": "I", "windows": "Q",
}  # fmt: skip
"""Files of the index: a hash table, columns in the order of keys, checksums of the log."""
_COMPRESSED_FROM = 2048
_CACHE_BYTES = 128 << 20
_LOG_STEP = 64 << 20
_COPIED_BELOW = 4 << 10
_GROUP_BYTES = 512 << 10
_WINDOW_BYTES = 64 << 10
_FENCE, _MANY_ROWS, _MOST_ROWS = 64, 1024, 8192

_pack, _unpack, HEAD_BYTES = _HEAD.pack, _HEAD.unpack_from, _HEAD.size
_compress, _decompress = lz4.block.compress, lz4.block.decompress


class FloorStore(Adapter):
    """Relaxed: handed to the operating system at each put. Durable: synced at each."""

    name = "floor"
    floor = True
    persistent = True
    max_n: int | None = None

    @classmethod
    def available(cls) -> None:
        """It needs what Octavo needs."""

    def open(self, path: str, durable: bool = False) -> None:
        """``path``: a directory that is empty, or was closed by this class."""
        self._path, self._durable = Path(path), durable
        self._fd = os.open(self._path / "log", os.O_RDWR | os.O_CREAT, 0o644)
        self._end = self._room = os.fstat(self._fd).st_size
        self.log: Any = mmap(self._fd, 0, prot=PROT_READ) if self._end else b""
        self._growing = threading.Lock()
        self._recent: dict[bytes, int] = {}
        self._fresh: list[bytes] = []
        """Sorted: those without a row among the first ``_looked`` recent keys."""
        self._looked = 0
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._spare = _CACHE_BYTES
        self.columns = {name: self._column(name, kind) for name, kind in _COLUMNS.items()}
        of = self.columns.__getitem__
        self._slots, self._places, self._hashes = map(of, ("slots", "places", "hashes"))
        self._sizes, self._ends, self._key_bytes = map(of, ("sizes", "key_ends", "key_bytes"))
        self._keys: Any = self.columns["keys"].obj
        self.rows = len(self._places)
        self._shift, bits = _shift_and_bits(self.rows)
        self._row_mask, self._tag_mask = (1 << bits) - 1, 0xFFFFFFFF >> bits << bits
        self._fences = [self._cut(row, row + 1)[0] for row in range(0, self.rows, _FENCE)]

    def _column(self, name: str, kind: Any) -> memoryview:
        """A file of the index through a map, compared with the checksum at its end."""
        if not (self._path / name).exists():
            return memoryview(bytes(4 * (name in ("slots", "key_ends")))).cast(kind)
        with open(self._path / name, "rb") as file:
            whole = mmap(file.fileno(), 0, prot=PROT_READ)
        if xxh3(memoryview(whole)[:-8]) != int.from_bytes(whole[-8:], "little"):
            raise ValueError(f"{name}: damaged")
        return memoryview(whole)[:-8].cast(kind)

    # -------------------------------------------------------------- writing

    def put(self, key: bytes, value: bytes) -> None:
        """To a place of its own, so that four threads need no turn."""
        stored, raw = value, 0
        if len(value) >= _COMPRESSED_FROM:
            packed = _compress(value, store_size=False)
            if len(packed) < len(value):
                stored, raw = packed, len(value)
        total = xxh3(stored, xxh3(key, _SEED))
        record = b"".join((_pack(total, time_ns(), len(stored), raw, len(key)), key, stored))
        size = len(record)
        at = self._end
        self._end = at + size  # CPython changes no threads between these two lines
        self._write(record, at)
        if self._durable:
            os.fdatasync(self._fd)
        self._recent[key] = at
        if key in self._cache:
            self._replace(key, value)

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """A write for each 512 KiB."""
        parts: list[bytes] = []
        places: dict[bytes, int] = {}
        at, cache, now = self._end, self._cache, time_ns()
        for key, value in pairs:
            stored, raw = value, 0
            if len(value) >= _COMPRESSED_FROM:
                packed = _compress(value, store_size=False)
                if len(packed) < len(value):
                    stored, raw = packed, len(value)
            total = xxh3(stored, xxh3(key, _SEED))
            parts += (_pack(total, now, len(stored), raw, len(key)), key, stored)
            places[key] = at
            at += HEAD_BYTES + len(key) + len(stored)
            if key in cache:
                self._replace(key, value)
            if at - self._end >= _GROUP_BYTES:
                self._write_all(parts, at)
        self._write_all(parts, at)
        if self._durable:
            os.fdatasync(self._fd)
        self._recent.update(places)

    def _write_all(self, parts: list[bytes], end: int) -> None:
        at, self._end = self._end, end
        self._write(b"".join(parts), at)
        parts.clear()

    def _write(self, data: bytes, at: int) -> None:
        """The log is mapped ahead of what is written, so that reads of it and small writes need no
        system call; room that is set aside makes writes cheaper, and syncs dearer."""
        if self._end > self._room:
            with self._growing:
                self._grow()
        if len(data) < _COPIED_BELOW and not self._durable:
            self.log[at : at + len(data)] = data
        elif os.pwrite(self._fd, data, at) != len(data):
            raise OSError("a short write")

    def _grow(self) -> None:
        """Map more of the log. The room is set last: a thread that sees it may copy into the
        map."""
        if self._end > self._room:
            room = (self._end // _LOG_STEP + 1) * _LOG_STEP
            if self._durable:
                os.ftruncate(self._fd, room)
            else:
                os.posix_fallocate(self._fd, 0, room)
            self.log = mmap(self._fd, room)
            self._room = room

    def _replace(self, key: bytes, value: bytes) -> None:
        self._spare += len(self._cache[key]) - len(value)
        self._cache[key] = value

    # -------------------------------------------------------------- reading by key

    def get(self, key: bytes) -> bytes | None:
        """From the cache, or from the place that the dict or the hash table tells."""
        value = self._cache.get(key)
        if value is not None:
            self._cache.move_to_end(key)
            return value
        seed = xxh3(key, _SEED)
        at = self._recent.get(key)
        if at is not None:
            value = self._read(at, key, seed)
        number = seed >> self._shift
        while value is None:
            slot = self._slots[number]
            if not slot:
                return None
            if not (slot ^ seed) & self._tag_mask:
                value = self._read(self._places[(slot & self._row_mask) - 1], key, seed)
            number += 1
        self._cache[key] = value
        self._spare -= len(value)
        while self._spare < 0:
            self._spare += len(self._cache.popitem(last=False)[1])
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """So many gets, in one comprehension."""
        cached, get = self._cache.get, self.get
        return [get(key) if (value := cached(key)) is None else value for key in keys]

    def head(self, key: bytes) -> Any:
        """The value's size + 1, so that none is false."""
        at = self._recent.get(key)
        if at is not None:
            _, _, stored, raw, _ = _unpack(self.log, at)
            return (raw or stored) + 1
        row = self._row(key)
        return None if row is None else self._sizes[row] + 1

    def _row(self, key: bytes) -> int | None:
        """Its place in the columns."""
        seed = xxh3(key, _SEED)
        number = seed >> self._shift
        while slot := self._slots[number]:
            if not (slot ^ seed) & self._tag_mask:
                row = (slot & self._row_mask) - 1
                if self._keys[self._ends[row] : self._ends[row + 1]] == key:
                    return row
            number += 1
        return None

    def _read(self, at: int, key: bytes, seed: int) -> bytes | None:
        """The value of the record there; None where it is of another key."""
        total, _, stored, raw, key_bytes = _unpack(self.log, at)
        at += HEAD_BYTES
        start = at + key_bytes
        if self.log[at:start] != key:
            return None
        value: bytes = self.log[start : start + stored]
        if xxh3(value, seed) != total:
            raise ValueError(f"{at}: damaged")
        return _decompress(value, uncompressed_size=raw) if raw else value

    # -------------------------------------------------------------- reading in order

    def iter_keys(self, lo: bytes | None = None, hi: bytes | None = None) -> Iterator[bytes]:
        """Keys in [lo, hi), ascending."""
        return chain.from_iterable(keys for keys, _ in self._stretches(lo, hi))

    def iter_items(
        self, lo: bytes | None = None, hi: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) in [lo, hi), ascending."""
        return chain.from_iterable(starmap(self._items, self._stretches(lo, hi)))

    def _items(self, keys: list[bytes], row: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys of the rows from ``row`` on (-1: of none) with their values."""
        if row < 0:
            return ((key, self.get(key) or b"") for key in keys)
        if len(keys) < _MANY_ROWS or self._recent:
            return self._few_items(keys, row)
        if len(keys) == _MANY_ROWS:  # the first such stretch
            self.check()
        many = slice(row, row + len(keys))
        starts = np.asarray(self._places[many]) + np.asarray(self._key_bytes[many]) + HEAD_BYTES
        ends = starts + np.asarray(self.columns["stored"][many])
        log, raw = self.log, np.asarray(self.columns["raw"][many]).tolist()
        if not any(raw):
            values = map(log.__getitem__, map(slice, starts.tolist(), ends.tolist()))
            return zip(keys, values, strict=True)
        return (
            (key, _decompress(log[at:end], uncompressed_size=size) if size else log[at:end])
            for key, at, end, size in zip(keys, starts.tolist(), ends.tolist(), raw, strict=True)
        )

    def _few_items(self, keys: list[bytes], row: int) -> Iterator[tuple[bytes, bytes]]:
        """Through the cache, each with its own checksum."""
        cached, recent, end = self._cache.get, self._recent.get, row + len(keys)
        places, hashes = self._places[row:end], self._hashes[row:end]
        for key, place, seed in zip(keys, places, hashes, strict=True):
            value: bytes | None = cached(key)
            if value is None:
                at = recent(key, place)
                total, _, stored, raw, key_bytes = _unpack(self.log, at)
                at += HEAD_BYTES + key_bytes
                value = self.log[at : at + stored]
                if xxh3(value, seed) != total:
                    raise ValueError(f"{at}: damaged")
                if raw:
                    value = _decompress(value, uncompressed_size=raw)
            yield key, value

    def check(self) -> None:
        """Compare each 64 KiB of what was in the log at opening with its checksum."""
        log = memoryview(self.log)
        for number, total in enumerate(self.columns["windows"]):
            if xxh3(log[number * _WINDOW_BYTES : (number + 1) * _WINDOW_BYTES]) != total:
                raise ValueError(f"window {number}: damaged")

    def _stretches(self, lo: bytes | None, hi: bytes | None) -> Iterator[tuple[list[bytes], int]]:
        """Keys and the first one's row; what has none is a stretch by itself."""
        for key in islice(reversed(self._recent), len(self._recent) - self._looked):
            if self._row(key) is None:
                insort(self._fresh, key)
        self._looked = len(self._recent)
        row, end = self._rank(lo) if lo else 0, self._rank(hi) if hi else self.rows
        low = bisect_left(self._fresh, lo) if lo else 0
        high = bisect_left(self._fresh, hi) if hi else len(self._fresh)
        step = _FENCE
        for new in chain(self._fresh[low:high], (None,)):
            edge = end if new is None else self._rank(new)
            while row < edge:
                to = min(row + step, edge)
                step = min(2 * step, _MOST_ROWS)
                yield self._cut(row, to), row
                row = to
            if new is not None:
                yield [new], -1

    def _cut(self, row: int, end: int) -> list[bytes]:
        """Keys of rows [row, end)."""
        blob, lengths = self._keys[self._ends[row] : self._ends[end]], self._key_bytes[row:end]
        if lengths and bytes(lengths) == bytes(lengths[:1]) * len(lengths):
            same: list[bytes] = np.frombuffer(blob, f"V{lengths[0]}").tolist()
            return same
        return list(map(BytesIO(blob).read, lengths))

    def _rank(self, key: bytes) -> int:
        """How many rows are of smaller keys."""
        low = max(bisect_left(self._fences, key) - 1, 0) * _FENCE
        return low + bisect_left(self._cut(low, min(low + _FENCE, self.rows)), key)

    # -------------------------------------------------------------- the index

    def close(self) -> None:
        """Sync the log, and make the index anew if something was put."""
        os.ftruncate(self._fd, self._end)
        os.fdatasync(self._fd)
        if self._recent:
            for name, column in self._indexed().items():
                data = np.asarray(column, _COLUMNS[name]).tobytes()
                (self._path / name).write_bytes(data + xxh3(data).to_bytes(8, "little"))
        os.close(self._fd)
        self.__dict__.clear()

    def _indexed(self) -> dict[str, Any]:
        rows = dict(zip(self._cut(0, self.rows), self._places, strict=True)) | self._recent
        keys = sorted(rows)
        places = np.fromiter((rows[key] for key in keys), np.int64, len(keys))
        hashes = np.fromiter((xxh3(key, _SEED) for key in keys), np.uint64, len(keys))
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        log = np.frombuffer(self.log, np.uint8)[: self._end]
        heads = strings(log, HEAD_BYTES)[places].view(_HEAD_TYPE)
        order = np.argsort(hashes)
        shift, bits = _shift_and_bits(len(keys))
        # In the order of hashes each comes to stand behind the one before, or later.
        numbers = np.arange(len(keys))
        at = np.maximum.accumulate((hashes[order] >> shift).astype(np.int64) - numbers) + numbers
        slots = np.zeros(max(1 << (64 - shift), int(at[-1]) + 1) + 1, np.uint32)
        slots[at] = (hashes[order] & (0xFFFFFFFF >> bits << bits)).astype(np.int64) | order + 1
        sqns = np.empty_like(places)
        sqns[np.argsort(places)] = numbers + 1
        whole = memoryview(self.log)[: self._end]
        return {
            "slots": slots, "places": places, "hashes": hashes, "sqns": sqns,
            "sizes": np.where(heads["raw"], heads["raw"], heads["stored"]),
            "key_bytes": lengths, "key_ends": np.concatenate([[0], np.cumsum(lengths)]),
            "keys": np.frombuffer(b"".join(keys), np.uint8), "times": heads["ns"] // 1_000_000,
            "stored": heads["stored"], "raw": heads["raw"],
            "windows": [xxh3(whole[at : at + _WINDOW_BYTES])
                        for at in range(0, self._end, _WINDOW_BYTES)],
        }  # fmt: skip


def _shift_and_bits(rows: int) -> tuple[int, int]:
    """For a hash table at most half full: (a hash's bits that do not tell its slot, a slot's bits
    that tell the row)."""
    return 64 - (2 * rows).bit_length(), rows.bit_length()


def strings(blob: Any, length: int) -> Any:
    """Element i is ``blob[i : i + length]``. No copy."""
    return np.ndarray((len(blob) - length + 1,), f"V{length}", blob, strides=(1,))
