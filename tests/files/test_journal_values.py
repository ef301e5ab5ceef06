"""Values of many journal records at once: right, or None."""

from __future__ import annotations

import random

import lz4.block
import numpy as np
import pytest
from ledger_rows import column
from whole_store import SEED
from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.journal import record
from octavo.files.journal.journal_values import (
    Places,
    checksums_right,
    places_at,
    places_unseen,
    puts_of,
    spans,
)
from octavo.files.journal.sparse_offsets import SparseOffsets
from octavo.files.kernels.byte_strings import lengths_of
from octavo.files.kernels.columns import Strings

FILE_SEED = 0x1234_5678_9ABC
TAG = 0x6F


def journal(rng: random.Random, count: int) -> tuple[bytes, list[int], list[tuple[bytes, bytes]]]:
    """(a file of puts of bucket "b", offsets, keys and values)."""
    image, offsets = bytearray(b"front"), []
    pairs = []
    for at in range(count):
        key, value = rng.randbytes(rng.randrange(1, 9)), rng.randbytes(rng.randrange(30))
        more: dict = {}
        if rng.random() < 0.5:
            more = {
                "expiry_ms": rng.choice([0, 7]), "metadata": rng.randbytes(rng.randrange(3)),
                "index": rng.randbytes(rng.randrange(4)), "batch": rng.choice([None, (0, 1)]),
                "sub_key": rng.choice([b"", b"s"]),
            }  # fmt: skip
        stored = value
        if rng.random() < 0.3:
            value *= 50
            more["raw_bytes"] = len(value)
            stored = lz4.block.compress(value, store_size=False)
        offsets.append(len(image))
        check = FILE_SEED ^ len(image)
        image += record.encode(at, check, record.PUT, TAG, b"b", key, stored, 1, **more)
        pairs.append((key, value))
    return bytes(image), [*offsets, len(image)], pairs


def read(
    image: bytes,
    offsets: list[int],
    keys: list[bytes],
    *,
    seed: int = FILE_SEED,
    tag: int = TAG,
    bucket: bytes = b"b",
) -> list[bytes | None]:
    rows = np.arange(len(keys), dtype=np.int64)
    ends = np.array(offsets, dtype=np.uint32)
    return values(image, places_at(image, *spans(ends, rows), seed, tag, bucket, strings(keys)))


def strings(keys: list[bytes]) -> Strings:
    found = column(keys)
    return Strings(found.blob, found.offsets[:-1], lengths_of(found.offsets))


def values(image: bytes, found: Places) -> list[bytes | None]:
    """What stands at the places; None at those that are not good."""
    out: list[bytes | None] = []
    for good, at, length, raw_bytes in zip(*(part.tolist() for part in found), strict=True):
        stored = image[at : at + length]
        if good and raw_bytes >= 0:
            stored = record.decompress(stored, raw_bytes)
        out.append(stored if good else None)
    return out


@pytest.fixture
def rng() -> random.Random:
    print("seed", SEED)
    return random.Random(SEED)


def test_values_of_every_kind_of_put_come_back(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 400)
    assert read(image, offsets, [key for key, _ in pairs]) == [value for _, value in pairs]


def test_a_record_of_another_key_bucket_tag_or_file_is_none(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 40)
    keys = [key for key, _ in pairs]
    values = [value for _, value in pairs]
    assert read(image, offsets, keys, bucket=b"c") == [None] * 40
    assert read(image, offsets, keys, bucket=b"") == [None] * 40
    assert read(image, offsets, keys, tag=TAG + 1) == [None] * 40
    assert read(image, offsets, keys, seed=FILE_SEED + 1) == [None] * 40
    other = [*keys[:7], bytes([keys[7][0] ^ 1]) + keys[7][1:], *keys[8:]]
    assert read(image, offsets, other) == [*values[:7], None, *values[8:]]
    longer = [*keys[:7], keys[7] + b"\x00", *keys[8:]]
    assert read(image, offsets, longer) == [*values[:7], None, *values[8:]]


def test_a_delete_is_none() -> None:
    image = record.encode(0, FILE_SEED, record.DELETE, TAG, b"b", b"k", b"", 1)
    assert read(image, [0, len(image)], [b"k"]) == [None]


def test_a_record_that_is_not_there_is_none(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 3)
    key = pairs[0][0]
    far = np.array([0, 2, 3, -1, 1 << 40], dtype=np.int64)
    ends = np.array(offsets, dtype=np.uint32)
    found = places_at(image, *spans(ends, far), FILE_SEED, TAG, b"b", strings([key] * 5))
    assert found.good.tolist() == [True, False, False, False, False]
    hole = [offsets[0], offsets[0], *offsets[1:]]
    assert read(image, hole, [key]) == [None]
    assert read(b"", [5, 60], [key]) == [None]


def test_whatever_byte_is_changed_no_wrong_value_comes(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 12)
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    for at in range(offsets[0], len(image)):
        for bit in (0, rng.randrange(1, 8)):
            bad = bytearray(image)
            bad[at] ^= 1 << bit
            found = read(bytes(bad), offsets, keys)
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            assert found == [*values[:row], None, *values[row + 1 :]]


def test_whatever_byte_is_changed_no_wrong_put_comes(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 12)
    rows, ends = np.arange(12, dtype=np.int64), np.array(offsets, dtype=np.uint32)
    right = [(b"b", key, value) for key, value in pairs]
    assert puts_of(image, ends, rows, FILE_SEED, 1 << 62) == right
    for at in range(offsets[0], len(image)):
        bad = bytearray(image)
        bad[at] ^= 1 << rng.randrange(8)
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        found = puts_of(bytes(bad), ends, rows, FILE_SEED, 1 << 62)
        assert found == [*right[:row], None, *right[row + 1 :]], at


def test_whatever_byte_is_changed_no_wrong_place_comes(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 12)
    rows, ends = np.arange(12, dtype=np.int64), np.array(offsets, dtype=np.uint32)
    keys = strings([key for key, _ in pairs])
    assert places_at(image, *spans(ends, rows), FILE_SEED, TAG, b"b", keys).good.all()
    for at in range(offsets[0], len(image)):
        bad = bytearray(image)
        bad[at] ^= 1 << rng.randrange(8)
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        good = places_at(bytes(bad), *spans(ends, rows), FILE_SEED, TAG, b"b", keys).good.tolist()
        assert good == [number != row for number in range(12)], at


def test_whatever_byte_is_changed_no_wrong_place_comes_with_a_checksum_that_fits(
    rng: random.Random,
) -> None:
    image, offsets, pairs = journal(rng, 12)
    rows, ends = np.arange(12, dtype=np.int64), np.array(offsets, dtype=np.uint32)
    keys = strings([key for key, _ in pairs])

    def whole(image: bytes) -> list[bool]:
        places, sums = places_unseen(image, *spans(ends, rows), FILE_SEED, TAG, b"b", keys)
        stored = [
            image[at : at + length]
            for at, length in zip(places.at.tolist(), places.lengths.tolist(), strict=True)
        ]
        each = zip(places.good.tolist(), stored, *(part.tolist() for part in sums), strict=True)
        return [
            good and xxh3(part, seed) & record.LOW_32 == told for good, part, seed, told in each
        ]

    assert all(whole(image))
    for at in range(offsets[0], len(image)):
        bad = bytearray(image)
        bad[at] ^= 1 << rng.randrange(8)
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        assert whole(bytes(bad)) == [number != row for number in range(12)], at
    places, _ = places_unseen(b"", *spans(ends, rows), FILE_SEED, TAG, b"b", keys)
    assert not places.good.any()


@pytest.mark.parametrize("long", [7, 300], ids=["together", "one by one"])
def test_puts_of_several_buckets_are_found_each_in_its_own_and_no_wrong_one(
    rng: random.Random, long: int
) -> None:
    names = [b"", b"a", b"b", b"\0", b"ab", b"x" * (long - 1) + b"y", b"x" * long]
    buckets = [*names, *rng.choices(names, k=13)]
    image, offsets = bytearray(b"front"), []
    for at, bucket in enumerate(buckets):
        offsets.append(len(image))
        check = FILE_SEED ^ len(image)
        image += record.encode(at, check, record.PUT, TAG, bucket, b"key", b"%d" % at, 1)
    ends = np.array([*offsets, len(image)], dtype=np.uint32)
    rows = np.arange(len(buckets), dtype=np.int64)
    keys, stored = strings([b"key"] * len(buckets)), [b"%d" % at for at in range(len(buckets))]

    def found(image: bytes, buckets: list[bytes]) -> list[bytes | None]:
        told = spans(ends, rows)
        return values(image, places_at(image, *told, FILE_SEED, TAG, strings(buckets), keys))

    assert found(bytes(image), buckets) == stored
    for row, bucket in enumerate(buckets):
        for wrong in set(names) - {bucket}:
            others = [*buckets[:row], wrong, *buckets[row + 1 :]]
            assert found(bytes(image), others) == [*stored[:row], None, *stored[row + 1 :]]
    for at in range(offsets[0], len(image)):
        bad = image.copy()
        bad[at] ^= 1 << rng.randrange(8)
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        assert found(bytes(bad), buckets) == [*stored[:row], None, *stored[row + 1 :]], at


def test_puts_of_one_shape_are_found_in_any_order_and_no_wrong_one(rng: random.Random) -> None:
    keys = [rng.randbytes(rng.choice([8, 11])) for _ in range(12)]
    stored = [rng.randbytes(20) for _ in keys]
    image, offsets = bytearray(), [0]
    for at, (key, value) in enumerate(zip(keys, stored, strict=True)):
        check = FILE_SEED ^ len(image)
        image += record.encode(at, check, record.PUT, TAG, b"b", key, value, 1)
        offsets.append(len(image))
    ends = np.array(offsets, dtype=np.uint32)
    for _ in range(20):
        rows = rng.sample(range(12), rng.randrange(1, 13))
        wanted = strings([keys[row] for row in rows])
        numbers = np.array(rows, dtype=np.int64)
        found = places_at(bytes(image), *spans(ends, numbers), FILE_SEED, TAG, b"b", wanted)
        assert values(bytes(image), found) == [stored[row] for row in rows]
        at = rng.randrange(len(image))
        lost = int(np.searchsorted(offsets, at, side="right")) - 1
        bad = image.copy()
        bad[at] ^= 1 << rng.randrange(8)
        found = places_at(bytes(bad), *spans(ends, numbers), FILE_SEED, TAG, b"b", wanted)
        assert found.good.tolist() == [row != lost for row in rows], at


def test_a_file_that_is_cut_gives_what_is_whole(rng: random.Random) -> None:
    image, offsets, pairs = journal(rng, 12)
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    for length in range(len(image)):
        found = read(image[:length], offsets, keys)
        whole = sum(end <= length for end in offsets[1:])
        assert found == values[:whole] + [None] * (12 - whole)


def test_a_sparse_table_gives_what_a_plain_one_gives(rng: random.Random) -> None:
    numbers = sorted(rng.sample(range(1000), 100))
    starts = np.cumsum([5, *(rng.randrange(1, 90) for _ in numbers)]).astype(np.uint32)
    sparse = SparseOffsets(memoryview(np.array(numbers, dtype=np.uint32)), memoryview(starts), 1000)
    plain = np.array([sparse[at] for at in range(1001)], dtype=np.uint32)
    wanted = np.array([*range(-2, 1003), 1 << 33], dtype=np.int64)
    for at, (start, limit) in enumerate(zip(*spans(sparse, wanted), strict=True)):
        there = int(wanted[at]) in numbers
        assert (start, limit) == (spans(plain, wanted)[0][at], spans(plain, wanted)[1][at]) or (
            not there and start == limit == 0
        )
        assert there == (limit > start)


def test_checksums_by_kernels_are_those_one_by_one() -> None:
    rng = random.Random(SEED)
    count = 3000
    image, starts, head_ends = bytearray(b"front"), [], []
    for at in range(count):
        value = rng.randbytes(100 if at % 3 else rng.randrange(300))
        starts.append(len(image))
        image += record.encode(
            at, FILE_SEED ^ len(image), record.PUT, TAG, b"b", b"%04d" % at, value, 1
        )
        head_ends.append(len(image) - len(value) - record.SUMS_BYTES)
    ends = [*starts[1:], len(image)]
    wrong = set(rng.sample(range(count), 40))
    for at in wrong:
        image[rng.randrange(starts[at], ends[at])] ^= 1 << rng.randrange(8)
    places = [np.array(part, dtype=np.int64) for part in (starts, head_ends, ends)]
    expected = [at not in wrong for at in range(count)]
    assert checksums_right(bytes(image), *places, FILE_SEED).tolist() == expected, f"seed {SEED}"
    for low in range(0, count, 500):
        few = [part[low : low + 500] for part in places]
        found = checksums_right(bytes(image), *few, FILE_SEED).tolist()
        assert found == expected[low : low + 500], f"seed {SEED}"
