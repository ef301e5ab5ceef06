"""Sorts byte strings by array kernels: the sort under every merge.

Unsigned bytes decide, a string sorts before its own continuations, and any byte may occur
anywhere, NUL at the end too. The strings' common prefix is skipped. A first pass sorts 8 bytes
of each as a number; for most keys that settles it. Only the rows that it leaves equal go on:
they are sorted by a longer stretch of bytes, padded with NULs and followed by the length, which
tells "a" from "a" + NUL; and so on, until nothing is undecided.

Input that consists of a few sorted runs (files to be merged) is recognised and costs O(n) a
pass; NumPy's stable sort finds the runs.
"""

from __future__ import annotations

from typing import TypeAlias

from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints, Words, common_prefix_length, copy, first_words
from octavo.files.kernels.columns import Bytes, Strings

_FEW_RUNS = 64
"""Below one descent in so many rows the input is taken for sorted runs."""
_STRETCH_BYTES = 16
"""At the least so many bytes of each undecided row are looked at in a pass."""
_BUDGET_BYTES = 8 << 20
"""Undecided rows are padded to a common width, within so much memory,"""
_OWN_SIZES, _MOST_BYTES = 2, 32 << 20
"""or so many times what they take themselves, if that is more, but within _MOST_BYTES."""

_Padded: TypeAlias = "npt.NDArray[np.bytes_]"


def key_order(keys: Strings, groups: Ints | None = None) -> tuple[Ints, Ints]:
    """(rows in order, where in them each distinct key begins).

    A row is below all rows of a higher ``groups[i]`` (>= 0) if groups are given. Rows with equal
    keys come one after the other, in any order. Memory: some 60 bytes a row, and for undecided
    rows twice their keys. Raises IndexError where a row is not inside the blob.
    """
    blob, starts, lengths = keys.blob, keys.starts, keys.lengths
    if len(starts) < 2:
        return np.arange(len(starts)), np.arange(len(starts))
    skip = common_prefix_length(blob, starts, lengths)
    word_bytes, codes = _codes(blob, starts, lengths, skip, groups)
    runs = int(np.count_nonzero(codes[1:] < codes[:-1])) * _FEW_RUNS < len(codes)
    order = np.argsort(codes, kind="stable" if runs else None)
    codes = codes[order]
    new = np.empty(len(order), dtype=np.bool_)
    new[0] = True
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    depth = skip + word_bytes
    undecided = _undecided(new, lengths, order, depth)
    while len(undecided):
        depth = _settle(blob, starts, lengths, order, new, undecided, depth, runs)
        undecided = undecided[_still_equal(new, undecided)]
        undecided = undecided[lengths[order[undecided]] > depth]
    return order, np.flatnonzero(new)


def _codes(
    blob: Bytes, starts: Ints, lengths: Ints, skip: int, groups: Ints | None
) -> tuple[int, Words]:
    """(bytes of each key that are in its code, the codes): group, then the first bytes."""
    words = first_words(blob, starts, lengths, skip)
    top = 0 if groups is None else int(groups.max())
    if groups is None or top == 0:
        return 8, words
    group_bytes = (top.bit_length() + 7) // 8
    shift = np.uint64(64 - 8 * group_bytes)
    words >>= np.uint64(8 * group_bytes)
    words |= groups.astype(np.uint64) << shift
    return 8 - group_bytes, words


def _still_equal(new: npt.NDArray[np.bool_], at: Ints) -> npt.NDArray[np.bool_]:
    """Which of the places ``at`` share their key, as far as known, with a neighbour."""
    follows = ~new[at]
    followed = np.zeros(len(at), dtype=np.bool_)
    inside = at + 1 < len(new)
    followed[inside] = ~new[at[inside] + 1]
    return follows | followed


def _undecided(new: npt.NDArray[np.bool_], lengths: Ints, order: Ints, depth: int) -> Ints:
    """Places whose code equals a neighbour's although the keys may differ, ascending."""
    equal = ~new
    equal[:-1] |= ~new[1:]
    places = np.flatnonzero(equal)
    if not len(places):
        return places
    tied = lengths[order[places]]
    if int(tied.max()) <= depth and int(tied.min()) == int(lengths.max()):
        return places[:0]  # all of one length, and every byte was in the code
    return places


def _settle(
    blob: Bytes,
    starts: Ints,
    lengths: Ints,
    order: Ints,
    new: npt.NDArray[np.bool_],
    places: Ints,
    depth: int,
    runs: bool,
) -> int:
    """Put the rows at ``places`` in order by their next bytes; the depth that is settled now.

    Changes ``order`` and ``new`` at those places; each set of equal rows keeps its own.
    """
    rows = order[places]
    left = np.maximum(lengths[rows] - depth, 0)
    budget = max(min(_OWN_SIZES * int(left.sum()), _MOST_BYTES), _BUDGET_BYTES)
    width = min(max(budget // len(rows), _STRETCH_BYTES), max(int(left.max()), 1))
    ties: Ints = np.cumsum(new[places], dtype=np.int64)
    padded = _padded(blob, starts, lengths, rows, ties, depth, width)
    if bool((padded[1:] < padded[:-1]).any()):
        if runs:
            # As they came they are a few runs; grouped by what is equal so far, many short ones.
            back = np.argsort(rows)
            order_of = back[np.argsort(padded[back], kind="stable")]
        else:
            order_of = np.argsort(padded, kind="stable")
        order[places] = rows[order_of]
        padded = padded[order_of]
    new[places[1:]] = padded[1:] != padded[:-1]
    return depth + width


def _padded(
    blob: Bytes,
    starts: Ints,
    lengths: Ints,
    rows: Ints,
    ties: Ints,
    depth: int,
    width: int,
) -> _Padded:
    """Set of equals, bytes [depth, depth + width), length: strings whose order is the rows'."""
    size = 4 + width + 4
    out = np.zeros((len(rows), size), dtype=np.uint8)
    out[:, :4] = ties.astype(">u4").view(np.uint8).reshape(-1, 4)
    taken = np.clip(lengths[rows] - depth, 0, width)
    at = np.arange(len(rows), dtype=np.int64) * size + 4
    copy(blob, starts[rows] + depth, taken, out.reshape(-1), at)
    known = np.minimum(lengths[rows], depth + width + 1)
    out[:, -4:] = known.astype(">u4").view(np.uint8).reshape(-1, 4)
    return out.reshape(-1).view(f"S{size}")
