"""Decompresses many values that are LZ4 blocks by one call, into one array.

An LZ4 frame is a header, then blocks with their sizes, then an end mark. So the journal's blocks
need only be put behind one another, and values that are stored uncompressed can be among them. The
one call lets go of the interpreter lock, and no value becomes a Python object.

    header      magic u32, flags, size of the largest block, bytes of all u64,
                a byte of the XXH32 of the last three
    block       bytes u32 (topmost bit: not compressed), then the bytes
    end mark    0 u32

A frame says how much all blocks hold together, which is compared, but not how much each holds. So
a random mark replaces the last bytes of each block, which are literals that nothing refers back
to. All blocks have the lengths that their records say if, and only if, a mark stands where each
value should end: there are as many places as marks, and whoever made the file did not know the
mark. Then the bytes are put back.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cache
from mmap import mmap
from struct import Struct
from typing import Any

from xxhash import xxh3_64_intdigest as xxh3
from xxhash import xxh32_intdigest as xxh32

from octavo.files.journal.record import LOW_32
from octavo.files.kernels import arrow
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, Words, offsets_of, windows
from octavo.files.kernels.columns import Bytes

WORTH_IT_BYTES = 256 << 10
"""A frame pays from so many decompressed bytes on: it costs 60 us, besides 0.4 us a value."""
_MAGIC = b"\x04\x22\x4d\x18"
_INDEPENDENT_AND_SIZE = 0x68
_LARGEST = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
"""The sizes of the largest block that a header can state, as numbers from 4 on."""
_DESCRIPTOR = Struct("<BBQ")
_HEADER_BYTES = len(_MAGIC) + _DESCRIPTOR.size + 1
_SIZE_BYTES = 4
_AS_IT_IS = 1 << 31
_MARK_BYTES = 4
assert _HEADER_BYTES == 15  # not a guard


@cache
def _codec() -> Any:
    return arrow.pyarrow().Codec("lz4")


class Frame:
    """Some values that are about to be decompressed, their bytes copied out of maps."""

    def __init__(
        self,
        maps: Sequence[mmap | bytes],
        of: Ints,
        at: Ints,
        lengths: Ints,
        raw_bytes: Ints,
        sums: tuple[Words, Ints] | None = None,
    ) -> None:
        """Copy the values. Value i is ``maps[of[i]][at[i]:][:lengths[i]]``, and ``raw_bytes[i]``
        long when it is decompressed (-1: it is not compressed); ``may_hold`` has said yes.
        ``sums``: the seeds and checksums of all, to be compared here; no value is empty then."""
        packed = raw_bytes >= 0
        self.offsets = offsets_of(np.where(packed, raw_bytes, lengths))
        there = np.flatnonzero(lengths > 0)  # a block of no bytes would be the end mark
        ends = _HEADER_BYTES + np.cumsum(lengths[there] + _SIZE_BYTES)
        starts = ends - lengths[there]
        size = (int(ends[-1]) if len(ends) else _HEADER_BYTES) + _SIZE_BYTES
        self._frame = frame = arrow.room(size)
        frame[:_HEADER_BYTES] = np.frombuffer(
            _header(int(np.maximum(raw_bytes, lengths).max()), int(self.offsets[-1])), np.uint8
        )
        frame[-_SIZE_BYTES:] = 0
        sizes = lengths[there] + np.where(packed[there], 0, _AS_IT_IS)
        windows(frame, _SIZE_BYTES)[starts - _SIZE_BYTES] = sizes.astype("<u4").view("V4")
        self.right = _copy(maps, of[there], at[there], lengths[there], frame, starts, sums)
        """Whether all values match ``sums``; if not, this frame is of no further use."""
        if not self.right:
            return
        self._mark = np.void(secrets.token_bytes(_MARK_BYTES))
        marked = windows(frame, _MARK_BYTES)
        tails = ends[packed[there]] - _MARK_BYTES
        self._tails = marked[tails]
        marked[tails] = self._mark
        self._tails_at = self.offsets[1:][packed] - _MARK_BYTES

    def unpack(self) -> Any:
        """Decompress all into a buffer of Arrow's, by one call, which any thread may make. None if
        that fails."""
        try:
            return _codec().decompress(self._frame, int(self.offsets[-1]))
        except (OSError, ValueError, NotImplementedError):  # the last: Arrow was built without LZ4
            return None

    def values(self, unpacked: Any) -> Bytes | None:
        """All values end to end, from what ``unpack`` returned. None: at least one is not as its
        record says."""
        if unpacked is None:
            return None
        blob = np.frombuffer(unpacked, dtype=np.uint8)
        marked = windows(blob, _MARK_BYTES)
        if bool((marked[self._tails_at] != self._mark).any()):
            return None
        marked[self._tails_at] = self._tails
        return blob


def may_hold(lengths: Ints, raw_bytes: Ints) -> bool:
    """Whether a Frame can hold values of these lengths (as stored, and decompressed) and is cheaper
    than to decompress them one by one."""
    packed = np.flatnonzero(raw_bytes >= 0)
    if not len(packed) or int(np.maximum(raw_bytes, lengths).max()) > _LARGEST[-1]:
        return False
    stored, given = lengths[packed], raw_bytes[packed]
    plain_bytes = int(lengths.sum()) - int(stored.sum())  # they are copied once more
    if int(given.sum()) < max(WORTH_IT_BYTES, plain_bytes):
        return False
    if int(np.minimum(given, stored).min()) <= _MARK_BYTES:
        return False
    return bool((given <= 255 * stored + 64).all())  # as record.decompress sees it


def _header(largest: int, total: int) -> bytes:
    number = 4 + next(n for n, most in enumerate(_LARGEST) if largest <= most)
    told = _DESCRIPTOR.pack(_INDEPENDENT_AND_SIZE, number << 4, total)
    return _MAGIC + told + bytes([xxh32(told) >> 8 & 0xFF])


def _copy(
    maps: Sequence[mmap | bytes],
    of: Ints,
    at: Ints,
    lengths: Ints,
    target: Bytes,
    goals: Ints,
    sums: tuple[Words, Ints] | None,
) -> bool:
    """Copy values to ``goals`` in ``target``; False: one does not match ``sums``. As lengths differ
    a slice each is cheaper than array kernels. A copy is hashed while the processor caches it."""
    views = [memoryview(mapped) for mapped in maps]
    out = target.data
    places = zip(
        of.tolist(), at.tolist(), (at + lengths).tolist(),
        goals.tolist(), (goals + lengths).tolist(), strict=True,
    )  # fmt: skip
    if sums is None:
        for number, start, end, low, high in places:
            out[low:high] = views[number][start:end]
        return True
    told = zip(places, sums[0].tolist(), sums[1].tolist(), strict=True)
    for (number, start, end, low, high), seed, told_sum in told:
        out[low:high] = views[number][start:end]
        if xxh3(out[low:high], seed) & LOW_32 != told_sum:
            return False
    return True
