"""Writes compacted journal files: moves records from other files into new, sealed ones.

A moved record gets a new relative number and new checksums, since both are bound to the file and
the place; the old checksums are verified first. A value is compressed where that pays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.door.disk import TEMPORARY_SUFFIX, AppendFile, Disk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, cdb_seal, journal_names, record
from octavo.files.journal.compress import Compressor
from octavo.files.journal.journal_windows import WindowSums
from octavo.files.journal.record_batch import write_sums
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, array_of, copy, numbers_at, windows
from octavo.files.kernels.columns import Bytes
from octavo.files.kernels.xxh3_columns import xxh3_of

COMPRESS_FROM_BYTES = 256
_FLUSH_BYTES = 4 << 20
_MOST_TRIED = 64 << 10
_FLAGS_AT = 21
_LZ4 = bytes((record.LZ4,))
_sums = record.unpack_sums
_pack_sums = record.pack_sums


class Mover:
    """Encodes records of one source file for their new places."""

    def __init__(self, buffer: memoryview, seed: int, file: str, compresses: bool) -> None:
        self._buffer = buffer
        self._seed = seed
        self._file = file
        self._from = COMPRESS_FROM_BYTES if compresses else 1 << 32
        self._packed = Compressor().packed

    def many(self, writer: SealedWriter, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """Move records, unchanged but for number and checksums, to a file that has room for them.
        ``rows``: (sqn, start, end of the header, bytes of the stored value) of each. The value of a
        record without optional fields may get compressed. Headers were verified before. Some 4 us
        a record. Raises Corruption."""
        buffer, seed, least = self._buffer, self._seed, self._from
        low_32, fixed = record.LOW_32, record.FIXED_BYTES
        base, new_seed, at = writer.base_sqn, writer.seed, writer.at
        numbers, starts, parts = writer.begin_many()
        for sqn, start, head_end, stored in rows:
            head = bytes(buffer[start:head_end])
            value: bytes | memoryview = buffer[head_end + 8 : head_end + 8 + stored]
            if xxh3(value, xxh3(head, seed ^ start)) & low_32 != _sums(buffer, head_end)[1]:
                raise Corruption(self._file, head_end + 8, "value checksum")
            number = sqn - base
            packed = None
            if stored >= least and not head[_FLAGS_AT]:
                packed = self._packed(value)
            if packed is None:
                head = head[:8] + number.to_bytes(8, "big") + head[16:]
            else:
                head = b"".join(
                    (
                        record.pack_pair(8, head_end - start - 4 + len(packed)),
                        number.to_bytes(8, "big"),
                        head[16:_FLAGS_AT],
                        _LZ4,
                        head[_FLAGS_AT + 1 : fixed],
                        record.pack_u32(stored),
                        head[fixed:],
                    )
                )
                value = packed
                stored = len(packed)
            h = xxh3(head, new_seed ^ at)
            numbers.append(number)
            starts.append(at)
            parts += (head, _pack_sums(h & low_32, xxh3(value, h) & low_32), value)
            at += len(head) + 8 + stored
        writer.end_many(at)

    def columns(
        self, writer: SealedWriter, sqns: Ints, starts: Ints, head_ends: Ints, stored: Ints
    ) -> None:
        """As ``many``, but from arrays with an element for each record, by array kernels; no value
        gets compressed. Some 1 us a record. Raises Corruption."""
        raw, low_32 = array_of(self._buffer), np.uint64(record.LOW_32)
        seeds = starts.astype(np.uint64) ^ np.uint64(self._seed)
        of_heads = xxh3_of(raw, starts, head_ends - starts, seeds)
        of_values = xxh3_of(raw, head_ends + record.SUMS_BYTES, stored, of_heads)
        wrong = np.flatnonzero(numbers_at(raw, head_ends + 4, "<u4") != (of_values & low_32))
        if len(wrong):
            at = int(head_ends[wrong[0]]) + record.SUMS_BYTES
            raise Corruption(self._file, at, "value checksum")
        ends = np.cumsum(head_ends - starts + record.SUMS_BYTES + stored)
        at_new = np.concatenate(([0], ends[:-1]))
        out = np.empty(int(ends[-1]), dtype=np.uint8)
        copy(raw, starts, ends - at_new, out, at_new)
        numbers = sqns - writer.base_sqn
        windows(out, 8)[at_new + 8] = numbers.astype(">u8").view("V8")
        seeds = (at_new + writer.at).astype(np.uint64) ^ np.uint64(writer.seed)
        write_sums(out, at_new, at_new + (head_ends - starts), stored, seeds)
        writer.add_many(numbers, at_new, out)

    def changed(
        self,
        start: int,
        head_end: int,
        stored: int,
        number: int,
        check: int,
        kind: int,
        whole: bool,
    ) -> bytes:
        """One record, encoded for its new place, of which more changes: it loses its value where
        ``kind`` turns it into a delete or a key delta, and its place in a batch unless that
        survives ``whole``. Raises Corruption."""
        buffer = self._buffer
        end = head_end + 8 + stored
        try:
            head = record.parse_header(buffer[start:end], self._seed ^ start, end - start)
        except record.NotARecord as wrong:
            raise Corruption(self._file, start, f"journal record: {wrong}") from None
        value = bytes(buffer[head_end + 8 : end])
        if xxh3(value, head.hash64) & record.LOW_32 != head.value_sum:
            raise Corruption(self._file, head_end + 8, "value checksum")
        same = kind == head.kind
        raw_bytes = head.raw_bytes if same else None
        if not same:
            value = b""
        elif raw_bytes is None and stored >= self._from:
            packed = self._packed(value)
            if packed is not None:
                raw_bytes, value = len(value), packed
        keeps = kind != record.DELETE or same
        return record.encode(
            number,
            check,
            kind,
            head.tag,
            head.bucket,
            head.key,
            value,
            head.time_ms,
            expiry_ms=head.expiry_ms if keeps else 0,
            metadata=head.metadata if keeps else b"",
            index=head.index_changes if keeps else b"",
            batch=head.batch if whole else None,
            raw_bytes=raw_bytes,
            sub_key=head.sub_key,
        )


def squeezed(buffer: memoryview, records: Iterable[tuple[int, int, int]]) -> list[int]:
    """By how many bytes a Mover would shrink each of these records' values. ``records``: (start,
    end, bytes of the stored value) of each. 1 us a KiB."""
    compressor = Compressor()
    saved = [0]
    for start, end, stored in records:
        if COMPRESS_FROM_BYTES <= stored <= _MOST_TRIED and not buffer[start + _FLAGS_AT]:
            compressor.packed(buffer[end - stored : end])
        saved.append(compressor.saved_bytes)
    return [after - before for before, after in pairwise(saved)]


class SealedWriter:
    """Writes one sealed file, from its first byte to its last. Its name appears when it is whole
    and durable; the caller syncs the directory."""

    def __init__(
        self, disk: Disk, directory: str, base_sqn: int, seed: int, epoch: int, created_ms: int
    ) -> None:
        self.name = journal_names.name_of(base_sqn, seed, journal_names.SEALED)
        self.base_sqn = base_sqn
        self.seed = seed
        self.at = cdb.RECORDS_AT
        self.path = f"{directory}/{self.name}"
        self._disk = disk
        self._numbers = array("I")
        self._starts = array("I")
        self._times: list[int] = []
        self._parts: list[bytes | memoryview] = [
            cdb.beginning(cdb.FileHeader(epoch, base_sqn, seed, created_ms))
        ]
        self._waiting = 0
        self._windows = WindowSums(seed)
        self._file: AppendFile | None = disk.create(self.path + TEMPORARY_SUFFIX)

    @property
    def count(self) -> int:
        """Records so far."""
        return len(self._numbers)

    def begin_many(self) -> tuple[array[int], array[int], list[bytes | memoryview]]:
        """(numbers, places, pieces): the caller appends to these for each record, then calls
        ``end_many``."""
        return self._numbers, self._starts, self._parts

    def end_many(self, at: int) -> None:
        """Take note that what was appended ends at ``at``; write it if it is much."""
        self._waiting += at - self.at
        self.at = at
        if self._waiting >= _FLUSH_BYTES:
            self._flush()

    def add_many(self, numbers: Ints, starts: Ints, encoded: Bytes) -> None:
        """The next records, end to end: each one's number, and where in ``encoded`` it begins."""
        self._numbers.frombytes(numbers.astype(np.uint32).tobytes())
        self._starts.frombytes((starts + self.at).astype(np.uint32).tobytes())
        self._parts.append(encoded.data)
        self.end_many(self.at + len(encoded))

    def written_between(self, first_ms: int, last_ms: int) -> None:
        """Take note of the write times of the first and the last of the records added."""
        self._times = [self._times[0] if self._times else first_ms, last_ms]

    def add(self, number: int, encoded: bytes, time_ms: int) -> None:
        """The next record, encoded for ``number`` and the place ``at``."""
        self._numbers.append(number)
        self._starts.append(self.at)
        self._parts.append(encoded)
        # Calls neither written_between nor end_many: compaction adds each larger record by this.
        if not self._times:
            self._times = [time_ms, time_ms]
        self._times[1] = time_ms
        self.at += len(encoded)
        self._waiting += len(encoded)
        if self._waiting >= _FLUSH_BYTES:
            self._flush()

    def finish(self, last_sqn: int, origin: cdb.Origin, latest_ms: int = 0) -> dict[str, int | str]:
        """Seal the file, which covers every sqn to ``last_sqn``, and return what a manifest wants
        to know of it. ``latest_ms``: the latest write time of the records that it came from."""
        self._flush()
        self._starts.append(self.at)
        first_ms, last_ms = self._times or (0, 0)
        front, back = cdb_seal.compacted_sealing(
            np.frombuffer(self._numbers, dtype=np.uint32),
            np.frombuffer(self._starts, dtype=np.uint32),
            last_sqn - self.base_sqn + 1,
            self.seed,
            (first_ms, max(last_ms, latest_ms)),
            origin,
            self._windows.section(),
        )
        file = self._file
        if file is None:
            raise Corruption(self.path, self.at, "the file is no longer being written")
        file.write_all(back)
        file.pwrite_all(front, 0)
        file.sync()
        file.close()
        self._disk.rename(self.path + TEMPORARY_SUFFIX, self.path)
        self._file = None
        return {
            "name": self.name,
            "base_sqn": self.base_sqn,
            "last_sqn": last_sqn,
            "count": self.count,
            "bytes": self.at + len(back),
            "seed": self.seed,
        }

    def abandon(self) -> None:
        """Close the file and remove it, unless it is finished. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            with suppress(OSError):  # or a full disk would stay full until somebody sweeps
                self._disk.unlink(self.path + TEMPORARY_SUFFIX)

    def _flush(self) -> None:
        if self._file is not None and self._parts:
            joined = b"".join(self._parts)
            self._windows.add(joined)
            self._file.write_all(joined)
        self._parts.clear()
        self._waiting = 0
