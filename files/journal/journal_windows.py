"""Checksums over 64 KiB windows of a sealed journal file, by which reads of many records are
checked.

To check a record's own two checksums costs half a microsecond of bytecode, whatever its size; to
check a window costs less than ten, and vouches for all that is in it. Window checksums are made
when a file is sealed, once every record was seen to be whole, and stand behind its offsets (see
cdb.py). Where a window has changed, its records' own checksums say which of them have not.
"""

from __future__ import annotations

from contextlib import suppress
from mmap import mmap
from typing import TypeAlias

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.journal.cdb import RECORDS_AT, WINDOW_BYTES, Trailer, trailer_of
from octavo.files.journal.journal_values import checksums_right
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints, Mask
from octavo.files.kernels.cold_pages import COLD

Sums: TypeAlias = "npt.NDArray[np.uint64]"

_SHIFT = WINDOW_BYTES.bit_length() - 1
assert 1 << _SHIFT == WINDOW_BYTES  # not a guard
_WINDOW_COST = 7
"""What checking a window costs, in checks of a small record; 8 KiB of a record's bytes cost as much
as one more."""
_FROM_DEVICE = 250
"""The same where the window must be read from a device."""
_RECORD_SHIFT = 13

_UNKNOWN, _RIGHT, _WRONG = 0, 1, 2


class WindowSums:
    """Makes a sealed file's section of window checksums from its bytes, as they are written."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._skip = RECORDS_AT
        self._at = RECORDS_AT
        self._sums: list[int] = []
        self._rest = b""

    def add(self, piece: bytes | memoryview) -> None:
        """Take in the next bytes of the file, from its first on. 0.1 ms a MiB."""
        view = memoryview(piece)[self._skip :]
        self._skip -= min(self._skip, len(piece))
        if self._rest:
            missing = WINDOW_BYTES - len(self._rest)
            self._rest += bytes(view[:missing])
            view = view[missing:]
            if len(self._rest) < WINDOW_BYTES:
                return
            self._window(self._rest)
            self._rest = b""
        whole = len(view) - len(view) % WINDOW_BYTES
        for low in range(0, whole, WINDOW_BYTES):
            self._window(view[low : low + WINDOW_BYTES])
        self._rest = bytes(view[whole:])

    def section(self) -> bytes:
        """The section for all that was added, as the sealed file carries it."""
        if self._rest:
            self._window(self._rest)
            self._rest = b""
        stored = np.array(self._sums, dtype="<u8").tobytes()
        return stored + xxh3(stored, self._seed).to_bytes(8, "little")

    def _window(self, window: bytes | memoryview) -> None:
        self._sums.append(xxh3(window, self._seed ^ self._at))
        self._at += len(window)


def read_windows(buffer: memoryview, trailer: Trailer, file: str) -> Sums | None:
    """The window checksums of a sealed file, which is the whole buffer, verified by their own;
    None: it has none. Raises Corruption."""
    if not trailer.windows:
        return None
    at = trailer.windows_at
    stored = buffer[at : at + trailer.windows_bytes]
    found, told = xxh3(stored[:-8], trailer.seed), int.from_bytes(stored[-8:], "little")
    if found != told or len(stored) != trailer.windows_bytes:
        raise Corruption(file, at, "checksums of windows", expected=told, found=found)
    return np.frombuffer(stored[:-8], dtype="<u8")


def verify_windows(buffer: memoryview, trailer: Trailer, file: str) -> None:
    """See that each window is as it was when the file was sealed. Raises Corruption. O(bytes)."""
    sums = read_windows(buffer, trailer, file)
    if sums is None:
        return
    for number, told in enumerate(sums.tolist()):
        at = RECORDS_AT + number * WINDOW_BYTES
        found = xxh3(buffer[at : min(at + WINDOW_BYTES, trailer.tables_at)], trailer.seed ^ at)
        if found != told:
            raise Corruption(file, at, "a window's checksum", expected=told, found=found)


class RecordSums:
    """Tells which records of a file are as they were written, and remembers which windows it has
    checked. Each reader has its own, so that each looks for itself."""

    def __init__(self, mapped: mmap | bytes, seed: int, *, whole: bool = True) -> None:
        """``mapped`` is the whole file; with ``whole=False`` the file is still being written, and
        only its records' own checksums are used."""
        self._seed, self._whole = seed, whole
        self._state = np.zeros(0, dtype=np.uint8)
        self._bill = 0
        self.read_from(mapped)

    def read_from(self, mapped: mmap | bytes) -> None:
        """Go on with another map of the file; what was seen of it stays seen."""
        self.mapped = mapped
        self._view = view = memoryview(mapped)
        self._end = 0
        self._sums: Sums | None = None
        if self._whole:
            # If it is not sealed, or damaged there (verify tells), its records have their own.
            with suppress(Corruption, UnsupportedFormat):
                trailer = trailer_of(view, "")
                self._sums = read_windows(view, trailer, "")
                self._end = trailer.tables_at
        count = 0 if self._sums is None else len(self._sums)
        if len(self._state) != count:
            self._state = np.zeros(count, dtype=np.uint8)

    def let_go(self) -> None:
        """Keep no map until ``read_from`` gives another."""
        self.mapped, self._view, self._sums = b"", memoryview(b""), None

    def right(self, starts: Ints, head_ends: Ints, ends: Ints, times: int = 1) -> Mask:
        """Which of these records, whose framing fits, are as they were written. Their own checksums
        tell, at 0.5 us each and the hashing of their bytes, until the windows (0.1 ms a MiB, once)
        would cost no more than all that was asked for so far; then these tell. ``times``: the
        caller is likely to ask for this many times as many records in all."""
        if not len(self._state) or not len(starts):
            return checksums_right(self.mapped, starts, head_ends, ends, self._seed)
        if self.vouch_for(starts, ends):
            return np.ones(len(starts), dtype=np.bool_)
        last = len(self._state) - 1
        first = np.clip((starts - RECORDS_AT) >> _SHIFT, 0, last)
        until = np.clip((ends - 1 - RECORDS_AT) >> _SHIFT, first, last)
        inside = (starts >= RECORDS_AT) & (ends <= self._end)
        low, high = int(first.min()), int(until.max()) + 1
        self._look(first, until, ends - starts, low, high, times)
        if bool((self._state[low:high] == _RIGHT).all()) and bool(inside.all()):
            return inside
        wrong = np.zeros(len(self._state) + 1, dtype=np.int64)
        np.cumsum(self._state != _RIGHT, out=wrong[1:])
        right: Mask = wrong[until + 1] == wrong[first]
        right &= inside
        rows = np.flatnonzero(~right)
        if len(rows):
            right[rows] = checksums_right(
                self.mapped, starts[rows], head_ends[rows], ends[rows], self._seed
            )
        return right

    def vouch_for(self, starts: Ints, ends: Ints) -> bool:
        """Whether windows show that everything from the first of these records to the last is as it
        was written. Windows not checked yet are checked now, unless the records' own checksums
        would be cheaper. False: not known."""
        if not len(self._state) or not len(starts):
            return False
        low, high = int(starts.min()), int(ends.max())
        if low < RECORDS_AT or high > self._end:
            return False
        first, until = (low - RECORDS_AT) >> _SHIFT, ((high - 1 - RECORDS_AT) >> _SHIFT) + 1
        state = self._state[first:until]
        if bool((state == _RIGHT).all()):
            return True
        asked = int((ends - starts).sum())
        if 2 * asked < high - low:
            return False
        if len(starts) + (asked >> _RECORD_SHIFT) < _WINDOW_COST * (until - first):
            return False
        self._see(first + np.flatnonzero(state == _UNKNOWN))
        return bool((state == _RIGHT).all())

    def _look(
        self, first: Ints, until: Ints, lengths: Ints, low: int, high: int, times: int
    ) -> None:
        """Check the windows [first, until] of each record, all of them in [low, high); or, while
        that does not pay, add the cost of these records' own checksums to the bill."""
        unknown = wanted = low + np.flatnonzero(self._state[low:high] == _UNKNOWN)
        if _WINDOW_COST * len(wanted) > len(first):  # else all may as well be checked
            count = len(self._state)
            begins = np.bincount(first, minlength=count + 1)
            touched = np.cumsum(begins - np.bincount(until + 1, minlength=count + 1)) > 0
            wanted = wanted[touched[wanted]]
        if not len(wanted):
            return
        cost_of_one = _FROM_DEVICE if COLD.left else _WINDOW_COST
        new = (self._state[first] == _UNKNOWN) | (self._state[until] == _UNKNOWN)
        cost = int(np.count_nonzero(new)) + (int(lengths[new].sum()) >> _RECORD_SHIFT)
        self._bill += cost
        price = cost_of_one * len(wanted)
        of_all = price
        if times > 1:  # each further lot of records likely touches as large a part of what is left
            left = (1 - len(wanted) / len(unknown)) ** times
            of_all = int(cost_of_one * len(unknown) * (1 - left))
        if self._bill + cost * (times - 1) < of_all:
            return
        # What is left of the bill counts towards windows that few records cannot pay for.
        self._bill = max(self._bill - price, 0)
        self._see(wanted)

    def _see(self, wanted: Ints) -> None:
        """Check these windows, and remember which are right."""
        sums, view, seed, end = self._sums, self._view, self._seed, self._end
        if sums is None:
            return
        starts = RECORDS_AT + wanted * WINDOW_BYTES
        if COLD.left:
            COLD.ahead(self.mapped, starts, np.minimum(starts + WINDOW_BYTES, end))
        places = starts.tolist()
        found = [xxh3(view[at : min(at + WINDOW_BYTES, end)], seed ^ at) for at in places]
        same = sums[wanted] == np.array(found, dtype=np.uint64)
        self._state[wanted] = np.where(same, _RIGHT, _WRONG)
