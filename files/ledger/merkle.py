"""Merkle trees of a store: what two stores exchange to find where they differ.

A tree has a cell for each segment of the keys. A key's segment is given by the first bits of the
hash that ledger files keep of its ledger key (tag, bucket and key), so it is the same in every
store, and a tree of fewer segments is made of one with more by joining neighbours. A cell is the
sum, modulo 2**64, of 64 bits for each live key of its segment: a mix of that hash and of what
stands for the key's version. So trees of parts that have no key in common join by adding, too.
(Not by exclusive or: two keys of one store whose hashes and versions agree would cancel out, and
among 100,000 keys of the same value there is about one such pair.)

Two cells that differ prove a difference. Two agree over different rows once in 2**64 cells; or once
in 2**32, where different keys have the same version: then their 32-bit hashes alone differ.

As bytes, little-endian:

    magic 8s | version u16 | by u8 | log2 of the segments u8 | reserved u32 (0) | keys u64 |
    a u64 for each segment | xxh3-64 of all before u64
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Literal, get_args

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.argument_checks import shown, whole_number
from octavo.files.errors import Misuse, UnsupportedFormat
from octavo.files.kernels.arrays import U32, U64, np, npt

By = Literal["sqn", "head", "value"]

BY: tuple[By, ...] = get_args(By)
FEWEST_BITS, MOST_BITS = 8, 20
HASH_BITS = 32

_MAGIC = b"\x93octMRK\n"
_VERSION = 2
_FRONT = Struct("<8sHBBIQ")
_SUM = Struct("<Q")

if _FRONT.size != 24:
    raise ImportError("the layout of merkle trees is not what its description says")


def bits_of(segments: object) -> int:
    """log2 of a number of segments. Raises Misuse where there is no such tree."""
    number = whole_number(segments)
    if number is not None:
        bits = number.bit_length() - 1
        if FEWEST_BITS <= bits <= MOST_BITS and number == 1 << bits:
            return bits
    raise Misuse(
        f"segments={shown(segments)}: allowed are powers of two from {1 << FEWEST_BITS} to "
        f"{1 << MOST_BITS}"
    )


def to_by(by: object) -> By:
    """What versions are told apart by. Raises Misuse."""
    for known in BY:
        if isinstance(by, str) and by == known:
            return known
    raise Misuse(f"by={shown(by)}: allowed are {', '.join(map(repr, BY))}")


def mixed(words: U64) -> U64:
    """64 bits in which each bit depends on all of each word's. Changes ``words``."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def row_words(hashes: U32, parts: list[U64]) -> U64:
    """64 bits for each row, made of its key's hash and of the parts of its version, in order."""
    found = mixed(hashes.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    for part in parts:
        found += part
        mixed(found)
    return found


def digests(blob: bytes, offsets: npt.NDArray[np.int64]) -> U64:
    """xxh3-64 of each string, 0 of an empty one. Some 0.15 us a string."""
    found = [xxh3(blob[a:b]) if a < b else 0 for a, b in pairwise(offsets.tolist())]
    return np.array(found, dtype=np.uint64)


class MerkleTree:
    """A summary of what a store, or a part of one, holds, in a few hundred kilobytes; made by
    ``merkle()``."""

    __slots__ = ("_cells", "by", "keys")

    by: By
    """What versions are told apart by: see ``Snapshot.merkle``."""
    keys: int
    """How many live keys it was made of."""

    def __init__(self, by: By, cells: U64, keys: int) -> None:
        self.by = by
        self.keys = keys
        self._cells = cells

    @classmethod
    def empty(cls, segments: int, by: str) -> MerkleTree:
        """The tree of no keys. Raises Misuse."""
        return cls(to_by(by), np.zeros(1 << bits_of(segments), np.uint64), 0)

    def add(self, hashes: U32, words: U64) -> None:
        """Take in rows that are not in it: their keys' hashes, and ``row_words``. O(rows)."""
        if not len(hashes):
            return
        shift = HASH_BITS - (len(self._cells).bit_length() - 1)
        segments = (hashes >> np.uint32(shift)).astype(np.uint32)
        np.add.at(self._cells, segments, words)
        self.keys += len(hashes)

    @property
    def segments(self) -> int:
        """The number of its segments."""
        return len(self._cells)

    def reduced(self, segments: int) -> MerkleTree:
        """The same tree with fewer segments. Raises Misuse if it has fewer already."""
        bits = bits_of(segments)
        if segments > self.segments:
            raise Misuse(f"segments={segments}: this tree has {self.segments}")
        cells = self._cells.reshape(1 << bits, -1).sum(axis=1)
        return MerkleTree(self.by, cells, self.keys)

    def differences(self, other: MerkleTree) -> list[int]:
        """The segments in which the two differ, ascending, numbered as in the smaller tree.

        Raises Misuse if the trees tell versions apart in different ways.
        """
        mine, others = self._matched(other)
        return [int(at) for at in np.flatnonzero(mine._cells != others._cells)]

    def joined(self, other: MerkleTree) -> MerkleTree:
        """One tree of both parts, which may have no key in common. Raises Misuse as
        ``differences``."""
        mine, others = self._matched(other)
        return MerkleTree(self.by, mine._cells + others._cells, self.keys + other.keys)

    def _matched(self, other: object) -> tuple[MerkleTree, MerkleTree]:
        if not isinstance(other, MerkleTree):
            raise Misuse(f"a MerkleTree is compared with a {type(other).__name__}")
        if other.by != self.by:
            raise Misuse(f"one tree is by {self.by!r}, the other by {other.by!r}: make them alike")
        fewest = min(self.segments, other.segments)
        return self.reduced(fewest), other.reduced(fewest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MerkleTree):
            return NotImplemented
        return (self.by, self.keys) == (other.by, other.keys) and np.array_equal(
            self._cells, other._cells
        )

    def __hash__(self) -> int:
        return hash((self.by, self.keys, self._cells.tobytes()))

    def __repr__(self) -> str:
        return f"<MerkleTree of {self.keys} keys by {self.by}, {self.segments} segments>"

    # ------------------------------------------------------------ as bytes

    def to_bytes(self) -> bytes:
        """The tree as bytes, for another process: 8 for each segment, and 32."""
        bits = self.segments.bit_length() - 1
        front = _FRONT.pack(_MAGIC, _VERSION, BY.index(self.by), bits, 0, self.keys)
        whole = front + self._cells.astype("<u8").tobytes()
        return whole + _SUM.pack(xxh3(whole))

    @classmethod
    def from_bytes(cls, raw: bytes) -> MerkleTree:
        """The tree that ``to_bytes`` gave. Raises Misuse if these bytes are not one, or were
        damaged; UnsupportedFormat if another release made it. No length in it is believed."""
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise Misuse(f"a merkle tree is bytes, not a {type(raw).__name__}")
        view = memoryview(raw).cast("B")
        if len(view) < _FRONT.size + _SUM.size or bytes(view[:8]) != _MAGIC:
            raise Misuse("these bytes are no merkle tree")
        _, version, by, bits, reserved, keys = _FRONT.unpack_from(view)
        if xxh3(view[: -_SUM.size]) != _SUM.unpack_from(view, len(view) - _SUM.size)[0]:
            raise Misuse("these bytes are a damaged merkle tree: checksum")
        if version != _VERSION or reserved or by >= len(BY):
            raise UnsupportedFormat(
                f"merkle tree of version {version}: this release reads version {_VERSION}"
            )
        cells = view[_FRONT.size : -_SUM.size]
        if not FEWEST_BITS <= bits <= MOST_BITS or len(cells) != 8 << bits:
            raise Misuse("these bytes are a damaged merkle tree: length")
        return cls(BY[by], np.frombuffer(cells, dtype="<u8").astype(np.uint64), keys)
