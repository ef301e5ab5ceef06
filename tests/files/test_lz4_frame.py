"""Blocks decompressed together: against each by itself, and where lengths are not what is told."""

from __future__ import annotations

import random
from itertools import pairwise

import lz4.block
import numpy as np
import pytest
from whole_store import SEED

from octavo.files.journal import lz4_frame
from octavo.files.journal.lz4_frame import Frame, may_hold

Stored = tuple[bytes, int]


def packed(value: bytes) -> Stored:
    return lz4.block.compress(value, store_size=False), len(value)


def plain(value: bytes) -> Stored:
    return value, -1


def together(stored: list[Stored], files: int = 1) -> list[bytes] | None:
    """What a frame makes of values that are in so many files by turns; None: it says no."""
    images = [b"-" * number for number in range(files)]
    at = []
    for row, (part, _) in enumerate(stored):
        at.append(len(images[row % files]))
        images[row % files] += part
    lengths = np.array([len(part) for part, _ in stored])
    raw_bytes = np.array([size for _, size in stored])
    of = np.arange(len(stored)) % files
    frame = Frame(images, of, np.array(at), lengths, raw_bytes)
    blob = frame.values(frame.unpack())
    if blob is None:
        return None
    return [blob[low:high].tobytes() for low, high in pairwise(frame.offsets.tolist())]


def some_values(rng: random.Random, count: int, most: int) -> list[bytes]:
    """Half noise, half of one byte, of any length from 6 on."""
    sizes = [rng.randrange(6, most) for _ in range(count)]
    return [rng.randbytes(size // 2) + bytes(size - size // 2) for size in sizes]


@pytest.mark.parametrize("most", [20, 300, 9000, 70_000, 300_000, 1_100_000])
@pytest.mark.parametrize("files", [1, 3])
def test_values_of_any_length_come_back(most: int, files: int) -> None:
    rng = random.Random(SEED + most)
    values = some_values(rng, 30, most)
    assert together([packed(value) for value in values], files) == values
    mixed = [rng.choice((packed, plain))(value) for value in values]
    assert together([*mixed, packed(bytes(6))], files) == [*values, bytes(6)]


def test_values_that_are_empty_or_not_compressed_may_be_among_them() -> None:
    values = [b"", b"a", bytes(100), b"", b"b" * 70_000, b"", b"c" * 65_536, b""]
    kinds = [plain, plain, packed, plain, plain, plain, packed, plain]
    stored = [kind(value) for kind, value in zip(kinds, values, strict=True)]
    assert together(stored) == values
    assert together(stored, 2) == values


@pytest.mark.parametrize("off", [-1000, -8, -4, -1, 1, 4, 8, 1000])
def test_lengths_that_are_wrong_but_right_in_all_are_seen(off: int) -> None:
    rng = random.Random(SEED + off)
    values = [bytes([at]) * 3000 for at in range(10)]  # of which every part looks like the next
    values += [bytes(3000)] * 10 + some_values(rng, 10, 5000)
    stored = [packed(value) for value in values]
    assert together(stored) == values
    for _ in range(40):
        one, other = rng.sample([at for at, value in enumerate(values) if len(value) > 2000], 2)
        forged = list(stored)
        forged[one] = stored[one][0], stored[one][1] + off
        forged[other] = stored[other][0], stored[other][1] - off
        assert together(forged) is None


def test_lengths_that_change_places_are_seen() -> None:
    values = [bytes(2000 + 10 * at) for at in range(20)]
    stored = [packed(value) for value in values]
    for one, other in pairwise(range(20)):
        forged = list(stored)
        forged[one] = stored[one][0], stored[other][1]
        forged[other] = stored[other][0], stored[one][1]
        assert together(forged) is None


@pytest.mark.parametrize("row", [0, 7, 19])
def test_a_length_that_is_wrong_or_a_block_that_is_none_is_seen(row: int) -> None:
    stored = [packed(bytes(2000) + bytes([at]) * at) for at in range(20)]
    block, size = stored[row]
    wrong: list[Stored] = [
        (block, size - 1), (block, size + 1), (block[:-1], size), (block[1:], size),
        (block + b"\0", size), (bytes(len(block)), size), (b"\xff" * len(block), size),
        (b"\x2f" + block[1:], size),
    ]  # fmt: skip
    for one in wrong:
        assert together([*stored[:row], one, *stored[row + 1 :]]) is None


def test_what_a_frame_cannot_hold_is_told_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*stored: tuple[int, int]) -> bool:
        lengths, raw_bytes = zip(*stored, strict=True)
        return may_hold(np.array(lengths), np.array(raw_bytes))

    most, worth_it = 4 << 20, lz4_frame.WORTH_IT_BYTES
    assert held((most // 200, most), (most, -1), (0, -1))
    assert not held((most // 200, most), (most, -1), (1, -1))  # more is not compressed
    assert not held((most, most + 1))
    assert not held((most, most), (most, most), (most + 1, -1))
    assert not held((1000, worth_it // 4), (1000, worth_it // 4))
    monkeypatch.setattr(lz4_frame, "WORTH_IT_BYTES", 0)
    assert held((1000, 1000))
    assert not held((1000, 1000), (4, 1000))
    assert not held((1000, 1000), (100, 4))
    assert held((1000, 255 * 1000 + 64))
    assert not held((1000, 255 * 1000 + 65))
    assert not held((100, -1), (0, -1))
