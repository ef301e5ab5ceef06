"""Writes what a task of a bulk load makes: journal files and their ledger files, in staging.

Each journal file holds records with numbers from 0; the store gives them a base when it takes the
file in. Plain puts are encoded by array kernels.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from octavo.files import cdb, cdb_seal, journal_rows, ledger_key, merge, record, staging
from octavo.files.arrays import np, npt
from octavo.files.byte_strings import Bytes, Ints, lengths_of, offsets_of, prefixed
from octavo.files.disk import AppendFile, Disk
from octavo.files.errors import Misuse
from octavo.files.hashing import hash_column
from octavo.files.journal_windows import WindowSums
from octavo.files.ledger_key import MAX_KEY_BYTES, STANDARD
from octavo.files.record_batch import Place, encoded_puts, record_sizes
from octavo.files.rows import ByteColumn, Rows
from octavo.files.sst_writer import Columns, Strings
from octavo.files.staging import Attempt, StagedJournal, StagedLedger

FILE_BYTES = 256 << 20
"""A journal file is full at this size."""
FILE_RECORDS = 1 << 20
LEDGER_ROWS = 1 << 18
LEDGER_BYTES = 64 << 20
MAX_VALUE_BYTES = 1 << 30
_FLUSH_BYTES = 1 << 20
"""So much is written at once, while the processor's caches have it."""
_PIECE_BYTES = 2 << 20
"""Some rows are encoded together: no more than so many bytes of them, but for the last,"""
_PIECE_ROWS = 1 << 15
"""and rows."""


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
        self._plain: _PlainPuts | None = None  # while all records are that
        self._made: list[str] = []
        self._journals: list[StagedJournal] = []
        disk.mkdir(self._folder)

    # ------------------------------------------------------------ rows

    def put_many(self, bucket: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Plain puts of one bucket. Raises Misuse (a key that is empty or too long), OSError."""
        self.put_columns(bucket, _column(keys), _column(values))

    def put_columns(self, bucket: bytes, keys: ByteColumn, values: ByteColumn) -> None:
        """The same; some 0.4 us a row. Offsets need not begin at 0."""
        key_bytes, value_bytes = lengths_of(keys.offsets), lengths_of(values.offsets)
        if not len(key_bytes):
            return
        if key_bytes.min() < 1 or int(key_bytes.max()) + len(bucket) > MAX_KEY_BYTES:
            raise Misuse("key: 1 byte to 64 KiB together with the bucket's name")
        if value_bytes.max() > MAX_VALUE_BYTES:
            raise Misuse(f"value: at most {MAX_VALUE_BYTES} bytes")
        filled = np.cumsum(record_sizes(bucket, keys, values))
        done, before = 0, 0
        while done < len(filled):
            self._begin()
            number, at = len(self._offsets) - 1, self._offsets[-1]
            # Up to the record that fills the file or the piece, and that one, too.
            full = before + min(self._file_bytes - at, _PIECE_BYTES)
            high = int(np.searchsorted(filled, full)) + 1
            high = min(high, done + max(self._file_records - number, 1), done + _PIECE_ROWS)
            high = min(high, len(filled))
            some = ByteColumn(keys.blob, keys.offsets[done : high + 1])
            their = ByteColumn(values.blob, values.offsets[done : high + 1])
            place = Place(at, number, self._seed, self._tag, bucket, self._now_ms)
            self._parts.append(encoded_puts(place, some, their).data)
            ends = at + filled[done:high] - before
            self._offsets.frombytes(ends.astype(np.uint32).tobytes())
            if number == 0:
                self._plain = _PlainPuts(self._tag, bucket)
            if self._plain is not None and self._plain.bucket == bucket:
                self._plain.add(some, value_bytes[done:high])
            else:
                self._plain = None
            done, before = high, int(filled[high - 1])
            self._look()

    def add(self, row: StagedRow) -> None:
        """Any operation. Raises Misuse, OSError."""
        if not row.key or len(row.key) + len(row.bucket) > MAX_KEY_BYTES:
            raise Misuse("key: 1 byte to 64 KiB together with the bucket's name")
        if len(row.value or b"") > MAX_VALUE_BYTES:
            raise Misuse(f"value: at most {MAX_VALUE_BYTES} bytes")
        self._begin()
        self._plain = None
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
        self._parts: list[bytes | memoryview] = [cdb.beginning(header)]
        self._windows = WindowSums(self._seed)
        self._plain = None
        self._written = 0

    def _look(self) -> None:
        at = self._offsets[-1]
        if at - self._written >= _FLUSH_BYTES:
            self._flush()
        if at >= self._file_bytes or len(self._offsets) > self._file_records:
            self._seal()

    def _flush(self) -> None:
        if self._file is not None and self._parts:
            joined = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
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
        rows: Rows | Columns
        if self._plain is not None:
            rows = self._plain.columns(self._now_ms)
        else:
            view = memoryview(self._disk.map(path))
            rows = journal_rows.rows_of(view, table, 0, self._seed, 0, path)
        stem = self._name.removesuffix(".cdb")
        found = merge.write_rows(
            self._disk,
            self._folder,
            self._ledger_name(stem),
            rows,
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


def _column(strings: Sequence[bytes]) -> ByteColumn:
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    return ByteColumn(np.frombuffer(b"".join(strings), dtype=np.uint8), offsets_of(lengths))


class _PlainPuts:
    """What the ledger is to know of a file whose records are all plain puts of one bucket."""

    def __init__(self, tag: int, bucket: bytes) -> None:
        self.bucket = bucket
        self._prefix = ledger_key.prefix(tag, bucket)
        self._keys: list[Bytes] = []
        self._lengths: list[Ints] = []
        self._hashes: list[npt.NDArray[np.uint32]] = []
        self._sizes: list[Ints] = []

    def add(self, keys: ByteColumn, sizes: Ints) -> None:
        """The next records: their keys, which are copied, and the bytes of their values."""
        self._keys.append(keys.blob[keys.offsets[0] : keys.offsets[-1]].copy())
        self._lengths.append(lengths_of(keys.offsets))
        self._hashes.append(hash_column(prefixed(self._prefix, keys)))
        self._sizes.append(sizes)

    def columns(self, now_ms: int) -> Columns:
        """The ledger's rows, in the order of the records."""
        lengths = np.concatenate(self._lengths)
        count = len(lengths)
        return Columns(
            keys=Strings(np.concatenate(self._keys), offsets_of(lengths)[:-1], lengths),
            prefixes=[self._prefix],
            groups=None,
            hashes=np.concatenate(self._hashes),
            sqns=np.arange(count, dtype=np.uint64),
            flags=np.zeros(count, dtype=np.uint8),
            sizes=np.concatenate(self._sizes).astype(np.uint32),
            times=np.full(count, now_ms, dtype=np.uint64),
        )


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
