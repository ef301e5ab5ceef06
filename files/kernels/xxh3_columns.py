"""Computes XXH3 of many strings, each with a seed of its own.

Strings of 17 to 128 bytes of which there are many of one length are hashed by array kernels, some
0.1 us each, where a call of the library from bytecode costs 0.3; others by such calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, Words, by_length, windows
from octavo.files.kernels.columns import Bytes

_LENGTHS = range(17, 129)
_AT_LEAST = 512
"""From so many strings of a length on, array kernels are worth while."""
_STRETCH = 512
"""Calls that are made before other threads are let run."""
_SMALL_BYTES = 4096
_BLOCK = 1 << 14
"""Strings hashed at a time: intermediate results stay in the processor's cache, and each of the
some 20 calls a piece has enough to do to be worth its half microsecond."""
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
)
_WORD, _PRIME, _SPREAD = (1 << 64) - 1, 0x9E3779B185EBCA87, 0x165667919E3779F9


def xxh3_of(blob: Bytes, starts: Ints, lengths: Ints, seeds: Words) -> Words:
    """xxh3-64 of each ``blob[start:][:length]``, with its seed. Raises IndexError where a string
    is not inside the blob."""
    out = np.empty(len(starts), dtype=np.uint64)
    rest = np.ones(len(starts), dtype=np.bool_)
    for length, rows in by_length(lengths):
        if length in _LENGTHS and len(starts[rows]) >= _AT_LEAST:
            out[rows] = _of_one_length(blob, starts[rows], length, seeds[rows])
            rest[rows] = False
    few = np.flatnonzero(rest)
    if len(few):
        out[few] = _one_by_one(blob, starts[few], lengths[few], seeds[few])
    return out


def _one_by_one(blob: Bytes, starts: Ints, lengths: Ints, seeds: Words) -> Words:
    if int((starts + lengths).max()) > len(blob):
        raise IndexError("strings outside of their blob")
    # Slices of bytes are cheaper than views, as long as they are small.
    found: list[int] = []
    edges = np.arange(0, len(starts), _STRETCH)
    lows = np.minimum.reduceat(starts, edges).tolist()
    highs = np.maximum.reduceat(starts + lengths, edges).tolist()
    for at, low, high in zip(edges.tolist(), lows, highs, strict=True):
        parts = slice(at, at + _STRETCH)
        begins = starts[parts] - low
        small = high - low < _SMALL_BYTES * len(begins)
        whole = blob[low:high].tobytes() if small else blob[low:high].data
        ends = (begins + lengths[parts]).tolist()
        strings = zip(begins.tolist(), ends, seeds[parts].tolist(), strict=True)
        found += [xxh3(whole[begin:end], seed) for begin, end, seed in strings]
        os.sched_yield()
    return np.array(found, dtype=np.uint64)


def xxh3_apart(blob: Bytes, at: int, apart: int, length: int, seeds: Words) -> Words:
    """xxh3-64 of strings of one length, each with its seed: the first begins at ``at`` and each
    other one ``apart`` bytes behind the one before. Half the cost of ``xxh3_of``. Raises
    IndexError where a string is not inside the blob."""
    count = len(seeds)
    if at < 0 or (count and at + (count - 1) * apart + length > len(blob)):
        raise IndexError("strings outside of their blob")
    if length not in _LENGTHS or count < _AT_LEAST:
        starts = at + apart * np.arange(count, dtype=np.int64)
        return xxh3_of(blob, starts, np.full(count, length, dtype=np.int64), seeds)
    out = np.empty(count, dtype=np.uint64)
    room = _room(count)
    for low in range(0, count, _BLOCK):
        some = slice(low, low + _BLOCK)
        _block(blob, at + low * apart, apart, length, seeds[some], out[some], room)
    return out


def _of_one_length(blob: Bytes, starts: Ints, length: int, seeds: Words) -> Words:
    out = np.empty(len(starts), dtype=np.uint64)
    room = _room(len(starts))
    strings = windows(blob, length)
    for low in range(0, len(starts), _BLOCK):
        some = slice(low, low + _BLOCK)
        here = strings[starts[some]].view(np.uint8)
        _block(here, 0, length, length, seeds[some], out[some], room)
    return out


def _room(count: int) -> list[Words]:
    """Memory for the intermediate results of a block."""
    return list(np.empty((7, min(count, _BLOCK)), dtype=np.uint64))


def _block(
    blob: Bytes, at: int, apart: int, length: int, seeds: Words, out: Words, room: list[Words]
) -> None:
    """The hashes of some strings of one length, evenly apart, into ``out``."""
    count = len(seeds)
    a, b, *rest = (each[:count] for each in room)

    def words(place: int) -> Words:
        return np.ndarray((count,), "<u8", blob, at + place, (apart,))

    out[:] = np.uint64(length * _PRIME & _WORD)
    for place, secret in _pieces(length):
        np.add(seeds, _word(secret), out=a)
        np.bitwise_xor(a, words(place), out=a)
        np.subtract(_word(secret + 8), seeds, out=b)
        np.bitwise_xor(b, words(place + 8), out=b)
        _fold(a, b, rest, out)
    np.right_shift(out, np.uint64(37), out=a)
    np.bitwise_xor(out, a, out=out)
    np.multiply(out, np.uint64(_SPREAD), out=out)
    np.right_shift(out, np.uint64(32), out=a)
    np.bitwise_xor(out, a, out=out)


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    """(where 16 bytes of a string begin, where those of the secret that they meet do): from both
    ends of the string to its middle."""
    for number in range((length + 31) // 32):
        yield 16 * number, 32 * number
        yield length - 16 * (number + 1), 32 * number + 16


@cache
def _word(at: int) -> np.uint64:
    return np.uint64(int.from_bytes(_SECRET[at : at + 8], "little"))


def _fold(a: Words, b: Words, room: list[Words], out: Words) -> None:
    """Add to ``out`` the halves of each product of 128 bits, one xor the other; ``a`` is changed.

    Each step writes where there is room already, which is a third of the cost.
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high, carry = room
    np.bitwise_and(a, low, out=a_low)
    np.right_shift(a, half, out=a_high)
    np.bitwise_and(b, low, out=b_low)
    np.right_shift(b, half, out=b_high)
    np.multiply(a_low, b_low, out=carry)
    np.right_shift(carry, half, out=carry)
    middle = np.multiply(a_high, b_low, out=b_low)
    np.add(middle, carry, out=middle)
    np.multiply(a_low, b_high, out=a_low)
    np.bitwise_and(middle, low, out=carry)
    np.add(a_low, carry, out=a_low)
    np.multiply(a_high, b_high, out=a_high)
    np.right_shift(middle, half, out=middle)
    np.add(a_high, middle, out=a_high)
    np.right_shift(a_low, half, out=a_low)
    np.add(a_high, a_low, out=a_high)
    np.multiply(a, b, out=a)
    np.bitwise_xor(a, a_high, out=a)
    np.add(out, a, out=out)
