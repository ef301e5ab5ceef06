"""Merging ledger files, against a dict; and what writing them leaves on a disk that fails."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import DIRECTORY, Row, columns, key, names, opened, read, write
from simdisk import SimDisk

from octavo.files.errors import Corruption, Misuse
from octavo.files.ledger import key_ranges, merge
from octavo.files.ledger.sorted_files import Summary

exact = settings(derandomize=True, max_examples=150, deadline=None)
NOW = 100
BIG = 1 << 30

keys = st.builds(
    key,
    st.one_of(
        st.sampled_from([b"a", b"a\0", b"a\0\0", b"ab", b"b", b"\xff"]),
        st.binary(min_size=1, max_size=14),
    ),
    st.sampled_from([b"", b"", b"b", b"b\0", b"\0\0"]),
)
version = st.builds(
    lambda k, deleted, expiry, meta, size: Row(
        k, 0, deleted, 0 if deleted else expiry, b"" if deleted else meta, 0 if deleted else size
    ),
    keys,
    st.sampled_from([False, False, True]),
    st.sampled_from([0, 0, NOW - 1, NOW, NOW + 1]),
    st.sampled_from([b"", b"m", b"metadata"]),
    st.integers(0, 2**32 - 1),
)
history = st.lists(st.lists(version, min_size=1, max_size=15), min_size=1, max_size=5)


@pytest.fixture(scope="module", params=["at once", "in ranges"], autouse=True)
def some_rows_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """All rows of a merge together; or so few that most merges are made in ranges."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "in ranges":
            patched.setattr(key_ranges, "_RANGE_BYTES", 600)
            patched.setattr(key_ranges, "_STEP_BYTES", 1)
        yield


@pytest.fixture
def disk() -> SimDisk:
    return disk_with_directory()


def disk_with_directory() -> SimDisk:
    made = SimDisk()
    made.mkdir(DIRECTORY)
    return made


def newest(rows: list[Row]) -> list[Row]:
    """The newest version of each key, in order."""
    return sorted({row.key: row for row in sorted(rows, key=lambda row: row.sqn)}.values())


def aged(rows: list[Row], basement: bool) -> list[Row]:
    """What a merge at NOW leaves of the newest versions."""
    out = []
    for row in rows:
        gone = row.expiry and row.expiry <= NOW
        if gone:
            row = Row(row.key, row.sqn, deleted=True, size=0, time=row.time)
        if not (basement and row.deleted):
            out.append(row)
    return out


def merged(
    disk: SimDisk,
    inputs: list[tuple[str, int]],
    *,
    basement: bool = False,
    max_rows: int = BIG,
    max_bytes: int = BIG,
) -> list[Summary]:
    stems = names()
    return merge.merge(
        disk, DIRECTORY, inputs, lambda: "out-" + stems(),
        basement=basement, now_ms=NOW, max_rows=max_rows, max_bytes=max_bytes,
    ).files  # fmt: skip


def rows_of(disk: SimDisk, files: list[Summary]) -> list[Row]:
    return [row for file in files for row in read(opened(disk, file.name))]


def numbered(numbers: range, first_sqn: int = 1) -> list[Row]:
    return [Row(key(b"key%06d" % n), first_sqn + at) for at, n in enumerate(numbers)]


# ---------------------------------------------------------------- which rows are left


@exact
@given(history, st.booleans(), st.sampled_from([1, 3, BIG]), st.randoms(use_true_random=False))
def test_merge_is_a_dict_of_the_newest_versions(
    files: list[list[Row]], basement: bool, max_rows: int, chance: random.Random
) -> None:
    disk, next_name, sqn = disk_with_directory(), names(), 0
    inputs: list[tuple[str, int]] = []
    everything: list[Row] = []
    for base, rows in enumerate(files):
        numbers = [row._replace(sqn=(sqn := sqn + 1)) for row in rows]
        everything += numbers
        relative = [row._replace(sqn=row.sqn - base) for row in numbers]
        inputs += [(file.name, base) for file in write(disk, relative, next_name, max_rows=7)]
    chance.shuffle(inputs)
    found = merged(disk, inputs, basement=basement, max_rows=max_rows)
    assert rows_of(disk, found) == aged(newest(everything), basement)
    for file in found:
        opened(disk, file.name).verify()


@exact
@given(history)
def test_writing_keeps_the_newest_version_in_key_order(files: list[list[Row]]) -> None:
    rows = [row for file in files for row in file]
    random.Random(1).shuffle(rows)
    rows = [row._replace(sqn=at + 1) for at, row in enumerate(rows)]
    disk = disk_with_directory()
    assert rows_of(disk, write(disk, rows, names(), max_rows=7)) == newest(rows)


@pytest.mark.parametrize("length", [2, 8, 16, 17, 33, 300])
def test_keys_of_one_length_are_merged_as_others(disk: SimDisk, length: int) -> None:
    chance, next_name, sqn = random.Random(length), names(), 0
    everything: list[Row] = []
    inputs: list[tuple[str, int]] = []
    for _ in range(3):
        found = {key(chance.randbytes(2).rjust(length, b"k")) for _ in range(2000)}
        rows = [Row(each, sqn := sqn + 1) for each in sorted(found)]
        chance.shuffle(rows)
        everything += rows
        inputs += [(file.name, 0) for file in write(disk, rows, next_name)]
    files = merged(disk, inputs, max_rows=900)
    assert len(files) > 3
    assert rows_of(disk, files) == newest(everything)


def test_a_row_expires_at_its_moment_and_not_before(disk: SimDisk) -> None:
    rows = [Row(key(b"%d" % moment), moment, expiry=moment) for moment in (NOW, NOW + 1)]
    (file,) = write(disk, rows, names())
    assert rows_of(disk, merged(disk, [(file.name, 0)], basement=True)) == [rows[1]]


@pytest.mark.parametrize("basement", [False, True])
def test_the_latest_expiry_of_all_that_is_dropped_is_told(disk: SimDisk, basement: bool) -> None:
    next_name = names()
    for latest in (3, 297):  # near the beginning, and near the end
        rows = [
            Row(key(b"%03d" % n), n, expiry=NOW if n == latest else NOW + 1 if n % 2 else NOW - 1)
            for n in range(1, 300)
        ]
        (file,) = write(disk, rows, next_name)
        done = merge.merge(
            disk, DIRECTORY, [(file.name, 0)], next_name,
            basement=basement, now_ms=NOW, max_rows=BIG, max_bytes=BIG,
        )  # fmt: skip
        assert done.expired_ms == NOW


def test_an_expired_row_above_the_basement_hides_what_lies_below(disk: SimDisk) -> None:
    (file,) = write(disk, [Row(key(b"k"), 7, expiry=NOW, meta=b"m")], names())
    found = merged(disk, [(file.name, 0)])
    assert rows_of(disk, found) == [Row(key(b"k"), 7, deleted=True, size=0)]
    assert (found[0].tombstones, found[0].expiring) == (1, 0)


def test_nothing_left_makes_no_file(disk: SimDisk) -> None:
    (file,) = write(disk, [Row(key(b"k"), 1, deleted=True)], names())
    before = disk.listdir(DIRECTORY)
    assert merged(disk, [(file.name, 0)], basement=True) == []
    assert merged(disk, []) == []
    assert disk.listdir(DIRECTORY) == before


def test_one_version_in_two_inputs_is_kept_once(disk: SimDisk) -> None:
    next_name = names()
    rows = numbered(range(50))
    inputs = [(file.name, 0) for _ in range(2) for file in write(disk, rows, next_name)]
    assert rows_of(disk, merged(disk, inputs)) == rows


def test_sqns_become_absolute(disk: SimDisk) -> None:
    (file,) = write(disk, numbered(range(10)), names())
    found = merged(disk, [(file.name, 10**12)])
    assert (found[0].min_sqn, found[-1].max_sqn) == (10**12 + 1, 10**12 + 10)
    assert rows_of(disk, found) == numbered(range(10), 10**12 + 1)


def test_a_base_decides_which_version_is_newer(disk: SimDisk) -> None:
    next_name = names()
    (old,) = write(disk, [Row(key(b"k"), 900, meta=b"old")], next_name)
    (new,) = write(disk, [Row(key(b"k"), 1, meta=b"new")], next_name)
    (found,) = merged(disk, [(old.name, 0), (new.name, 1000)])
    assert rows_of(disk, [found]) == [Row(key(b"k"), 1001, meta=b"new")]


def test_files_with_sqns_of_four_and_of_eight_bytes_are_merged(disk: SimDisk) -> None:
    next_name = names()
    low, high = numbered(range(60)), numbered(range(30, 90), 2**32)
    older = Row(key(b"both"), 2**32 - 1)
    inputs = [
        (write(disk, [*low, older], next_name)[0].name, 0),
        (write(disk, [*high, Row(key(b"both"), 2**32)], next_name)[0].name, 0),
        (write(disk, [Row(key(b"both"), 2**32 - 2)], next_name)[0].name, 3),
    ]
    found = merged(disk, inputs)
    assert rows_of(disk, found) == newest([*low, *high, Row(key(b"both"), 2**32 + 1)])


def test_a_large_merge_keeps_every_key_and_its_newest_sqn(disk: SimDisk) -> None:
    seed = 20
    print("seed", seed)
    chance = random.Random(seed)
    next_name, sqn = names(), 0
    inputs, expected = [], {}
    for _ in range(5):
        rows = []
        for number in chance.sample(range(60000), 20000):
            sqn += 1
            rows.append(Row(key(b"%x" % (number * 2654435761 % 2**32), b"b%d" % (number % 3)), sqn))
        expected.update({row.key: row.sqn for row in rows})
        inputs += [(file.name, 0) for file in write(disk, rows, next_name, max_rows=9000)]
    found = merged(disk, inputs, max_rows=10000)
    got = []
    for file in found:
        sst = opened(disk, file.name)
        sst.verify()
        got += list(zip(sst.ledger_keys(0, sst.rows), sst.sqns.tolist(), strict=True))
    assert got == sorted(expected.items())
    assert max(file.rows for file in found) <= 10000


# ---------------------------------------------------------------- how files are cut


@exact
@given(history, st.integers(1, 9), st.integers(30, 400))
def test_files_keep_to_their_limits_and_follow_each_other(
    files: list[list[Row]], max_rows: int, max_bytes: int
) -> None:
    disk = disk_with_directory()
    rows = newest(
        [row._replace(sqn=at + 1) for at, row in enumerate(r for file in files for r in file)]
    )
    found = write(disk, rows, names(), max_rows=max_rows, max_bytes=max_bytes)
    assert rows_of(disk, found) == rows
    for file in found:
        own = read(opened(disk, file.name))
        assert 1 <= file.rows == len(own) <= max_rows
        assert (file.first_key, file.last_key) == (own[0].key, own[-1].key)
        assert file.bytes == disk.size(f"{DIRECTORY}/{file.name}")
        content = sum(len(row.key) - 3 + len(row.meta) + 33 for row in own)
        assert content <= max_bytes + 200 or file.rows == 1


def test_files_are_about_equally_large(disk: SimDisk) -> None:
    found = write(disk, numbered(range(1001)), names(), max_rows=500)
    assert [file.rows for file in found] == pytest.approx([334, 334, 333], abs=1)


def test_a_row_above_the_limit_has_a_file_of_its_own(disk: SimDisk) -> None:
    rows = [Row(key(b"a"), 1), Row(key(b"b" * 5000), 2), Row(key(b"c"), 3)]
    found = write(disk, rows, names(), max_bytes=1000)
    assert [row for row in rows_of(disk, found) if len(row.key) > 1000] == [rows[1]]
    assert rows_of(disk, found) == rows


@pytest.mark.parametrize("meta", [b"", b"m"])
def test_the_names_of_buckets_count_as_bytes_of_a_file(disk: SimDisk, meta: bytes) -> None:
    rows = [Row(key(b"k", b"%04d" % n + b"b" * 5000), n + 1, meta=meta) for n in range(100)]
    unused = names()
    found = write(disk, rows, unused, max_bytes=50_000)
    assert rows_of(disk, found) == rows
    assert max(file.bytes for file in found) < 60_000
    many = [Row(key(b"%03d" % n, b"b" * 5000), n + 1, meta=meta) for n in range(200)]
    assert len(write(disk, many, unused, max_bytes=50_000)) == 1, "it stands there once"


def test_the_same_input_makes_the_same_bytes() -> None:
    images = []
    for _ in range(2):
        disk = disk_with_directory()
        (file,) = write(disk, numbered(range(500)), names())
        images.append(bytes(disk.map(f"{DIRECTORY}/{file.name}")))
    assert images[0] == images[1]


# ---------------------------------------------------------------- bad input, bad disks


def test_a_key_without_a_prefix_is_refused(disk: SimDisk) -> None:
    for broken in ([b"o"], [b"oabc", key(b"z", b"z")], [key(b"a"), b"zzz"]):
        rows = columns([Row(k, at + 1) for at, k in enumerate(sorted(broken))])
        with pytest.raises(ValueError, match=r"ledger key|subsection not found"):
            merge.write_rows(disk, DIRECTORY, names(), rows, max_rows=10, max_bytes=BIG)


@pytest.mark.parametrize("limits", [(0, 1), (1, 0), (-1, 1)])
def test_limits_below_one_are_refused(disk: SimDisk, limits: tuple[int, int]) -> None:
    with pytest.raises(Misuse, match="max_rows and max_bytes"):
        write(disk, numbered(range(3)), names(), max_rows=limits[0], max_bytes=limits[1])


def test_a_damaged_input_is_refused_and_makes_no_file(disk: SimDisk) -> None:
    next_name = names()
    write(disk, numbered(range(2000)), next_name)
    (second,) = write(disk, numbered(range(2000)), next_name)
    path = f"{DIRECTORY}/{second.name}"
    image = bytearray(disk.map(path))
    image[len(image) // 2] ^= 4
    disk.write_atomically(path, bytes(image))
    before = disk.listdir(DIRECTORY)
    with pytest.raises(Corruption) as caught:
        merged(disk, [("0000.sst", 0), (second.name, 0)])
    assert caught.value.file == path
    assert disk.listdir(DIRECTORY) == before


def test_a_missing_input_is_an_error(disk: SimDisk) -> None:
    with pytest.raises(FileNotFoundError):
        merged(disk, [("absent.sst", 0)])


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_dir"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failing_disk_is_reported_and_nothing_is_left_behind(
    disk: SimDisk, operation: str, code: int
) -> None:
    (file,) = write(disk, numbered(range(100)), names())
    before = disk.listdir(DIRECTORY)
    nth = 1 if operation == "sync_dir" else 2
    disk.fail(operation, nth, code)
    with pytest.raises(OSError, match=rf"\[Errno {code}\]"):
        merged(disk, [(file.name, 0)], max_rows=30)
    assert disk.listdir(DIRECTORY) == before


def test_a_name_that_is_taken_is_left_alone(disk: SimDisk) -> None:
    (file,) = write(disk, numbered(range(10)), names())
    with pytest.raises(FileExistsError):
        write(disk, numbered(range(5)), lambda: file.name)
    assert rows_of(disk, [file]) == numbered(range(10))


@pytest.mark.parametrize("mode", ["nothing", "all", "random_subset", "torn", "names_reordered"])
def test_files_are_durable_when_the_call_returns(disk: SimDisk, mode: str) -> None:
    (file,) = write(disk, numbered(range(300)), names())
    found = merged(disk, [(file.name, 0)], max_rows=100)
    after = disk.after_crash(mode, 5)
    assert rows_of(after, found) == numbered(range(300))


def test_inputs_are_not_changed(disk: SimDisk) -> None:
    (file,) = write(disk, [Row(key(b"k"), 1, expiry=1, meta=b"m")], names())
    before = bytes(disk.map(f"{DIRECTORY}/{file.name}"))
    merged(disk, [(file.name, 5)])
    assert bytes(disk.map(f"{DIRECTORY}/{file.name}")) == before


def test_rows_that_are_written_are_not_changed(disk: SimDisk) -> None:
    rows = columns([Row(key(b"b"), 1), Row(key(b"a"), 2)])
    merge.write_rows(disk, DIRECTORY, names(), rows, max_rows=10, max_bytes=BIG)
    assert rows.sqns.tolist() == [1, 2]
    assert rows.keys.blob.tobytes() == key(b"b") + key(b"a")
    assert rows.sqns.dtype == np.uint64
