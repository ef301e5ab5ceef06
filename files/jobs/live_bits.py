"""Which sequence numbers are live in a published snapshot: the file ``live`` beside its manifest.

    at    size
    0        8  magic
    8        2  version
    10       2  reserved
    12       4  n, number of pages
    16       8  xxh3-64 of what follows up to the first page
    24   n x 8  page numbers, ascending: a page is for 65,536 consecutive sqns
    .    n x 8  xxh3-64 of each page
    .  n x 8192 pages: a bit for each sqn, the first one the lowest bit of the first byte

Little-endian. A page is there where any of its sqns is live.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints, Mask

NAME = "live"
PAGE_BITS = 16
PAGE = 1 << PAGE_BITS
_PAGE_BYTES = PAGE // 8
_MAGIC = b"OCTAVOB\n"
_VERSION = 1
_HEADER = Struct("<8sHHIQ")


class Marking:
    """Collects live numbers. Takes 8 KiB for each 65,536 consecutive ones of which any is live."""

    def __init__(self) -> None:
        self._pages: dict[int, npt.NDArray[np.uint8]] = {}

    def add(self, sqns: Ints) -> None:
        """Mark these, in any order, as live. Some 30 ns each."""
        ordered = np.sort(sqns)
        numbers = ordered >> PAGE_BITS
        cuts = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
        for low, high in pairwise([0, *cuts, len(ordered)] if len(ordered) else []):
            bits = np.zeros(PAGE, dtype=np.bool_)
            bits[ordered[low:high] & (PAGE - 1)] = True
            packed = np.packbits(bits, bitorder="little")
            page = self._pages.setdefault(int(numbers[low]), packed)
            if page is not packed:
                page |= packed

    def taken(self) -> Iterator[Ints]:
        """The numbers, ascending, a page at a time; a page is dropped as its numbers are given."""
        for number in sorted(self._pages):
            yield np.flatnonzero(_unpacked(self._pages.pop(number))) + (number << PAGE_BITS)

    def write(self, disk: Disk, path: str) -> None:
        """Write the bits to a file, whole or not at all. Raises OSError."""
        numbers = sorted(self._pages)
        pages = [self._pages[number].tobytes() for number in numbers]
        table = np.array([*numbers, *map(xxh3, pages)], dtype="<u8").tobytes()
        header = _HEADER.pack(_MAGIC, _VERSION, 0, len(pages), xxh3(table))
        disk.write_atomically(path, b"".join((header, table, *pages)))


class LiveBits:
    """Reads the bits of such a file."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Map it and read its table. Raises FileNotFoundError, Corruption, UnsupportedFormat."""
        self._path = path
        self._view = view = memoryview(disk.map(path))
        if len(view) < _HEADER.size:
            raise Corruption(path, len(view), "live numbers: cut short")
        magic, version, _, count, told = _HEADER.unpack_from(view)
        if magic != _MAGIC:
            raise Corruption(path, 0, "live numbers: another file")
        if version != _VERSION:
            raise UnsupportedFormat(f"{path}: version {version}; this release knows {_VERSION}")
        self._at = _HEADER.size + 16 * count
        if len(view) != self._at + _PAGE_BYTES * count:
            raise Corruption(path, len(view), "live numbers: length", expected=self._at)
        found = xxh3(view[_HEADER.size : self._at])
        if found != told:
            raise Corruption(path, _HEADER.size, "live numbers", expected=told, found=found)
        table = np.frombuffer(view[_HEADER.size : self._at], dtype="<u8")
        self._numbers, self._sums = table[:count].astype(np.int64), table[count:]
        self._pages: npt.NDArray[np.uint8] | None = None

    def between(self, first: int, last: int) -> Iterator[Ints]:
        """The live numbers in [first, last], ascending, a page at a time. Raises Corruption."""
        for number, live in self._parts(first, last):
            sqns = np.flatnonzero(live)
            if len(sqns):
                yield sqns + number

    def count(self, first: int, last: int) -> int:
        """How many live numbers there are in [first, last]. Raises Corruption."""
        return sum(int(np.count_nonzero(live)) for _, live in self._parts(first, last))

    def _parts(self, first: int, last: int) -> Iterator[tuple[int, Mask]]:
        """Of [first, last], what each page has: (a number, whether it and those behind it are
        live). Of a page no more is taken apart, since small files have few of its numbers."""
        low, high = np.searchsorted(self._numbers, (first >> PAGE_BITS, (last >> PAGE_BITS) + 1))
        for at in range(int(low), int(high)):
            base = int(self._numbers[at]) << PAGE_BITS
            start = max(first - base, 0)
            live = _unpacked(self._page(at)[start >> 3 : (last - base >> 3) + 1])
            skipped = start & ~7
            yield base + start, live[start - skipped : last - base - skipped + 1]

    def are(self, sqns: Ints) -> Mask:
        """Which of these numbers, in any order, are live. Some 2 ns each where no page is missing
        between the first and the last, otherwise 10; all pages are verified the first time. Raises
        Corruption."""
        if self._pages is None:
            for at in range(len(self._numbers)):
                self._page(at)
            stored = np.frombuffer(self._view[self._at :], dtype=np.uint8)
            self._pages = stored.reshape(-1, _PAGE_BYTES)
        if not len(self._numbers) or not len(sqns):
            return np.zeros(len(sqns), dtype=np.bool_)
        first, last = int(self._numbers[0]), int(self._numbers[-1])
        low, high = int(sqns.min()) >> PAGE_BITS, int(sqns.max()) >> PAGE_BITS
        if first <= low and high <= last and last - first < len(self._numbers):
            places = sqns - (first << PAGE_BITS)
            bits = self._pages.ravel().take(places >> 3)
            bits >>= places.astype(np.uint8) & 7
            bits &= 1
            return bits.view(np.bool_)
        wanted = sqns >> PAGE_BITS
        page = np.minimum(self._pages_of(wanted, low, high), len(self._numbers) - 1)
        bits = self._pages[page, (sqns & (PAGE - 1)) >> 3] >> (sqns & 7).astype(np.uint8)
        found: Mask = ((bits & 1) != 0) & (self._numbers[page] == wanted)
        return found

    def _pages_of(self, wanted: Ints, low: int, high: int) -> Ints:
        """Where in the ascending numbers of pages each of these, of [low, high], is or would be."""
        if high - low < len(wanted):  # far cheaper than to look for each of them
            return np.searchsorted(self._numbers, np.arange(low, high + 1))[wanted - low]
        return np.searchsorted(self._numbers, wanted)

    def _page(self, at: int) -> npt.NDArray[np.uint8]:
        """The bits of one page, verified. Raises Corruption."""
        start = self._at + at * _PAGE_BYTES
        page = self._view[start : start + _PAGE_BYTES]
        if xxh3(page) != int(self._sums[at]):
            raise Corruption(self._path, start, "live numbers: checksum of a page")
        return np.frombuffer(page, dtype=np.uint8)


def _unpacked(bits: npt.NDArray[np.uint8]) -> Mask:
    """Whether each bit is set."""
    return np.unpackbits(bits, bitorder="little").view(np.bool_)
