"""Reads the values of a batch's rows: array kernels locate them in the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from mmap import mmap

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import Reader
from octavo.actors.scanning.read_values import Opened, read_values
from octavo.actors.view import JournalView
from octavo.files.errors import Corruption, OctavoError
from octavo.files.journal import record
from octavo.files.journal.journal_values import Places, places_at, places_unseen, spans
from octavo.files.journal.journal_windows import RecordSums
from octavo.files.journal.lz4_frame import Frame, may_hold
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import (
    Ints,
    Words,
    alike,
    as_list,
    by_length,
    copy,
    gather,
    offsets_of,
)
from octavo.files.kernels.cold_pages import COLD
from octavo.files.kernels.columns import ByteColumn, Strings, names_at
from octavo.files.ledger import ledger_key
from octavo.files.ledger.few_maps import most_maps
from octavo.files.ledger.live_batches import Batch, buckets_of, by_buckets, keys_of
from octavo.files.lifecycle import State

Value = bytes | memoryview
_PLAIN, _LONG_WAY = -1, -2
"""Marks in place of a value's size before compression: it is stored uncompressed; it has to be read
the long way."""
_FEW = 32
_MANY, _SMALL_BYTES = 64, 512
"""At least so many values, of at most so many bytes on average, are cut out by array kernels."""
_ROWS_A_FILE = 24
"""With fewer values a file than this, slicing them one by one is faster than the kernels."""
_FEW_A_FILE = 96
"""With up to so many values a file, reading them one by one is faster than locating them."""
_ROWS_A_LENGTH = 16
"""Moving values by length is worth while from so many values of each length on."""
_LATE_BYTES = 24 << 10
"""Values of at least so many bytes on average are hashed as they are cut out: to fetch them from
memory twice would cost more than checksums of their own do."""


class OpenJournal:
    """Maps of journal files, for one reader.

    For the file being written, it keeps the map and the offsets of the first access: all that the
    reader may see was already there.
    """

    def __init__(self) -> None:
        self._growing: dict[JournalFile, Opened] = {}
        self._sums: dict[JournalFile, RecordSums] = {}
        self._mapped: list[RecordSums] = []
        """The entries of ``_sums`` that hold a map: at most as many as a process may keep."""

    def sums(self, file: JournalFile, mapped: mmap | bytes) -> RecordSums:
        """The file's window checksums, which tell which records are as they were written. What has
        been checked is remembered for this reader."""
        known = self._sums.get(file)
        if known is not None and known.mapped is mapped:
            return known
        if len(self._mapped) >= most_maps():
            for each in self._mapped:
                each.let_go()
            self._mapped.clear()
        if known is None:
            whole = file not in self._growing
            known = self._sums[file] = RecordSums(mapped, file.seed, whole=whole)
        else:
            known.read_from(mapped)
        self._mapped.append(known)
        return known

    def open(self, file: JournalFile) -> Opened:
        """The file's map and its offsets. Raises Corruption."""
        growing = self._growing.get(file)
        if growing is None and file.state is State.WRITING:
            # A copy: while somebody has a view of an array it cannot grow.
            offsets = memoryview(file.offsets[:])
            growing = self._growing[file] = file.growing.up_to(offsets[-1]), offsets
        if growing is not None:
            return growing
        return file.ensure_open()


def _in_files(
    journal: JournalView, sqns: Ints, low: int, high: int
) -> Iterator[tuple[JournalFile, Ints | slice]]:
    """Yield each file with the rows of [low, high) that are in it, ascending; row i has the sqn
    ``sqns[i]``."""
    bases, files = journal
    numbers = np.searchsorted(np.array(bases[1:], dtype=np.int64), sqns[low:high], side="right")
    for number, rows in by_length(numbers):
        yield files[number], slice(low, high) if isinstance(rows, slice) else rows + low


def few_a_file(reader: Reader, batch: Batch) -> bool:
    """Whether a batch's values are spread over so many files that reading them one by one is
    faster: each file costs the kernels 0.13 ms, however few values it has. Always False where reads
    wait for a device: there a batch's values are requested all at once."""
    bases, files = reader.view.journal
    sqns = batch.columns.sqns[batch.rows]
    if COLD.left or len(files) * _FEW_A_FILE <= len(sqns):
        return False
    numbers = np.searchsorted(np.array(bases[1:], dtype=np.uint64), sqns, side="right")
    return int(np.count_nonzero(np.bincount(numbers))) * _FEW_A_FILE > len(sqns)


class Located:
    """Where the values of a batch's rows stand, and the methods that cut them out. Checksums have
    been compared already or, if ``late``, are compared as values are cut out. Values are cut out a
    few at a time, on demand, so that they stay in the processor's caches."""

    def __init__(
        self, count: int, with_care: Callable[[int], bytes], *, late: bool = False
    ) -> None:
        """``with_care``: reads the value of a row that the kernels could not locate, or raises what
        is wrong with it. ``late``: values are compared with their checksums as they are cut out."""
        self._with_care = with_care
        self._maps: list[mmap | bytes] = []
        self._views: list[memoryview] = []
        self._kept: set[int] = set()
        """Ids of the maps that are kept. From further files than a process may keep mapped, values
        are copied."""
        self._of, self._at, self._lengths = (np.zeros(count, np.int64) for _ in range(3))
        self._raw_bytes = np.full(count, _LONG_WAY, np.int64)
        self._unseen: tuple[Words, Ints] | None = None
        if late:  # seeds and checksums of all values, until those were compared
            self._unseen = np.zeros(count, np.uint64), np.zeros(count, np.int64)
        self._listed: tuple[list[int], list[int], list[int], list[int]] | None = None

    def add(
        self,
        mapped: mmap | bytes,
        rows: Ints | slice,
        found: Places,
        sums: tuple[Words, Ints] | None = None,
    ) -> None:
        """Add the places found for some rows, whose records are all in the file ``mapped``; if
        ``late``, with the seeds and checksums of their values."""
        possible = found.raw_bytes <= 255 * found.lengths + 64  # as record.decompress sees it
        good = found.good & possible
        if not good.all():
            chosen = np.flatnonzero(good)
            rows = chosen + rows.start if isinstance(rows, slice) else rows[chosen]
            found = found.some(chosen)
            sums = None if sums is None else (sums[0][chosen], sums[1][chosen])
        if self._unseen is not None and sums is not None:
            self._unseen[0][rows], self._unseen[1][rows] = sums
        if id(mapped) not in self._kept:
            if len(self._kept) < most_maps():
                self._kept.add(id(mapped))
            else:
                some = gather(np.frombuffer(mapped, dtype=np.uint8), found.at, found.lengths)
                mapped, found = some.blob.tobytes(), found._replace(at=some.offsets[:-1])
        self._of[rows] = len(self._maps)
        self._at[rows] = found.at
        self._lengths[rows] = found.lengths
        self._raw_bytes[rows] = found.raw_bytes
        self._maps.append(mapped)

    def _see(self) -> None:
        """Compare all values with their checksums, if that is still to be done. Those that differ
        are marked to be read the long way, which raises the error."""
        if self._unseen is None:
            return
        seeds, sums = (part.tolist() for part in self._unseen)
        views = self._as_views()
        for row, (of, at, end, raw_bytes) in enumerate(zip(*self._lists(), strict=True)):
            if (
                raw_bytes != _LONG_WAY
                and xxh3(views[of][at:end], seeds[row]) & record.LOW_32 != sums[row]
            ):
                self._raw_bytes[row] = _LONG_WAY
        self._unseen = self._listed = None

    def __len__(self) -> int:
        return len(self._at)

    def sizes(self) -> Ints:
        """Bytes of each value; 0 for those that are read the long way."""
        return np.where(self._raw_bytes >= 0, self._raw_bytes, self._lengths)

    def values(self, low: int, high: int) -> list[bytes]:
        """The values of rows [low, high). If one cannot be read, the values before it are returned,
        fewer than requested; if it is the first, the error is raised. 0.2 us each, and their bytes.

        Raises Corruption, SnapshotExpired, Closed.
        """
        self._see()
        if self._small(low, high):
            # From far apart, a kernel gets them faster: it waits for several of them at a time.
            found = self._moved(low, high)
            return as_list(found.blob.tobytes(), found.offsets)
        return self._read(low, high, copied=True)  # type: ignore[return-value]  # all are copies

    def views(self, low: int, high: int) -> list[Value]:
        """As ``values``; some are views of maps, which they keep alive."""
        self._see()
        return self._read(low, high, copied=False)

    def _read(self, low: int, high: int, *, copied: bool) -> list[Value]:
        if not self._maps:
            found: list[Value] = [b""] * (high - low)
            sizes = [_LONG_WAY] * (high - low)
        else:
            # Lists, since a few rows at a time are too few for array kernels.
            of, starts, ends, sizes = (part[low:high] for part in self._lists())
            packed = max(sizes) >= 0
            maps: Sequence[mmap | bytes | memoryview] = self._maps
            if packed or not copied:
                maps = self._as_views()
            if min(of) == max(of):
                one = maps[of[0]]
                found = [one[at:end] for at, end in zip(starts, ends, strict=True)]
            else:
                places = zip(of, starts, ends, strict=True)
                found = [maps[number][at:end] for number, at, end in places]
            if packed:
                found = _unpacked(found, sizes, copied=copied)
        if min(sizes) != _LONG_WAY:
            return found
        for at, size in enumerate(sizes):
            if size == _LONG_WAY:
                try:
                    found[at] = self._with_care(low + at)
                except OctavoError:
                    if not at:
                        raise
                    return found[:at]
        return found

    def _as_views(self) -> list[memoryview]:
        """Views of the maps, made once: there may be thousands, and rows come a few at a time."""
        if len(self._views) < len(self._maps):
            self._views = [memoryview(mapped) for mapped in self._maps]
        return self._views

    def _lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """For each row, as four lists: number of the map, where the value begins, where it ends,
        its bytes before compression."""
        if self._listed is None:
            ends = self._at + self._lengths
            self._listed = (
                self._of.tolist(), self._at.tolist(), ends.tolist(), self._raw_bytes.tolist()
            )  # fmt: skip
        return self._listed

    def column(self, low: int, high: int) -> ByteColumn:
        """The values of rows [low, high), low < high, end to end. Raises as ``values``."""
        if (found := self._by_frame(low, high)) is not None:
            return found
        self._see()
        raw_bytes, lengths = self._raw_bytes[low:high], self._lengths[low:high]
        if bool((raw_bytes == _PLAIN).all()) and _few_lengths(lengths):
            return self._moved(low, high)
        if bool((raw_bytes == _LONG_WAY).any()):
            return self._joined(low, high)
        return self._one_by_one(low, high)

    def _by_frame(self, low: int, high: int) -> ByteColumn | None:
        """``column``, with all values decompressed as one LZ4 frame. None if that does not suit
        these values, or one is damaged."""
        if not self._lengths[low:high].all():
            self._see()  # an empty value is not copied into a frame
        raw_bytes, lengths = self._raw_bytes[low:high], self._lengths[low:high]
        if bool((raw_bytes == _LONG_WAY).any()) or not may_hold(lengths, raw_bytes):
            return None
        sums = self._unseen and (self._unseen[0][low:high], self._unseen[1][low:high])
        of, at = self._of[low:high], self._at[low:high]
        frame = Frame(self._maps, of, at, lengths, raw_bytes, sums)
        blob = frame.values(frame.unpack()) if frame.right else None
        return None if blob is None else ByteColumn(blob, frame.offsets)

    def _one_by_one(self, low: int, high: int) -> ByteColumn:
        """``column``, where some values are too large to be decompressed together, or one is
        damaged."""
        raw_bytes, lengths = self._raw_bytes[low:high], self._lengths[low:high]
        # One large array, since it is made of large pages: new memory costs more than the work done
        # on it. Each value is copied there while it is in the processor's cache.
        goals = offsets_of(np.where(raw_bytes >= 0, raw_bytes, lengths))
        blob = np.empty(int(goals[-1]), dtype=np.uint8)
        target = blob.data
        places = goals.tolist()
        done = 0
        while done < high - low:
            few = self.views(low + done, min(low + done + _FEW, high))
            for value in few:
                if len(value) != places[done + 1] - places[done]:
                    return self._joined(low, high)  # it had to be read the long way after all
                target[places[done] : places[done + 1]] = value
                done += 1
        return ByteColumn(blob, goals)

    def _joined(self, low: int, high: int) -> ByteColumn:
        """``column``, where some values are read the long way."""
        found: list[Value] = []
        while len(found) < high - low:
            found += self.views(low + len(found), high)
        ends = offsets_of(np.fromiter(map(len, found), np.int64, count=high - low))
        return ByteColumn(np.frombuffer(b"".join(found), dtype=np.uint8), ends)

    def _small(self, low: int, high: int) -> bool:
        """Whether these are many small uncompressed values, which are moved together."""
        if high - low < _MANY or bool((self._raw_bytes[low:high] != _PLAIN).any()):
            return False
        lengths, of = self._lengths[low:high], self._of[low:high]
        if int(lengths.sum()) > _SMALL_BYTES * (high - low):
            return False
        if _ROWS_A_FILE * int(np.count_nonzero(np.bincount(of))) > high - low:
            return False
        return _few_lengths(lengths) or (int(of.min()) == int(of.max()) and alike(lengths))

    def _moved(self, low: int, high: int) -> ByteColumn:
        """``column`` of uncompressed values, by array kernels."""
        of, starts, lengths = self._of[low:high], self._at[low:high], self._lengths[low:high]
        if int(of.min()) == int(of.max()):
            return gather(np.frombuffer(self._maps[of[0]], dtype=np.uint8), starts, lengths)
        goals = offsets_of(lengths)
        blob = np.empty(int(goals[-1]), dtype=np.uint8)
        for number, rows in by_length(of):  # in each group, the target is written front to back
            source = np.frombuffer(self._maps[number], dtype=np.uint8)
            copy(source, starts[rows], lengths[rows], blob, goals[:-1][rows])
        return ByteColumn(blob, goals)


def _few_lengths(lengths: Ints) -> bool:
    """Whether there are so few different lengths that it pays to move strings by length."""
    return int(np.count_nonzero(np.bincount(lengths))) * _ROWS_A_LENGTH <= len(lengths)


def _unpacked(found: list[Value], sizes: list[int], *, copied: bool) -> list[Value]:
    """Decompress stored values. One that cannot be gets ``_LONG_WAY`` in ``sizes``."""
    try:
        if min(sizes) >= 0:
            return list(record.decompress_all(found, sizes))
    except ValueError:
        pass  # one of them is damaged
    out: list[Value] = []
    for at, (part, size) in enumerate(zip(found, sizes, strict=True)):
        value: Value = bytes(part) if copied and size < 0 else part
        if size >= 0:
            try:
                value = record.decompress(part, size)
            except ValueError:
                sizes[at] = _LONG_WAY
        out.append(value)
    return out


class BatchValues:
    """Reads values for one reader, many at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._journal = OpenJournal()

    def column(self, batch: Batch, *, of: Batch) -> ByteColumn:
        """The values of all rows, end to end. Otherwise as ``locate``."""
        sizes = batch.columns.sizes[batch.rows]
        late = int(sizes.sum()) >= _LATE_BYTES * len(sizes)
        return self.locate(batch, of=of, late=late).column(0, len(sizes))

    def locate(self, batch: Batch, *, of: Batch | None = None, late: bool = False) -> Located:
        """Find where the value of each row stands, comparing framing, keys and checksums. 0.2 us
        each, and the time to hash their bytes. ``of``: the batch of which this is a part, if the
        rest is likely to be asked for. ``late``: values are hashed as they are cut out. Raises
        Corruption, SnapshotExpired, Closed."""
        columns, numbers = batch
        starts, lengths = columns.keys.starts[numbers], columns.keys.lengths[numbers]
        sqns = columns.sqns[numbers].astype(np.int64)
        times = 1 if of is None else len(of.rows) // len(numbers)
        located = Located(len(numbers), lambda row: self._with_care(batch, row), late=late)
        with self._reader.reading():
            for tag, bucket, low, high in by_buckets(batch):
                for file, rows in _in_files(self._reader.view.journal, sqns, low, high):
                    try:
                        mapped, offsets = self._journal.open(file)
                    except (Corruption, FileNotFoundError):
                        continue  # _with_care raises it, once a row of this file is wanted
                    begins, ends = spans(offsets, sqns[rows] - file.base)
                    COLD.ahead(mapped, begins, ends)
                    if late:
                        wanted = Strings(columns.keys.blob, starts[rows], lengths[rows])
                        names = names_at(bucket, rows)
                        located.add(
                            mapped, rows,
                            *places_unseen(mapped, begins, ends, file.seed, tag, names, wanted),
                        )  # fmt: skip
                        continue
                    sums, right = self._journal.sums(file, mapped), None
                    if not sums.vouch_for(begins, ends):  # to check them: in the file's order
                        order = np.argsort(begins)
                        rows = order + low if isinstance(rows, slice) else rows[order]
                        begins, ends = begins[order], ends[order]
                        right = partial(sums.right, times=times)
                    wanted = Strings(columns.keys.blob, starts[rows], lengths[rows])
                    names = names_at(bucket, rows)
                    found = places_at(mapped, begins, ends, right, tag, names, wanted)
                    located.add(mapped, rows, found)
        return located

    def _with_care(self, batch: Batch, row: int) -> bytes:
        """Read the value of one row by itself; raises what is wrong with it."""
        one = batch._replace(rows=batch.rows[row : row + 1])
        prefix, _, _ = next(buckets_of(one))
        tag, bucket, _ = ledger_key.split(prefix)
        sqns = one.columns.sqns[one.rows].tolist()
        return read_values(self._reader, bucket, keys_of(one), sqns, tag)[0]
