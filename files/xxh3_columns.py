"""XXH3 of many strings, each with a seed of its own.

Strings of 17 to 128 bytes of which there are many of one length are hashed by array kernels, some
0.1 us each, where a call of the library from bytecode costs 0.3; others by such calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.arrays import np, npt
from octavo.files.byte_strings import Bytes, Ints, Words, by_length, windows

_LENGTHS = range(17, 129)
_AT_LEAST = 512
"""So many of a length make it worth while."""
_STRETCH = 512
"""Calls between two moments at which other threads may run."""
_SMALL_BYTES = 4096
_BLOCK = 4096
"""So many at a time, so that what is worked out stays in the processor's cache."""
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
    low, high = int(starts.min()), int((starts + lengths).max())
    small = high - low < _SMALL_BYTES * len(starts)
    whole = blob[low:high].tobytes() if small else blob[low:high].data
    found: list[int] = []
    begins, ends = (starts - low).tolist(), (starts + lengths - low).tolist()
    for at in range(0, len(begins), _STRETCH):
        parts = slice(at, at + _STRETCH)
        strings = zip(begins[parts], ends[parts], seeds[parts].tolist(), strict=True)
        found += [xxh3(whole[begin:end], seed) for begin, end, seed in strings]
        os.sched_yield()
    return np.array(found, dtype=np.uint64)


def _of_one_length(blob: Bytes, starts: Ints, length: int, seeds: Words) -> Words:
    out = np.empty(len(starts), dtype=np.uint64)
    strings = windows(blob, length)
    for low in range(0, len(starts), _BLOCK):
        some, seed = strings[starts[low : low + _BLOCK]], seeds[low : low + _BLOCK]
        found = np.full(len(some), length * _PRIME & _WORD, dtype=np.uint64)
        for place, secret in _pieces(length):
            first = _words(some, place, length) ^ (seed + _word(secret))
            second = _words(some, place + 8, length) ^ (_word(secret + 8) - seed)
            found += _folded(first, second)
        found ^= found >> np.uint64(37)
        found *= np.uint64(_SPREAD)
        out[low : low + _BLOCK] = found ^ (found >> np.uint64(32))
    return out


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    """(where 16 bytes of a string begin, where those of the secret that they meet do): from both
    ends of the string to its middle."""
    for number in range((length + 31) // 32):
        yield 16 * number, 32 * number
        yield length - 16 * (number + 1), 32 * number + 16


def _words(strings: npt.NDArray[np.void], place: int, length: int) -> Words:
    return np.ndarray((len(strings),), "<u8", strings.data, place, (length,))


def _word(at: int) -> np.uint64:
    return np.uint64(int.from_bytes(_SECRET[at : at + 8], "little"))


def _folded(a: Words, b: Words) -> Words:
    """The halves of each product of 128 bits, one xor the other."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    middle = a_high * b_low
    middle += (a_low * b_low) >> half
    a_low *= b_high
    a_low += middle & low
    a_high *= b_high
    a_high += middle >> half
    a_high += a_low >> half
    a_high ^= a * b
    return a_high
