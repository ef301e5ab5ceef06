"""XXH3 of many strings by array kernels: what the library says of each."""

from __future__ import annotations

import random

import numpy as np
import pytest
from whole_store import SEED
from xxhash import xxh3_64_intdigest

from octavo.files.kernels import xxh3_columns
from octavo.files.kernels.byte_strings import Ints, Words
from octavo.files.kernels.columns import Bytes
from octavo.files.kernels.xxh3_columns import xxh3_apart, xxh3_of


@pytest.fixture
def rng() -> random.Random:
    print(f"OCTAVO_SEED={SEED}")
    return random.Random(SEED)


def strings(rng: random.Random, lengths: list[int]) -> tuple[Bytes, Ints, Ints, Words]:
    """Somewhere in a blob, in any order, over one another too; its last byte is in one of them."""
    blob = rng.randbytes(max(lengths) + 500)
    starts = [rng.randrange(len(blob) - length + 1) for length in lengths]
    starts[0] = len(blob) - lengths[0]
    seeds = [rng.choice((0, 1, (1 << 64) - 1, rng.getrandbits(64))) for _ in lengths]
    return (
        np.frombuffer(blob, dtype=np.uint8),
        np.array(starts, dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        np.array(seeds, dtype=np.uint64),
    )


def by_the_library(blob: Bytes, starts: Ints, lengths: Ints, seeds: Words) -> list[int]:
    whole = blob.tobytes()
    rows = zip(starts.tolist(), lengths.tolist(), seeds.tolist(), strict=True)
    return [xxh3_64_intdigest(whole[at : at + size], seed) for at, size, seed in rows]


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xxh3_columns, "_AT_LEAST", 64)


@pytest.mark.parametrize("low", range(0, 260, 20))
def test_every_length_is_hashed_as_the_library_does(rng: random.Random, low: int) -> None:
    for length in range(low, low + 20):
        given = strings(rng, [length] * 70)
        assert xxh3_of(*given).tolist() == by_the_library(*given)


def test_lengths_may_be_mixed(rng: random.Random) -> None:
    lengths = [rng.choice((0, 5, 16, 17, 34, 50, 84, 128, 129, 5000)) for _ in range(2000)]
    given = strings(rng, lengths)
    assert xxh3_of(*given).tolist() == by_the_library(*given)


def test_more_than_one_block_is_hashed(rng: random.Random) -> None:
    given = strings(rng, [50] * 10_000)
    assert xxh3_of(*given).tolist() == by_the_library(*given)


def test_of_no_strings_there_are_no_hashes() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert len(xxh3_of(np.zeros(0, np.uint8), none, none, np.zeros(0, np.uint64))) == 0


@pytest.mark.parametrize("length", [8, 50, 300])
def test_strings_outside_of_their_blob_are_refused(length: int) -> None:
    starts = np.full(100, 1, dtype=np.int64)
    lengths = np.full(100, length, dtype=np.int64)
    with pytest.raises(IndexError):
        xxh3_of(np.zeros(length, np.uint8), starts, lengths, np.zeros(100, np.uint64))


@pytest.mark.parametrize("length", [0, 1, 16, 17, 31, 32, 33, 64, 84, 127, 128, 129, 1008])
@pytest.mark.parametrize("count", [0, 1, 511, 512, 40_000])
def test_strings_evenly_apart_are_hashed_alike(rng: random.Random, length: int, count: int) -> None:
    apart, at = rng.choice((length, length + 1, length + 60)), rng.randrange(9)
    blob = np.frombuffer(rng.randbytes(at + max(count - 1, 0) * apart + length), dtype=np.uint8)
    seeds = np.frombuffer(rng.randbytes(8 * count), dtype=np.uint64)
    starts = at + apart * np.arange(count)
    wanted = by_the_library(blob, starts, np.full(count, length), seeds)
    assert xxh3_apart(blob, at, apart, length, seeds).tolist() == wanted


def test_strings_evenly_apart_stay_inside_their_blob(rng: random.Random) -> None:
    blob, seeds = np.frombuffer(rng.randbytes(999), dtype=np.uint8), np.zeros(50, np.uint64)
    for at, apart, length in ((1, 20, 19), (0, 20, 20), (-1, 10, 9)):
        with pytest.raises(IndexError):
            xxh3_apart(blob, at, apart, length, seeds)
