"""Writes what a task of a bulk load makes: journal files and their ledger files, in staging.

Each journal file holds records with numbers from 0; the store gives them a base when it takes the
file in. All is done by array kernels: no bytecode runs for each record.
"""

from __future__ import annotations

import itertools
import secrets
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from octavo.files.door.disk import AppendFile, Disk
from octavo.files.errors import Misuse
from octavo.files.handover import staging
from octavo.files.handover.staging import Attempt, StagedJournal, StagedLedger
from octavo.files.journal import cdb, cdb_seal
from octavo.files.journal.journal_names import SEALED
from octavo.files.journal.journal_windows import WindowSums
from octavo.files.journal.record import MAX_METADATA_BYTES
from octavo.files.journal.record_batch import Operations, Place, encoded
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Mask, column_of, lengths_of, of_one_length
from octavo.files.kernels.columns import ByteColumn, Strings
from octavo.files.kernels.constant_columns import Number, repeated
from octavo.files.ledger import ledger_key, merge
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.ledger_key import MAX_KEY_BYTES, STANDARD
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns

T = TypeVar("T")

FILE_BYTES = 256 << 20
"""A journal file is full at this size."""
FILE_RECORDS = 1 << 20
LEDGER_ROWS = 1 << 18
LEDGER_BYTES = 64 << 20
MAX_VALUE_BYTES = 1 << 30
_MOST_TRIES = 8
"""How often it tries to make something in a folder that others may remove while it is empty."""
_SHOWN_BYTES = 40
"""Bytes of a key that a message shows."""
_FLUSH_BYTES = 1 << 20
"""So much is written at once, while the processor's caches have it."""
_PIECE_BYTES = 2 << 20
"""Rows are encoded together up to so many bytes, and the row that passes them,"""
_PIECE_ROWS = 1 << 15
"""or up to so many rows."""


class StagedWriter:
    """Writes for one attempt of one task. Call ``finish`` or ``abandon``, which leaves nothing."""

    def __init__(
        self,
        disk: Disk,
        store: str,
        job: str,
        attempt: str,
        *,
        now_ms: int,
        clock_ms: Callable[[], int] | None = None,
        file_bytes: int = FILE_BYTES,
        file_records: int = FILE_RECORDS,
    ) -> None:
        """``now_ms``: when its rows count as written. ``clock_ms``: the clock by which files' names
        say when they were begun, so that a writer that takes longer than left-overs are kept is not
        swept."""
        self._disk = disk
        self._store = store
        self._folder = staging.folder(store, job)
        self._job = job
        self._attempt = staging.checked_name("attempt", attempt)
        self._now_ms = now_ms
        self._clock_ms = clock_ms or (lambda: now_ms)
        self._file_bytes = min(file_bytes, cdb.MAX_FILE_BYTES >> 1)
        self._file_records = file_records
        self._file: AppendFile | None = None
        self._made: list[str] = []
        self._journals: list[StagedJournal] = []
        self._room = staging.Room()

    # ------------------------------------------------------------ rows

    def put_many(self, bucket: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write plain puts of one bucket. Raises Misuse (a key is empty or too long), OSError."""
        self.add(Operations(column_of(keys), column_of(values), (bucket,)))

    def add(self, operations: Operations) -> None:
        """Write the next operations; plain puts take some 0.25 us each. Raises Misuse (a key is
        empty or too long, say, or too many are long), OSError."""
        if not len(operations):
            return
        _check_lengths(operations)
        filled = np.cumsum(operations.record_sizes())
        done, before = 0, 0
        while done < len(filled):
            self._begin()
            number, at = len(self._offsets) - 1, self._offsets[-1]
            # Up to the record that fills the file or the piece, and that one, too.
            full = before + min(self._file_bytes - at, _PIECE_BYTES)
            high = int(np.searchsorted(filled, full)) + 1
            high = min(high, done + max(self._file_records - number, 1), done + _PIECE_ROWS)
            high = min(high, len(filled))
            some = operations.between(done, high)
            place = Place(at, number, self._seed, STANDARD, self._now_ms)
            self._parts.append(encoded(place, some).data)
            ends = at + filled[done:high] - before
            self._offsets.frombytes(ends.astype(np.uint32).tobytes())
            self._rows.append(_ledger_rows(place, some))
            done, before = high, int(filled[high - 1])
            self._look()

    # ------------------------------------------------------------ files

    def _begin(self) -> None:
        if self._file is not None:
            return
        self._seed = secrets.randbits(64)
        number = len(self._journals)
        self._name = name = self._noted(
            f"{self._attempt}-{number:04x}-{self._clock_ms():012x}-{self._seed:016x}.cdb"
        )
        self._file = self._in_folder(lambda: self._disk.create(f"{self._folder}/{name}"))
        self._offsets = array("I", (cdb.RECORDS_AT,))
        header = cdb.FileHeader(0, 0, self._seed, self._now_ms)
        self._parts: list[bytes | memoryview] = [cdb.beginning(header)]
        self._windows = WindowSums(self._seed)
        self._rows: list[Columns] = []
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
        """Seal the file, which has all its records: write its tables and, while it is synced, the
        ledger files of its records."""
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
        synced = file.begin_sync()
        file.close()
        self._file = None
        stem, numbers = self._name.removesuffix(SEALED), itertools.count()
        found = merge.write_rows(
            self._disk,
            self._folder,
            lambda: self._noted(f"{stem}-{next(numbers):04x}.sst"),
            merge.stacked(self._rows, in_place=True),
            max_rows=LEDGER_ROWS,
            max_bytes=LEDGER_BYTES,
        )
        synced()
        made = StagedJournal(
            name=self._name,
            count=len(table) - 1,
            bytes=int(table[-1]) + len(back),
            seed=self._seed,
            digest=int.from_bytes(back[-8:], "little"),
            ledgers=tuple(StagedLedger(**each.told()) for each in found),
        )
        self._room.take(made)
        self._journals.append(made)

    def _noted(self, name: str) -> str:
        """Note the name of a file that is about to be made, for ``abandon``; returns it."""
        self._made.append(name)
        return name

    # ------------------------------------------------------------ the end

    def finish(self) -> Attempt:
        """Make all durable, and say so in the attempt's file. Returns what the commit is to name.
        Raises OSError, Misuse."""
        if self._file is not None and len(self._offsets) > 1:
            self._seal()
        attempt = Attempt(self._job, self._attempt, tuple(self._journals), self._clock_ms())

        def told() -> None:
            self._disk.sync_dir(self._folder)
            staging.write_attempt(self._disk, self._store, attempt)

        self._in_folder(told)
        return attempt

    def _in_folder(self, make: Callable[[], T]) -> T:
        """Have ``make`` make something in the job's folder, which is made before if need be: while
        it is empty, another attempt's end, or an opening of the store, may remove it."""
        for _ in range(_MOST_TRIES):
            self._disk.mkdir_within(self._store, f"{staging.STAGING}/{self._job}")
            with suppress(FileNotFoundError):
                return make()
        return make()

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
        with suppress(OSError):  # other attempts have files there, or there is none
            self._disk.rmdir(self._folder)


def _check_lengths(operations: Operations) -> None:
    """Raise Misuse that names the first row of which something is too long."""
    keys, values = lengths_of(operations.keys.offsets), lengths_of(operations.values.offsets)
    whole = keys + operations.bucket_bytes()
    _refuse(operations, keys < 1, "64 KiB, and at least a byte")
    _refuse(operations, whole > MAX_KEY_BYTES, "64 KiB of key and bucket's name together")
    _refuse(operations, values > MAX_VALUE_BYTES, f"a value of {MAX_VALUE_BYTES} bytes")
    metas = operations.metas
    if metas is not None:
        longer = lengths_of(metas.offsets) > MAX_METADATA_BYTES
        _refuse(operations, longer, f"metadata of {MAX_METADATA_BYTES} bytes")


def _refuse(operations: Operations, wrong: Mask, allowed: str) -> None:
    if not wrong.any():
        return
    row = int(wrong.argmax())
    low, high = operations.keys.offsets[row : row + 2].tolist()
    key = operations.keys.blob[low:high][:_SHOWN_BYTES].tobytes()
    raise Misuse(f"row {row}, key {key!r} of {high - low} bytes: allowed is at most {allowed}")


def _ledger_rows(place: Place, operations: Operations) -> Columns:
    """The ledger rows of some operations of a file, in their order; keys and metadata are
    copied."""
    count = len(operations)
    flags = repeated(np.uint8(0), count)
    if operations.deletes is not None or operations.expiries is not None:
        flags = flags.copy()
    if operations.deletes is not None:
        flags[operations.deletes] = TOMBSTONE
    if operations.expiries is not None:
        flags[operations.expiries > 0] |= EXPIRES
    prefixes = [ledger_key.prefix(place.tag, name) for name in operations.buckets]
    keys = _copied(operations.keys)
    found = Columns(
        keys=keys,
        prefixes=prefixes,
        groups=operations.which,
        hashes=np.empty(0, dtype=np.uint32),
        sqns=np.arange(place.number, place.number + count, dtype=np.uint32),
        flags=flags,
        sizes=_lengths(operations.values, np.uint32),
        times=repeated(np.uint64(place.now_ms), count),
        expiries=operations.expiries,
        metas=None if operations.metas is None else _copied(operations.metas),
    )
    found.hashes = hash_column(found.whole_keys())
    return found


def _copied(strings: ByteColumn) -> Strings:
    first, end = int(strings.offsets[0]), int(strings.offsets[-1])
    blob = strings.blob[first:end].copy()
    return Strings(blob, strings.offsets[:-1] - first, _lengths(strings, np.int64))


def _lengths(strings: ByteColumn, kind: type[Number]) -> npt.NDArray[Number]:
    length = of_one_length(strings)
    if length >= 0:
        return repeated(kind(length), len(strings.offsets) - 1)
    return lengths_of(strings.offsets).astype(kind)
