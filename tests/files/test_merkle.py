"""Merkle trees as arithmetic and as bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from whole_store import SEED

from octavo.files.errors import Misuse, UnsupportedFormat
from octavo.files.ledger.merkle import MerkleTree, row_words, xxh3


def tree(hashes: list[int], sqns: list[int], segments: int = 256) -> MerkleTree:
    found = MerkleTree.empty(segments, "sqn")
    keys = np.array(hashes, dtype=np.uint32)
    found.add(keys, row_words(keys, [np.array(sqns, dtype=np.uint64)]))
    return found


@pytest.fixture
def rows() -> tuple[list[int], list[int]]:
    rng = random.Random(SEED)
    hashes = rng.sample(range(1 << 32), 5000)
    return hashes, [rng.randrange(1 << 40) for _ in hashes]


def test_the_order_of_rows_does_not_matter(rows: tuple[list[int], list[int]]) -> None:
    hashes, sqns = rows
    assert tree(hashes, sqns) == tree(hashes[::-1], sqns[::-1])


def test_one_other_version_differs_in_one_segment(rows: tuple[list[int], list[int]]) -> None:
    hashes, sqns = rows
    for at in range(0, 5000, 100):
        other = [*sqns[:at], sqns[at] + 1, *sqns[at + 1 :]]
        for segments in (256, 4096, 1 << 16, 1 << 20):
            bits = segments.bit_length() - 1
            found = tree(hashes, sqns, segments).differences(tree(hashes, other, segments))
            assert found == [hashes[at] >> (32 - bits)]


def test_keys_that_change_their_versions_with_each_other_are_seen() -> None:
    assert tree([1, 2], [10, 20]).differences(tree([1, 2], [20, 10])) == [0]


def test_a_reduced_tree_is_the_one_made_with_fewer_segments(
    rows: tuple[list[int], list[int]],
) -> None:
    assert tree(*rows, 1 << 16).reduced(1024) == tree(*rows, 1024)
    assert tree(*rows, 1 << 16).differences(tree(*rows, 256)) == []


def test_parts_join_to_the_whole(rows: tuple[list[int], list[int]]) -> None:
    hashes, sqns = rows
    parts = tree(hashes[:999], sqns[:999]).joined(tree(hashes[999:], sqns[999:]))
    assert parts == tree(hashes, sqns)


def test_rows_that_are_the_same_are_seen_wherever_they_were_taken_in() -> None:
    twice = tree([5], [7]).joined(tree([5], [7]))
    for found in (tree([5, 5], [7, 7]), twice, twice.reduced(256)):
        assert len(found.differences(MerkleTree.empty(256, "sqn"))) == 1
        assert found.differences(tree([5, 5], [7, 7])) == []


def test_a_tree_comes_back_from_its_bytes(rows: tuple[list[int], list[int]]) -> None:
    whole = tree(*rows, 1024)
    raw = whole.to_bytes()
    assert len(raw) == 8 * 1024 + 32
    assert MerkleTree.from_bytes(raw) == whole
    assert hash(MerkleTree.from_bytes(memoryview(raw))) == hash(whole)  # type: ignore[arg-type]


def test_bytes_with_any_bit_flipped_or_cut_are_refused(rows: tuple[list[int], list[int]]) -> None:
    raw = tree(*rows).to_bytes()
    for at in range(len(raw)):
        bad = bytearray(raw)
        bad[at] ^= 1 << at % 8
        with pytest.raises(Misuse):
            MerkleTree.from_bytes(bytes(bad))
    for length in (*range(40), len(raw) - 1):
        with pytest.raises(Misuse):
            MerkleTree.from_bytes(raw[:length])
    with pytest.raises(Misuse):
        MerkleTree.from_bytes(raw + b"\x00")


def resummed(raw: bytes) -> bytes:
    return raw[:-8] + xxh3(raw[:-8]).to_bytes(8, "little")


@pytest.mark.parametrize("bits", [0, 7, 9, 20, 63, 255])
def test_a_length_that_is_not_there_is_not_believed(bits: int) -> None:
    raw = bytearray(MerkleTree.empty(256, "sqn").to_bytes())
    raw[11] = bits
    with pytest.raises(Misuse, match="length"):
        MerkleTree.from_bytes(resummed(bytes(raw)))


@pytest.mark.parametrize("version", [1, 3])
def test_a_tree_of_another_version_is_refused_by_that(version: int) -> None:
    raw = bytearray(MerkleTree.empty(256, "sqn").to_bytes())
    raw[8] = version
    with pytest.raises(UnsupportedFormat, match=f"of version {version}: this release reads ver"):
        MerkleTree.from_bytes(resummed(bytes(raw)))


@pytest.mark.parametrize("segments", [0, 1, 128, 255, 1 << 21, "256", True, 300])
def test_a_number_of_segments_that_no_tree_has_is_refused(segments: int) -> None:
    with pytest.raises(Misuse, match="segments"):
        MerkleTree.empty(segments, "sqn")
    with pytest.raises(Misuse, match="segments"):
        MerkleTree.empty(1024, "sqn").reduced(segments)


def test_trees_that_tell_versions_apart_differently_are_not_compared() -> None:
    with pytest.raises(Misuse, match="'head'"):
        MerkleTree.empty(256, "sqn").differences(MerkleTree.empty(256, "head"))
    with pytest.raises(Misuse, match="by="):
        MerkleTree.empty(256, "size")
    with pytest.raises(Misuse, match="MerkleTree"):
        MerkleTree.empty(256, "sqn").differences("x")  # type: ignore[arg-type]


def test_trees_are_what_they_were_in_every_release() -> None:
    # Stores of different releases exchange them: a change of these bytes is a new version.
    raw = tree([0, 1, 0x80000000, 0xFFFFFFFF], [1, 2, 3, 1 << 40]).to_bytes()
    assert raw[:32].hex() == "936f63744d524b0a020000080000000004000000000000003e42e55be6c49ff2"
    assert raw[-8:].hex() == "2beb8bdf173b618c"
