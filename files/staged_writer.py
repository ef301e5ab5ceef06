"""Writes what a task of a bulk load makes: journal files and their ledger files, in staging.

Each journal file holds records with numbers from 0; the store gives them a base when it takes the
file in. Two short Python steps a plain row (its checksums), array kernels for the rest.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import cdb, cdb_seal, journal_rows, ledger_key, merge, record, staging
from octavo.files.arrays import np
from octavo.files.disk import AppendFile, Disk
from octavo.files.errors import Misuse
from octavo.files.hashing import hash_column
from octavo.files.journal_windows import WindowSums
from octavo.files.ledger_key import MAX_KEY_BYTES, STANDARD
from octavo.files.rows import ByteColumn, Rows
from octavo.files.staging import Attempt, StagedJournal, StagedLedger

FILE_BYTES = 256 << 20
"""A journal file is full at this size."""
FILE_RECORDS = 1 << 20
LEDGER_ROWS = 1 << 18
LEDGER_BYTES = 64 << 20
MAX_VALUE_BYTES = 1 << 30
_FLUSH_BYTES = 4 << 20
_REST = record.FIXED_BYTES + record.SUMS_BYTES - 16


class StagedRow(NamedTuple):
    """One operation of a job; ``value`` None deletes the key."""

    bucket: bytes
    key: bytes
    value: bytes | None
    expiry_ms: int = 0
    metadata: bytes = b""
    entries: bytes = b""
    """Packed index entries: see index_terms.packed."""


class StagedWriter:
    """One attempt of one task. Call ``finish`` or ``abandon``; the latter leaves nothing."""

    def __init__(
        self,
        disk: Disk,
        store: str,
        job: str,
        attempt: str,
        *,
        now_ms: int,
        tag: int = STANDARD,
        file_bytes: int = FILE_BYTES,
        file_records: int = FILE_RECORDS,
    ) -> None:
        self._disk = disk
        self._store = store
        self._folder = staging.folder(store, job)
        self._job = job
        self._attempt = staging.checked_name("attempt", attempt)
        self._now_ms = now_ms
        self._tag = tag
        self._file_bytes = min(file_bytes, cdb.MAX_FILE_BYTES >> 1)
        self._file_records = file_records
        self._file: AppendFile | None = None
        self._prefix: bytes | None = None  # of all keys, while all records are plain puts
        self._bucket = b""
        self._keys: list[bytes] = []
        self._sizes: list[int] = []
        self._made: list[str] = []
        self._journals: list[StagedJournal] = []
        disk.mkdir(self._folder)

    # ------------------------------------------------------------ rows

    def put_many(self, bucket: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Plain puts of one bucket. Raises Misuse (a key that is empty or too long), OSError."""
        blen = len(bucket)
        if keys and (min(map(len, keys)) < 1 or max(map(len, keys)) + blen > MAX_KEY_BYTES):
            raise Misuse("key: 1 byte to 64 KiB together with the bucket's name")
        if values and max(map(len, values)) > MAX_VALUE_BYTES:
            raise Misuse(f"value: at most {MAX_VALUE_BYTES} bytes")
        pack, sums, low, now = record.pack_fixed, record.pack_sums, record.LOW_32, self._now_ms
        magic, version, put, tag = record.MAGIC, record.VERSION, record.PUT, self._tag
        rest = _REST + blen
        done = 0
        while done < len(keys):
            self._begin()
            offsets, seed, parts = self._offsets, self._seed, self._parts
            room = min(self._file_records - len(offsets) + 1, 4096)
            add = parts.append
            at = offsets[-1]
            for number, (key, value) in enumerate(
                zip(keys[done : done + room], values[done : done + room], strict=True),
                len(offsets) - 1,
            ):
                size = rest + len(key) + len(value)
                head = (
                    pack(
                        8, size, number.to_bytes(8, "big"), magic, version, put, tag, 0,
                        blen, len(key) - 1, now,
                    )
                    + bucket
                    + key
                )  # fmt: skip
                h = xxh3(head, seed ^ at)
                add(head + sums(h & low, xxh3(value, h) & low))
                add(value)
                at += size + 16
                offsets.append(at)
                done += 1
                if at >= self._file_bytes:
                    break
            came = len(offsets) - 1 - len(self._keys)
            if self._prefix is None and not self._keys and came == len(offsets) - 1:
                self._prefix = ledger_key.prefix(tag, bucket)
                self._bucket = bucket
            if self._prefix is not None and bucket == self._bucket:
                self._keys += keys[done - came : done]
                self._sizes += map(len, values[done - came : done])
            else:
                self._prefix = None
            self._look()

    def add(self, row: StagedRow) -> None:
        """Any operation. Raises Misuse, OSError."""
        if not row.key or len(row.key) + len(row.bucket) > MAX_KEY_BYTES:
            raise Misuse("key: 1 byte to 64 KiB together with the bucket's name")
        if len(row.value or b"") > MAX_VALUE_BYTES:
            raise Misuse(f"value: at most {MAX_VALUE_BYTES} bytes")
        self._begin()
        self._prefix = None
        self._keys.append(row.key)
        encoded = record.encode(
            len(self._offsets) - 1,
            self._seed ^ self._offsets[-1],
            record.DELETE if row.value is None else record.PUT,
            self._tag,
            row.bucket,
            row.key,
            row.value or b"",
            self._now_ms,
            expiry_ms=row.expiry_ms,
            metadata=row.metadata,
            index=row.entries,
        )
        self._parts.append(encoded)
        self._offsets.append(self._offsets[-1] + len(encoded))
        self._look()

    # ------------------------------------------------------------ files

    def _begin(self) -> None:
        if self._file is not None:
            return
        self._disk.mkdir(self._folder)
        self._seed = secrets.randbits(64)
        number = len(self._journals)
        name = f"{self._attempt}-{number:04x}-{self._now_ms:012x}-{self._seed:016x}.cdb"
        self._made.append(name)
        self._name = name
        self._file = self._disk.create(f"{self._folder}/{name}")
        self._offsets = array("I", (cdb.RECORDS_AT,))
        header = cdb.FileHeader(0, 0, self._seed, self._now_ms)
        self._parts: list[bytes] = [cdb.beginning(header)]
        self._windows = WindowSums(self._seed)
        self._prefix = None
        self._keys, self._sizes = [], []
        self._written = 0

    def _look(self) -> None:
        at = self._offsets[-1]
        if at - self._written >= _FLUSH_BYTES:
            self._flush()
        if at >= self._file_bytes or len(self._offsets) > self._file_records:
            self._seal()

    def _flush(self) -> None:
        if self._file is not None and self._parts:
            joined = b"".join(self._parts)
            self._windows.add(joined)
            self._file.write_all(joined)
        self._parts.clear()
        self._written = self._offsets[-1]

    def _seal(self) -> None:
        """The file is whole: its tables, then the ledger's rows of its records."""
        file = self._file
        if file is None:
            return
        self._flush()
        table = np.frombuffer(self._offsets, dtype=np.uint32)
        front, back = cdb_seal.sealing(
            table, self._seed, self._now_ms, self._now_ms, self._windows.section()
        )
        file.write_all(back)
        file.pwrite_all(front, 0)
        file.sync()
        file.close()
        self._file = None
        path = f"{self._folder}/{self._name}"
        rows = self._plain_rows()
        if rows is None:
            view = memoryview(self._disk.map(path))
            rows = journal_rows.rows_of(view, table, 0, self._seed, 0, path)
        stem = self._name.removesuffix(".cdb")
        found = merge.write_rows(
            self._disk,
            self._folder,
            self._ledger_name(stem),
            merge.sort_rows(rows),
            max_rows=LEDGER_ROWS,
            max_bytes=LEDGER_BYTES,
        )
        self._journals.append(
            StagedJournal(
                name=self._name,
                count=len(table) - 1,
                bytes=int(table[-1]) + len(back),
                seed=self._seed,
                digest=int.from_bytes(back[-8:], "little"),
                ledgers=tuple(map(_told, found)),
            )
        )

    def _plain_rows(self) -> Rows | None:
        """The ledger's rows of a file of plain puts in one bucket, from what was given; None:
        they are to be read from the file."""
        prefix, count = self._prefix, len(self._offsets) - 1
        if prefix is None or len(self._keys) != count:
            return None
        blob = prefix + prefix.join(self._keys)
        ends = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, self._keys), np.int64, count) + len(prefix), out=ends[1:])
        keys = ByteColumn(np.frombuffer(blob, dtype=np.uint8), ends)
        return Rows(
            keys=keys,
            hashes=hash_column(keys),
            sqns=np.arange(count, dtype=np.uint64),
            flags=np.zeros(count, dtype=np.uint8),
            sizes=np.array(self._sizes, dtype=np.uint32),
            times=np.full(count, self._now_ms, dtype=np.uint64),
        )

    def _ledger_name(self, stem: str) -> _Names:
        return _Names(stem, self._made)

    # ------------------------------------------------------------ the end

    def finish(self) -> Attempt:
        """All is durable, and said to be: what the commit is to name. Raises OSError."""
        if self._file is not None and len(self._offsets) > 1:
            self._seal()
        attempt = Attempt(self._job, self._attempt, tuple(self._journals), self._now_ms)
        self._disk.sync_dir(self._folder)
        staging.write_attempt(self._disk, self._store, attempt)
        return attempt

    def abandon(self) -> None:
        """Remove what was made. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        for name in (*self._made, f"{self._attempt}{staging.ATTEMPT_SUFFIX}"):
            path = f"{self._folder}/{name}"
            if self._disk.exists(path):
                self._disk.unlink(path)
        self._made.clear()


class _Names:
    """Names of the ledger files of one journal file, each noted as it is given."""

    def __init__(self, stem: str, made: list[str]) -> None:
        self._stem = stem
        self._made = made
        self._given = 0

    def __call__(self) -> str:
        name = f"{self._stem}-{self._given:04x}.sst"
        self._given += 1
        self._made.append(name)
        return name


def _told(found: merge.Summary) -> StagedLedger:
    return StagedLedger(
        found.name,
        found.rows,
        found.bytes,
        found.tombstones,
        found.expiring,
        found.first_key.decode("latin-1"),
        found.last_key.decode("latin-1"),
        found.min_sqn,
        found.max_sqn,
    )
