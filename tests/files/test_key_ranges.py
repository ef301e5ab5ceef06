"""Ranges in which files are merged: together all of it, none of them much larger than allowed."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import DIRECTORY, Row, key, names, opened, write
from simdisk import SimDisk

from octavo.files.ledger import key_ranges
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import Section

SEED = 33
exact = settings(derandomize=True, max_examples=100, deadline=None)


def files_of(*keys_of_each: list[bytes]) -> list[tuple[Sst, int]]:
    disk, next_name = SimDisk(), names()
    disk.mkdir(DIRECTORY)
    rows = [[Row(k, at + 1) for at, k in enumerate(sorted(set(keys)))] for keys in keys_of_each]
    return [(opened(disk, file.name), 0) for each in rows for file in write(disk, each, next_name)]


def rows_between(files: list[tuple[Sst, int]], low: bytes, high: bytes | None) -> list[int]:
    """How many rows each file has there."""
    return [
        (sst.rows if high is None else sst.lower_bound(high)) - sst.lower_bound(low)
        for sst, _ in files
    ]


@pytest.fixture(scope="module", autouse=True)
def small() -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_ranges, "_RANGE_BYTES", 2000)
        patched.setattr(key_ranges, "_STEP_BYTES", 320)
        yield


ledger_keys = st.builds(
    key, st.binary(max_size=6).map(lambda k: k + b"k"), st.sampled_from([b"", b"b", b"\0"])
)


@exact
@given(
    st.lists(st.lists(ledger_keys, min_size=1, max_size=40), min_size=1, max_size=5),
    ledger_keys | st.just(b""),
    ledger_keys | st.none(),
)
def test_they_follow_one_another_from_end_to_end(
    keys: list[list[bytes]], low: bytes, high: bytes | None
) -> None:
    files = files_of(*keys)
    if high is not None and high < low:
        low, high = high, low
    found = key_ranges.key_ranges(files, low, high)
    assert found[0][0] == low
    assert found[-1][1] == high
    for (begin, end), (following, _) in pairwise(found):
        assert begin < following == end


def test_none_is_much_larger_than_allowed() -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    uneven = [[key(b"%09d" % int(chance.random() ** 4 * 10**9)) for _ in range(800)] for _ in "abc"]
    files = files_of(*uneven, [key(b"%09d" % n) for n in range(400)])
    found = key_ranges.key_ranges(files, b"", None)
    rows = [sum(rows_between(files, *each)) for each in found]
    assert sum(rows) == sum(sst.rows for sst, _ in files)
    most = 2000 / (150 + 9) + 2 * len(files)
    assert max(rows) <= most
    assert min(rows) >= most / 4


def test_long_keys_in_one_place_count_as_what_they_are() -> None:
    long = [key(b"5" + b"%03d" % n + bytes(500)) for n in range(40)]
    files = files_of(*[sorted([*long, *(key(b"%09d" % n) for n in range(800))])] * 2)
    found = key_ranges.key_ranges(files, b"", None)
    ends = [sst.column(Section.KEY_ENDS, "I") for sst, _ in files]
    sizes = [0] * len(found)
    for which, (begin, end) in enumerate(found):
        for (sst, _), of in zip(files, ends, strict=True):
            low = sst.lower_bound(begin)
            high = sst.rows if end is None else sst.lower_bound(end)
            sizes[which] += of[high] - of[low] + (high - low) * 150
    assert max(sizes) < 2000 + len(files) * 2 * (500 + 150)


def test_few_rows_of_long_keys_are_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ranges, "_RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(key_ranges, "_STEP_BYTES", 1 << 16)
    files = files_of(*[[key(b"%03d" % n + bytes(60_000)) for n in range(50)] for _ in range(2)])
    rows = [sum(rows_between(files, *each)) for each in key_ranges.key_ranges(files, b"", None)]
    assert max(rows) <= 22


def test_one_key_in_every_file_is_never_parted() -> None:
    files = files_of(*[[key(b"k")] for _ in range(40)])
    assert key_ranges.key_ranges(files, b"", None) == [(b"", None)]


def test_files_beside_the_range_count_nothing() -> None:
    files = files_of(*[[key(b"%03d" % n) for n in range(300)] for _ in range(3)])
    assert key_ranges.key_ranges(files, key(b"100"), key(b"102")) == [(key(b"100"), key(b"102"))]
