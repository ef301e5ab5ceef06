"""Kernels over byte strings, each against the plain Python for it."""

from __future__ import annotations

import os.path
import random
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import column

from octavo.files.kernels import byte_strings
from octavo.files.kernels.byte_strings import (
    as_list,
    at_or_above,
    common_prefix_length,
    copy,
    cuts,
    fill,
    first_words,
    gather,
    lengths_of,
    prefixed,
)

strings = st.lists(st.binary(max_size=20), min_size=1, max_size=40)
related = st.builds(
    lambda prefix, rests: [prefix + rest for rest in rests], st.binary(max_size=20), strings
)
exact = settings(derandomize=True, max_examples=300, deadline=None)


@exact
@given(strings, st.randoms(use_true_random=False))
def test_gather_takes_strings_in_any_order_and_more_than_once(
    given_strings: list[bytes], chance: random.Random
) -> None:
    rows = [chance.randrange(len(given_strings)) for _ in range(50)]
    of = column(given_strings)
    found = gather(of.blob, of.offsets[:-1][rows], lengths_of(of.offsets)[rows])
    assert as_list(found.blob.tobytes(), found.offsets) == [given_strings[row] for row in rows]


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        ([0, 4, 8, 12], [3, 3, 3, 3]),
        ([2], [5]),
        ([0, 4, 8, 13], [3, 3, 3, 3]),
        ([0, 4, 8, 12], [3, 2, 3, 3]),
        ([9, 6, 3, 0], [3, 3, 3, 3]),
        ([5, 5, 5], [4, 4, 4]),
        ([3, 9], [0, 0]),
    ],
)
def test_a_prefix_comes_before_strings_anywhere(starts: list[int], lengths: list[int]) -> None:
    blob = b"abcdefghijklmnop"
    found = prefixed(b"12", np.frombuffer(blob, np.uint8), np.array(starts), np.array(lengths))
    wanted = [b"12" + blob[at : at + length] for at, length in zip(starts, lengths, strict=True)]
    assert as_list(found.blob.tobytes(), found.offsets) == wanted


def test_gather_crosses_block_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_strings, "_BLOCK_BYTES", 64)
    given_strings = [bytes([i % 256]) * (i % 90) for i in range(1000)]
    of = column(given_strings)
    found = gather(of.blob, of.offsets[:-1], lengths_of(of.offsets))
    assert found.blob.tobytes() == b"".join(given_strings)


def test_copy_refuses_a_string_outside_its_blob() -> None:
    source, target = np.zeros(10, np.uint8), np.zeros(10, np.uint8)
    with pytest.raises(IndexError):
        copy(source, np.array([6]), np.array([5]), target, np.array([0]))
    with pytest.raises(IndexError):
        copy(source, np.array([0]), np.array([5]), target, np.array([6]))


@exact
@given(st.randoms(use_true_random=False), st.integers(0, 30), st.booleans())
def test_strings_moved_as_if_all_were_the_longest_are_whole(
    chance: random.Random, longest: int, apart: bool
) -> None:
    count = chance.randrange(1, 60)
    source = np.frombuffer(chance.randbytes(chance.randrange(longest, 200) or 1), np.uint8)
    lengths = np.array([chance.randint(longest // 2, longest) for _ in range(count)])
    starts = np.array([chance.randint(0, len(source) - length) for length in lengths.tolist()])
    gaps = np.array([chance.randrange(4) if apart else 0 for _ in range(count)])
    at = np.cumsum(lengths + gaps) - lengths
    target = np.zeros(int(at[-1] + lengths[-1]) + chance.choice((0, 50)), np.uint8)
    fill(source, starts, lengths, target, at)
    for begin, length, goal in zip(starts, lengths, at, strict=True):
        assert bytes(target[goal : goal + length]) == bytes(source[begin : begin + length])


def test_numpy_assigns_elements_that_overlap_in_their_order() -> None:
    # Without it all strings are moved by length: right, and several times slower.
    assert byte_strings._in_turn()


def test_fill_by_length_where_numpy_would_not_assign_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(byte_strings, "_in_turn", lambda: False)
    given_strings = [b"x%d" % i for i in range(2000)]
    of = column(given_strings)
    found = gather(of.blob, of.offsets[:-1], lengths_of(of.offsets))
    assert found.blob.tobytes() == b"".join(given_strings)


@pytest.mark.parametrize(
    ("starts", "room"),
    [([0, 10, 95], 40), ([0, 10, 20], 17), ([0, 200, 20], 40), ([95, 96, 97], 40)],
)
def test_fill_refuses_a_string_outside_its_blob(starts: list[int], room: int) -> None:
    source, target = np.zeros(100, np.uint8), np.zeros(room, np.uint8)
    lengths = np.array([5, 6, 7])
    with pytest.raises(IndexError):
        fill(source, np.array(starts), lengths, target, np.cumsum(lengths) - lengths)


@exact
@given(related)
def test_common_prefix_is_the_longest(given_strings: list[bytes]) -> None:
    of = column(given_strings)
    found = common_prefix_length(of.blob, of.offsets[:-1], lengths_of(of.offsets))
    assert found == len(os.path.commonprefix(given_strings))  # noqa: RUF071 - of bytes


@pytest.mark.parametrize("lonely", [b"/a/lonesome", b"/a/lonesome--------"])  # one of the length
def test_common_prefix_sees_the_one_row_that_no_sample_holds(lonely: bytes) -> None:
    given_strings = [b"/a/long/path/%06d" % i for i in range(5000)]
    given_strings[1237] = lonely
    of = column(given_strings)
    found = common_prefix_length(of.blob, of.offsets[:-1], lengths_of(of.offsets))
    assert found == len(b"/a/lon")


@exact
@given(related, st.integers(0, 20))
def test_first_words_are_eight_bytes_padded_with_zeros(
    given_strings: list[bytes], skip: int
) -> None:
    skip = min(skip, *(len(s) for s in given_strings))
    of = column(given_strings)
    found = first_words(of.blob, of.offsets[:-1], lengths_of(of.offsets), skip)
    wanted = [s[skip : skip + 8].ljust(8, b"\0") for s in given_strings]
    assert [word.to_bytes(8, "big") for word in found.tolist()] == wanted


@exact
@given(
    st.lists(st.text("\0\1a\xff", max_size=20).map(lambda s: s.encode("latin-1")), min_size=1),
    st.text("\0\1a\xff", max_size=20).map(lambda s: s.encode("latin-1")),
)
def test_at_or_above_compares_as_python_does(given_strings: list[bytes], bound: bytes) -> None:
    found = at_or_above(column(given_strings).strings(), bound)
    assert found.tolist() == [each >= bound for each in given_strings]


@pytest.mark.parametrize("length", range(7, 20))
def test_first_words_of_one_length_are_those_of_any(length: int) -> None:
    chance = random.Random(length)
    given_strings = [chance.randbytes(length) for _ in range(30)]
    of = column(given_strings)
    for skip in range(length + 1):
        found = first_words(of.blob, of.offsets[:-1], lengths_of(of.offsets), skip)
        wanted = [s[skip : skip + 8].ljust(8, b"\0") for s in given_strings]
        assert [word.to_bytes(8, "big") for word in found.tolist()] == wanted


@pytest.mark.parametrize(
    "starts", [[0, 9, 18, 27], [3, 20, 37, 54], [40, 2, 33, 3], [9, 9, 9], [60, 40, 20, 0]]
)
def test_first_words_of_strings_anywhere(starts: list[int]) -> None:
    blob = np.frombuffer(random.Random(9).randbytes(70), dtype=np.uint8)
    for length, skip in ((8, 0), (9, 1), (10, 7), (10, 10)):
        found = first_words(blob, np.array(starts), np.full(len(starts), length), skip)
        wanted = [blob[at : at + length].tobytes()[skip : skip + 8] for at in starts]
        assert [word.to_bytes(8, "big") for word in found.tolist()] == [
            one.ljust(8, b"\0") for one in wanted
        ]


@pytest.mark.parametrize("starts", [[50, 61], [61], [61, 50]])
def test_first_words_of_strings_outside_of_their_blob_are_refused(starts: list[int]) -> None:
    with pytest.raises(IndexError):
        first_words(np.zeros(68, np.uint8), np.array(starts), np.full(len(starts), 8), 0)


@pytest.mark.parametrize("lengths", [[20], [0], [0, 1], [3, 4, 5], range(40), [70000, 1]])
def test_as_list_is_the_strings_whatever_their_lengths(lengths: list[int]) -> None:
    chance = random.Random(7)
    given_strings = [chance.randbytes(chance.choice(lengths)) for _ in range(3000 // len(lengths))]
    of = column(given_strings)
    assert as_list(of.blob.tobytes(), of.offsets) == given_strings


def test_as_list_keeps_nuls_at_the_end() -> None:
    given_strings = [b"a\0\0", b"\0\0\0"] * 100
    of = column(given_strings)
    assert as_list(of.blob.tobytes(), of.offsets) == given_strings


def test_bytes_stay_bytes_where_there_is_no_memory_for_a_moment() -> None:
    api = pytest.importorskip("_testcapi")  # some distributions leave it out
    numbers = memoryview(bytes(range(64))).cast("I")[2:9]
    for view in (numbers, memoryview(bytes(range(64)))[2:40]):
        right = byte_strings.array_of(view)
        raised = 0
        for at in range(30):
            api.set_nomemory(at, at + 1)
            try:
                found = byte_strings.array_of(view)
            except MemoryError:
                raised += 1
                continue
            finally:
                api.remove_mem_hooks()
            assert found.dtype == right.dtype == np.dtype(view.format)
            assert found.tolist() == view.tolist()
        assert raised


@exact
@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 9), st.integers(1, 20))
def test_parts_are_as_large_as_they_may_be_or_of_one_row(
    sizes: list[int], most_rows: int, most_bytes: int
) -> None:
    low, expected = 0, []
    while low < len(sizes):
        high = low + 1
        while (
            high < len(sizes)
            and high - low < most_rows
            and sum(sizes[low : high + 1]) <= most_bytes
        ):
            high += 1
        expected.append((low, high))
        low = high
    parts = cuts(np.array(sizes, dtype=np.int64), most_rows, most_bytes)
    assert list(islice(parts, len(sizes) + 1)) == expected
