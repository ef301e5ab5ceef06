"""Array kernels over byte strings of any length: copying, common prefixes, words.

No step runs Python bytecode for each string. Strings of one length are moved as one NumPy
array whose elements overlap in memory (a view of the blob with a stride of one byte), so the
bytecode that runs is per distinct length. NumPy lets go of the interpreter lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import Any, TypeAlias

from octavo.files.kernels.arrays import I64, U64, Bools, np, npt
from octavo.files.kernels.columns import ByteColumn, Bytes, Strings

Ints: TypeAlias = I64
Mask: TypeAlias = Bools
Words: TypeAlias = U64

_BLOCK_BYTES = 1 << 20
"""Strings are copied in blocks of about this size, so that the copy stays in the cache."""
_SAMPLE = 16
_FEW = 8
"""Up to so many strings kernels are not worth while."""
_WIDE_BYTES = 256
_TIMES, _TIMES_WIDE = 4, 2
"""Strings are moved as if all were as long as the longest, if that is at most so many times their
bytes; fewer times if they are longer than _WIDE_BYTES."""


def array_of(view: memoryview) -> npt.NDArray[Any]:
    """The view's items, not copied. Not by ``asarray``: if that has no memory for a memoryview of
    its own, it takes any buffer for a sequence of numbers, and makes eight bytes of each byte."""
    return np.frombuffer(view, view.format)


def windows(blob: Bytes, length: int) -> npt.NDArray[np.void]:
    """Element i is ``blob[i : i + length]``; ``length`` >= 1. No copy."""
    return np.ndarray(
        (max(len(blob) - length + 1, 0),), dtype=f"V{length}", buffer=blob, strides=(1,)
    )


def numbers_at(blob: Bytes, at: Ints, dtype: str) -> npt.NDArray[Any]:
    """The number of this kind that stands at each place, aligned or not; copied."""
    return windows(blob, np.dtype(dtype).itemsize)[at].view(dtype)


def by_length(lengths: Ints) -> Iterator[tuple[int, Ints | slice]]:
    """(length, the rows that have it, ascending), for each length, or other number from 0 up, that
    occurs."""
    if not len(lengths):
        return
    first, top = int(lengths[0]), int(lengths.max())
    if first == top and int(lengths.min()) == top:
        yield first, slice(None)
        return
    # Numbers of 16 bits are sorted by radix, without comparisons.
    order = np.argsort(lengths.astype(np.uint16 if top < 1 << 16 else np.uint32), kind="stable")
    ordered = lengths[order]
    edges = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for low, high in pairwise(edges):
        yield int(ordered[low]), order[low:high]


def cuts(sizes: Ints, most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Rows of these sizes in parts [low, high) of at most so many rows and bytes, or of one row."""
    filled = np.cumsum(sizes)
    low = before = 0
    while low < len(filled):
        full = int(np.searchsorted(filled, before + most_bytes, side="right"))
        high = min(max(full, low + 1), low + most_rows, len(filled))
        yield low, high
        low, before = high, int(filled[high - 1])


def copy(source: Bytes, starts: Ints, lengths: Ints, target: Bytes, at: Ints) -> None:
    """String i goes from ``source[starts[i]:][:lengths[i]]`` to ``target[at[i]:]``.

    The targets must not overlap. Raises IndexError where a string is not inside its array.
    """
    for length, rows in by_length(lengths):
        if length == 0:
            continue
        origin, goal = windows(source, length), windows(target, length)
        sources, targets = starts[rows], at[rows]
        block = max(_BLOCK_BYTES // length, 1)
        for low in range(0, len(sources), block):
            goal[targets[low : low + block]] = origin[sources[low : low + block]]


def alike(lengths: Ints) -> bool:
    """Whether the lengths of strings, none below 0, differ so little that ``fill`` moves all at
    once."""
    if not len(lengths) or int(lengths.min()) < 0:
        return False
    width = int(lengths.max())
    times = _TIMES if width <= _WIDE_BYTES else _TIMES_WIDE
    return width * len(lengths) <= times * int(lengths.sum())


def fill(source: Bytes, starts: Ints, lengths: Ints, target: Bytes, at: Ints) -> None:
    """As ``copy``, where each string of the target begins where the one before ends, or behind it.
    What stands there between strings, or behind them, may be changed.

    Strings whose lengths do not differ much are moved as if all were as long as the longest, from
    the first to the last: each overwrites what was moved too much with the one before. 10 ns each.
    """
    width = int(lengths.max()) if alike(lengths) else 0
    if not width or int(lengths.min()) == width or not _in_turn():
        copy(source, starts, lengths, target, at)
        return
    # Near the end of an array there is no room for so much: strings there are moved once more.
    count, last = len(lengths), len(source) - width
    inside = int(np.searchsorted(at, len(target) - width, side="right"))
    edge = np.flatnonzero(starts[:inside] > last)
    if 2 * len(edge) > inside:
        copy(source, starts, lengths, target, at)
        return
    _move(source, np.minimum(starts, last) if len(edge) else starts, width, target, at[:inside])
    if inside < count:
        edge = np.concatenate([edge, np.arange(inside, count)])
    if len(edge) > _FEW:
        copy(source, starts[edge], lengths[edge], target, at[edge])
        return
    for row in edge.tolist():
        goal, end = int(at[row]), int(starts[row] + lengths[row])
        if end > len(source) or goal + lengths[row] > len(target):
            raise IndexError("a string outside of its blob")
        target[goal : goal + lengths[row]] = source[starts[row] : end]


def _move(source: Bytes, starts: Ints, width: int, target: Bytes, at: Ints) -> None:
    """``width`` bytes from each of ``starts`` to each of ``at``, one after the other."""
    origin, goal = windows(source, width), windows(target, width)
    block = max(_BLOCK_BYTES // width, 1)
    for low in range(0, len(at), block):
        rows = slice(low, min(low + block, len(at)))
        goal[np.ascontiguousarray(at[rows])] = origin[starts[rows]]


@cache
def _in_turn() -> bool:
    """Whether NumPy assigns elements in the order of their indices. It promises that for an index
    that occurs twice (the last value stays); here it is tried with elements that overlap."""
    count, width, apart = 1000, 24, 7
    source = (np.arange(count * width) * 31 % 251).astype(np.uint8)
    target = np.zeros(count * apart + width, np.uint8)
    rows = np.arange(count, dtype=np.int64)
    _move(source, rows * width, width, target, rows * apart)
    found = target[: count * apart].reshape(count, apart)
    return bool((found == source.reshape(count, width)[:, :apart]).all())


def offsets_of(lengths: Ints) -> Ints:
    """Where each string begins when they stand end to end; one more, for the end."""
    out = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def lengths_of(offsets: Ints) -> Ints:
    """Length of each string, given where they begin and where the last one ends."""
    return offsets[1:] - offsets[:-1]


def as_list(blob: bytes, offsets: npt.NDArray[np.integer[Any]]) -> list[bytes]:
    """The strings of a column as Python objects; 15 ns each where all are of one length, 35 ns
    otherwise.

    ``offsets`` count from the beginning of ``blob``, and ascend.
    """
    lengths = offsets[1:] - offsets[:-1]
    if not len(lengths):
        return []
    first, end, width = int(offsets[0]), int(offsets[-1]), int(lengths[0])
    if width and bool((lengths == width).all()):
        array = np.frombuffer(blob, dtype=np.uint8)[first:end]
        same: list[bytes] = array.view(f"V{width}").tolist()
        return same
    strings = BytesIO(blob)
    strings.seek(first)
    return list(map(strings.read, lengths.tolist()))


def gather(source: Bytes, starts: Ints, lengths: Ints) -> ByteColumn:
    """Copy the strings end to end into an array of their own."""
    offsets = offsets_of(lengths)
    whole = in_order(source, starts, lengths)
    if whole is not None:
        return ByteColumn(whole, offsets)
    end = int(offsets[-1])
    blob = np.empty(end + _WIDE_BYTES, dtype=np.uint8)  # so that no string is near its end
    fill(source, starts, lengths, blob, offsets[:-1])
    return ByteColumn(blob[:end], offsets)


def in_order(source: Bytes, starts: Ints, lengths: Ints) -> Bytes | None:
    """The strings end to end, if they are all of one length: half the cost of ``copy``. None where
    they are not."""
    if not len(lengths):
        return None
    length = int(lengths[0])
    if not length or not bool((lengths == length).all()):
        return None
    return windows(source, length)[starts].view(np.uint8)


def prefixed(prefix: bytes, blob: Bytes, starts: Ints, lengths: Ints) -> ByteColumn:
    """``prefix`` (1 byte or more) and each string, end to end in an array of their own."""
    ends = offsets_of(lengths + len(prefix))
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    strings = as_strides(blob, starts, lengths)
    if strings is not None:
        size, count = len(prefix) + strings.itemsize, len(strings)
        evenly(out, 0, size, len(prefix), count)[:] = np.void(prefix)
        evenly(out, len(prefix), size, strings.itemsize, count)[:] = strings
        return ByteColumn(out, ends)
    fill(blob, starts, lengths, out, ends[:-1] + len(prefix))
    windows(out, len(prefix))[ends[:-1]] = np.frombuffer(prefix, dtype=f"V{len(prefix)}")
    return ByteColumn(out, ends)


def evenly(blob: Bytes, at: int, apart: int, length: int, count: int) -> npt.NDArray[np.void]:
    """Element i is ``blob[at + i * apart :][:length]``; ``length`` >= 1. No copy."""
    return np.ndarray((count,), f"V{length}", blob, at, (apart,))


def as_strides(blob: Bytes, starts: Ints, lengths: Ints) -> npt.NDArray[np.void] | None:
    """The strings, if they are all of one length, not 0, and evenly apart; else None. No copy."""
    if not len(starts):
        return None
    at, length = int(starts[0]), int(lengths[0])
    apart = int(starts[1]) - at if len(starts) > 1 else length
    last = at + apart * (len(starts) - 1)
    if not length or apart <= 0 or at < 0 or last + length > len(blob) or int(starts[-1]) != last:
        return None
    if not bool((lengths == length).all()) or not bool((starts[1:] - starts[:-1] == apart).all()):
        return None
    return evenly(blob, at, apart, length, len(starts))


def of_one_length(strings: ByteColumn) -> int:
    """The length of all strings; -1 where they differ, or there is none."""
    lengths = lengths_of(strings.offsets)
    return int(lengths[0]) if len(lengths) and bool((lengths == lengths[0]).all()) else -1


def common_prefix_length(blob: Bytes, starts: Ints, lengths: Ints) -> int:
    """Bytes at the beginning that all strings share. O(strings x that number)."""
    count = len(starts)
    picked = slice(None, None, max(count // _SAMPLE, 1))
    pairs = zip(starts[picked].tolist(), lengths[picked].tolist(), strict=True)
    whole = blob.data
    sample = [bytes(whole[at : at + length]) for at, length in pairs]
    lowest, highest = min(sample), max(sample)
    shared = min(len(lowest), len(highest), int(lengths.min()))
    if shared == 0:
        return 0
    model = np.frombuffer(lowest[:shared], dtype=np.uint8)
    differs = model != np.frombuffer(highest[:shared], dtype=np.uint8)
    if differs.any():
        model = model[: int(differs.argmax())]
    shared, wanted = len(model), model.tobytes()
    if shared == 0:
        return 0
    view = windows(blob, shared)
    even = as_strides(blob, starts, np.broadcast_to(np.int64(shared), (count,)))
    block = max(_BLOCK_BYTES // shared, 1)
    for low in range(0, count, block):
        some = slice(low, low + block)
        strings = view[starts[some]] if even is None else even[some]
        if not bool((strings != np.void(wanted)).any()):
            continue
        rows = np.ascontiguousarray(strings).view(np.uint8).reshape(-1, shared)
        wrong = (rows[:, : len(model)] != model).any(axis=0)
        if wrong.any():
            model = model[: int(wrong.argmax())]
            if not len(model):
                return 0
    return len(model)


def first_words(blob: Bytes, starts: Ints, lengths: Ints, skip: int) -> Words:
    """Bytes [skip, skip + 8) of each string as one big-endian number, zeros behind its end."""
    length = int(lengths[0]) if len(lengths) else 0
    if length >= 8 and bool((lengths == length).all()):
        if skip >= length:
            return np.zeros(len(starts), dtype=np.uint64)
        back = min(skip, length - 8)  # where less is left, the bytes before are shifted out
        here = as_strides(blob, starts + back, np.broadcast_to(np.int64(8), (len(starts),)))
        if here is None:
            here = windows(blob, 8)[starts + back]
        whole: Words = here.view(">u8").astype(np.uint64)
        whole <<= np.uint64(8 * (skip - back))
        return whole
    if len(blob) < 8:
        blob = np.concatenate([blob, np.zeros(8, np.uint8)])
    at = starts + skip
    last = len(blob) - 8
    over = np.flatnonzero(at > last)
    behind = at[over] - last
    at[over] = last
    words: Words = windows(blob, 8)[at].view(">u8").astype(np.uint64)
    words[over] = np.where(
        behind < 8, words[over] << np.minimum(8 * behind, 63).astype(np.uint64), np.uint64(0)
    )
    words &= _fronts()[np.minimum(np.maximum(lengths - skip, 0), 8)]
    return words


def at_or_above(strings: Strings, bound: bytes) -> Mask:
    """Which of the strings are at or above ``bound``, in byte order. Looks at eight bytes of each,
    and at the next eight of those that begin as ``bound`` does."""
    found = np.zeros(len(strings.lengths), np.bool_)
    left = np.arange(len(found), dtype=np.int64)
    for skip in range(0, len(bound), 8):
        if not len(left):
            break
        words = first_words(strings.blob, strings.starts[left], strings.lengths[left], skip)
        word = np.uint64(int.from_bytes(bound[skip : skip + 8].ljust(8, b"\0"), "big"))
        found[left[words > word]] = True
        left = left[words == word]
    found[left] = strings.lengths[left] >= len(bound)
    return found


@cache
def _fronts() -> Words:
    """Masks of a word's first 0 to 8 bytes."""
    whole = (1 << 64) - 1
    return np.array([whole ^ whole >> 8 * count for count in range(9)], dtype=np.uint64)


def column_of(strings: Sequence[bytes]) -> ByteColumn:
    """The column of these byte strings."""
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    return ByteColumn(np.frombuffer(b"".join(strings), dtype=np.uint8), offsets_of(lengths))
