"""Ledger files: what was written is found, and what is damaged or hostile is refused."""

from __future__ import annotations

import random
import threading
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from forging import resealed, summed
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import DIRECTORY, Row, columns, key, names, opened, plain, read, write
from simdisk import SimDisk
from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption, OctavoError, UnsupportedFormat
from octavo.files.ledger import merge
from octavo.files.ledger.hashing import hash_of
from octavo.files.ledger.ledger_key import after, prefix, split
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import HEADER_BYTES, VERSION, WINDOW_BYTES, Section, decode

exact = settings(derandomize=True, max_examples=120, deadline=None)
some_rows = st.lists(
    st.builds(
        Row,
        key=st.builds(
            key,
            st.binary(min_size=1, max_size=12),
            st.sampled_from([b"", b"", b"b", b"b\0", b"\0", b"\xff"]),
        ),
        sqn=st.integers(1, 2**40),
        deleted=st.booleans(),
        expiry=st.sampled_from([0, 0, 17]),
        meta=st.one_of(st.just(b""), st.binary(max_size=9)),
        size=st.integers(0, 2**32 - 1),
        time=st.sampled_from([0, 1_700_000_000_000, 1_700_000_000_001]),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row.key,
)


@pytest.fixture
def disk() -> SimDisk:
    return disk_with_directory()


def disk_with_directory() -> SimDisk:
    made = SimDisk()
    made.mkdir(DIRECTORY)
    return made


def file_of(rows: list[Row]) -> bytes:
    """The bytes of one file of these rows."""
    disk = disk_with_directory()
    (summary,) = write(disk, rows, names())
    return bytes(disk.map(f"{DIRECTORY}/{summary.name}"))


def numbered(count: int, bucket: bytes = b"") -> list[Row]:
    return [Row(key(b"key%06d" % at, bucket), at + 1) for at in range(count)]


def varied(below: int = 0) -> list[Row]:
    """Few rows in two buckets, with every kind of section; sqns above ``below``."""
    return [
        Row(key(b"k%02d" % at, b"bk" if at % 3 else b""), below + at + 1, at % 5 == 0,
            0 if at % 4 else 99 + at, b"m" * (at % 3), at, 10**12 + at)
        for at in range(24)
    ]  # fmt: skip


# ---------------------------------------------------------------- reading what was written


@exact
@given(some_rows)
def test_every_row_reads_back(rows: list[Row]) -> None:
    sst = Sst(file_of(rows), "f")
    wanted = sorted(rows)
    assert read(sst) == wanted
    assert plain(sst.columns()) == wanted
    sst.verify()
    assert read(sst) == wanted


@exact
@given(some_rows)
def test_the_summary_says_what_is_in_the_file(rows: list[Row]) -> None:
    sst = Sst(file_of(rows), "f")
    assert sst.rows == len(rows)
    assert (sst.first_key, sst.last_key) == (min(rows).key, max(rows).key)
    assert sst.tombstones == sum(row.deleted for row in rows)
    assert sst.expiring == sum(row.expiry > 0 for row in rows)
    assert (sst.min_sqn, sst.max_sqn) == (
        min(row.sqn for row in rows),
        max(row.sqn for row in rows),
    )


@exact
@given(some_rows, st.lists(st.binary(max_size=6), max_size=20), st.booleans())
def test_find_and_lower_bound_agree_with_a_sorted_list(
    rows: list[Row], others: list[bytes], whole: bool
) -> None:
    sst = Sst(file_of(rows), "f")
    if whole:
        sst.ensure_whole()
    present = sorted(row.key for row in rows)
    for wanted in [*present, *others, *(key(o) for o in others), *(k + b"\0" for k in present)]:
        at = bisect_left(present, wanted)
        assert sst.lower_bound(wanted) == at
        row = at if wanted in present else -1
        assert sst.find(wanted, hash_of(wanted)) == row
        if row >= 0:
            assert sst.probe(hash_of(wanted)) == row


@exact
@given(some_rows, st.data())
def test_keys_of_a_range(rows: list[Row], data: st.DataObject) -> None:
    sst = Sst(file_of(rows), "f")
    low = data.draw(st.integers(0, len(rows)))
    high = data.draw(st.integers(low, len(rows)))
    wanted = sorted(row.key for row in rows)[low:high]
    assert sst.ledger_keys(low, high) == wanted
    joined = [pre + user for pre, a, b in sst.groups(low, high) for user in sst.user_keys(a, b)]
    assert joined == wanted
    assert b"".join(sst.user_keys(low, high)) == b"".join(map(sst.user_key, range(low, high)))


def test_a_bound_behind_a_bucket_is_its_end() -> None:
    buckets = [b"a", b"a\0", b"a\0b", b"b", b"\xff\xff"]
    sst = Sst(file_of([row for bucket in buckets for row in numbered(10, bucket)]), "f")
    for bucket in buckets:
        start = prefix(0x6F, bucket)
        low = sst.lower_bound(start)
        end = after(start)
        high = sst.rows if end is None else sst.lower_bound(end)
        assert sst.user_keys(low, high) == [b"key%06d" % at for at in range(10)]
        assert list(sst.groups(low, high)) == [(start, low, high)]


def test_thousands_of_buckets_in_a_file() -> None:
    rows = [Row(key(b"k%d" % at, b"bucket%d" % (at % 3000)), at + 1) for at in range(9000)]
    sst = Sst(file_of(rows), "f")
    assert len(list(sst.groups())) == 3000
    for row in random.Random(3).sample(rows, 300):
        assert sst.ledger_key(sst.find(row.key, hash_of(row.key))) == row.key


def test_write_times_further_apart_than_32_bits() -> None:
    rows = [Row(key(b"a"), 1, time=0), Row(key(b"b"), 2, time=2**63)]
    assert read(Sst(file_of(rows), "f")) == rows


def test_optional_sections_are_absent_where_no_row_needs_them() -> None:
    sections = Sst(file_of(numbered(5)), "f").layout.sections
    assert set(Section) - set(sections) == {Section.EXPIRIES, Section.METAS, Section.META_ENDS}


def test_a_row_takes_at_most_36_bytes_beside_its_key() -> None:
    rows = [Row(key(b"%020d" % at), at + 1, time=10**12 + at) for at in range(20000)]
    assert len(file_of(rows)) <= 56 * len(rows)


@pytest.mark.parametrize("h32", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("whole", [False, True])
def test_rows_with_one_hash_are_all_found(disk: SimDisk, h32: int, whole: bool) -> None:
    rows = columns(numbered(50))
    rows.hashes = np.full(50, h32, dtype=np.uint32)
    (summary,) = merge.write_rows(disk, DIRECTORY, names(), rows, max_rows=100, max_bytes=1 << 20)
    sst = opened(disk, summary.name)
    if whole:
        sst.ensure_whole()
    for at, row in enumerate(numbered(50)):
        assert sst.find(row.key, h32) == at
    assert sst.find(key(b"absent"), h32) == -1
    assert sst.find(key(b"absent"), h32 ^ 2**30) == -1


def test_lookups_are_the_same_before_and_after_the_file_is_known_whole() -> None:
    rows = numbered(30000)
    sst = Sst(file_of(rows), "f")
    careful = sst.find
    for at in random.Random(5).choices(range(30000), k=300):
        wanted = rows[at].key
        assert sst.find(wanted, hash_of(wanted)) == at
        absent = wanted + b"!"
        assert sst.find(absent, hash_of(absent)) == -1
    assert sst.find != careful  # every window was verified on the way


def test_a_lookup_outlives_the_object_it_was_taken_from() -> None:
    rows = numbered(100)
    find = Sst(file_of(rows), "f").find
    for _ in range(3):
        assert [find(row.key, hash_of(row.key)) for row in rows] == list(range(100))


# ---------------------------------------------------------------- damage


def everything(image: bytes, rows: list[Row]) -> list[object]:
    """All that readers can learn of a file, twice: carefully, and when it is known whole."""
    found: list[object] = []
    absent = [row.key + b"?" for row in rows]
    for whole in (False, True):
        sst = Sst(image, "f")
        if whole:
            sst.ensure_whole()
        found += [
            read(sst), sst.ledger_keys(0, sst.rows), sst.first_key, sst.last_key,
            sst.tombstones, sst.expiring, sst.min_sqn, sst.max_sqn,
            [sst.find(k, hash_of(k)) for k in [row.key for row in rows] + absent],
            [sst.lower_bound(k) for k in [row.key for row in rows] + absent],
            plain(sst.columns()),
        ]  # fmt: skip
    return found


def outcome(image: bytes, rows: list[Row]) -> object:
    try:
        return everything(image, rows)
    except OctavoError as refused:
        return type(refused)


@pytest.mark.parametrize("below", [0, 2**32])
def test_one_damaged_byte_is_noticed_or_harmless(below: int) -> None:
    rows = varied(below)
    image = file_of(rows)
    right = everything(image, rows)
    for at in range(len(image)):
        for flip in (1 << at % 8, 0xFF):
            damaged = bytearray(image)
            damaged[at] ^= flip
            assert outcome(bytes(damaged), rows) in (right, Corruption), (at, flip)


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_damaged_version_with_a_right_checksum_is_of_another_release(version: int) -> None:
    image = bytearray(file_of(varied()))
    image[8] = version
    image[56:64] = xxh3(bytes(image[:56])).to_bytes(8, "little")
    with pytest.raises(UnsupportedFormat, match=f"version {version}"):
        Sst(bytes(image), "f")


def test_a_truncated_or_longer_file_is_noticed() -> None:
    image = file_of(varied())
    for length in range(len(image)):
        with pytest.raises(Corruption):
            Sst(image[:length], "f")
    with pytest.raises(Corruption):
        Sst(image + b"\0", "f")


def test_zeroed_sectors_are_noticed_or_harmless() -> None:
    rows = numbered(300)
    image = file_of(rows)
    right = everything(image, rows)
    for at in range(0, len(image), 512):
        zeroed = image[:at] + bytes(min(512, len(image) - at)) + image[at + 512 :]
        assert outcome(zeroed, rows) in (right, Corruption), at


def test_damage_names_the_file_and_the_window() -> None:
    image = bytearray(file_of(numbered(20000)))
    at = decode(memoryview(bytes(image)), "f")[0].data_at + 3 * WINDOW_BYTES
    image[at + 7] ^= 1
    with pytest.raises(Corruption) as caught:
        Sst(bytes(image), "ledger/f").ensure_whole()
    assert (caught.value.file, caught.value.offset) == ("ledger/f", at)


def test_rows_beside_the_damage_are_found_and_rows_in_it_never_are() -> None:
    rows = numbered(60000)
    image = bytearray(file_of(rows))
    keys_at, keys_bytes = Sst(bytes(image), "f").layout.sections[Section.KEYS]
    hit = keys_at + keys_bytes // 2
    image[hit] ^= 1
    sst = Sst(bytes(image), "f")
    refused = set()
    blamed = set()
    for _ in range(2):
        for at in range(0, len(rows), 37):
            wanted = rows[at].key
            try:
                found = sst.find(wanted, hash_of(wanted))
            except Corruption as damage:
                blamed.add(damage.offset)
                refused.add(at)
            else:
                assert found == at
    (window,) = blamed
    assert window <= hit < window + WINDOW_BYTES
    assert min(refused) * 9 + keys_at <= hit <= (max(refused) + 37) * 9 + keys_at
    assert len(refused) * 37 * 9 <= WINDOW_BYTES + 2 * 37 * 9


@pytest.mark.parametrize("kind", [Section.SQNS, Section.FLAGS, Section.SIZES, Section.TIMES])
@pytest.mark.parametrize("lookup", ["probe", "find"])
def test_a_row_is_answered_only_with_all_its_columns_verified(kind: Section, lookup: str) -> None:
    rows = numbered(60000)
    image = bytearray(file_of(rows))
    offset, length = Sst(bytes(image), "f").layout.sections[kind]
    image[offset + length // 2] ^= 1
    sst = Sst(bytes(image), "f")
    wanted = rows[30000].key
    arguments = (hash_of(wanted),) if lookup == "probe" else (wanted, hash_of(wanted))
    for _ in range(2):
        with pytest.raises(Corruption, match="checksum"):
            getattr(sst, lookup)(*arguments)


def test_readers_in_many_threads_see_the_file_become_whole() -> None:
    rows = numbered(40000)
    image = file_of(rows)
    for seed in range(5):
        sst = Sst(image, "f")
        begin = threading.Barrier(6)

        def reader(number: int, sst: Sst = sst, begin: threading.Barrier = begin) -> int:
            chance = random.Random(number)
            begin.wait(30)
            wrong = 0
            for at in chance.choices(range(len(rows) - 1), k=200):
                wanted = rows[at].key
                wrong += sst.find(wanted, hash_of(wanted)) != at
                wrong += sst.user_keys(at, at + 2) != [wanted[3:], rows[at + 1].key[3:]]
                wrong += (sst.meta(at), sst.expiry(at), sst.time(at)) != (b"", 0, rows[at].time)
                wrong += sst.lower_bound(wanted) != at
            return wrong

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(reader, range(seed * 6, seed * 6 + 6))) == [0] * 6


# ---------------------------------------------------------------- sqns of four and of eight bytes


@pytest.mark.parametrize(("highest", "width"), [(2**32 - 1, 4), (2**32, 8), (2**64 - 1, 8)])
def test_sqns_take_four_bytes_where_the_highest_fits(highest: int, width: int) -> None:
    rows = [Row(key(b"a"), highest), Row(key(b"b"), 1)]
    sst = Sst(file_of(rows), "f")
    assert sst.layout.sections[Section.SQNS][1] == width * len(rows)
    assert (sst.min_sqn, sst.max_sqn) == (1, highest)
    assert read(sst) == plain(sst.columns()) == rows
    sst.verify()


@pytest.mark.parametrize("base", [0, 1, 2**32 - 1, 2**32, 2**40])
def test_sqns_above_a_base_may_need_more_than_four_bytes(base: int) -> None:
    sqns = [2**32 - 1, 2, 7]
    rows = [Row(key(b"%d" % at), sqn) for at, sqn in enumerate(sqns)]
    sst = Sst(file_of(rows), "f")
    wanted = [sqn + base for sqn in sqns]
    assert sst.columns(base).sqns.tolist() == wanted
    assert sst.sqns_of(slice(None), base).tolist() == wanted
    assert sst.sqns_of(np.array([2, 0]), base).tolist() == [wanted[2], wanted[0]]


# ---------------------------------------------------------------- files made by an enemy


def test_resealing_alone_changes_nothing() -> None:
    image = file_of(varied())
    assert resealed(bytearray(image)) == image


HOSTILE = [0, 1, 2, 63, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def bounded(image: bytes, rows: list[Row]) -> None:
    """Any answer will do, and any error of ours: no other exception, no endless loop."""
    for whole in (False, True):
        try:
            sst = Sst(image, "f")
            if whole:
                sst.ensure_whole()
        except OctavoError:
            continue
        calls: list[Callable[[], object]] = [
            lambda sst=sst: [sst.find(row.key, hash_of(row.key)) for row in rows],
            lambda sst=sst: [sst.lower_bound(row.key) for row in rows],
            lambda sst=sst: sst.ledger_keys(0, sst.rows),
            lambda sst=sst: read(sst),
            lambda sst=sst: sst.columns(),
            sst.verify,
        ]
        for call in calls:
            try:
                call()
            except OctavoError:
                pass


@pytest.mark.parametrize("below", [0, 2**32])
def test_a_hostile_summary_is_bounded(below: int) -> None:
    rows = varied(below)
    image = file_of(rows)
    data_at = decode(memoryview(image), "f")[0].data_at
    for at in range(HEADER_BYTES + 8, data_at - 3, 4):
        for number in HOSTILE:
            hostile = bytearray(image)
            hostile[at : at + 4] = number.to_bytes(4, "little")
            bounded(summed(hostile), rows)


@pytest.mark.parametrize(("below", "kinds"), [(0, set(Section)), (2**32, {Section.SQNS})])
def test_hostile_columns_are_bounded_and_verify_refuses_them(
    below: int, kinds: set[Section]
) -> None:
    rows = varied(below)
    image = file_of(rows)
    layout = decode(memoryview(image), "f")[0]
    right = everything(image, rows)
    for kind, (offset, length) in layout.sections.items():
        for at in range(offset, offset + length - 3, 4) if kind in kinds else ():
            for number in HOSTILE:
                hostile = bytearray(image)
                hostile[at : at + 4] = number.to_bytes(4, "little")
                forged = resealed(hostile)
                bounded(forged, rows)
                try:
                    Sst(forged, "f").verify()
                except Corruption:
                    continue
                # What no other column can contradict is a plain change of content.
                assert forged == image or kind in (
                    Section.SQNS, Section.FLAGS, Section.SIZES, Section.TIMES, Section.EXPIRIES,
                    Section.METAS, Section.META_ENDS,
                ) or everything(forged, rows) == right, (kind, at, number)  # fmt: skip


def test_prefixes_that_no_bucket_has_are_refused_before_anything_is_read() -> None:
    image = file_of([row for name in (b"", b"a\x00b", b"b") for row in numbered(3, name)])
    offset, length = decode(memoryview(image), "f")[0].sections[Section.PREFIXES]
    refused = 0
    for at in range(offset, offset + length):
        for byte in (0, 1, 255):
            hostile = bytearray(image)
            hostile[at] = byte
            sst = Sst(resealed(hostile), "f")
            try:
                sst.ledger_key(0)
            except Corruption:
                refused += 1
                continue
            assert all(prefix(*split(front)[:2]) == front for front in sst.fronts()), (at, byte)
    assert refused > 10


def test_a_hash_table_without_an_end_is_refused() -> None:
    image = bytearray(file_of(numbered(100)))
    offset, length = Sst(bytes(image), "f").layout.sections[Section.TABLE]
    image[offset : offset + length] = b"\xff\xff\xff\x01" * (length // 4)
    sst = Sst(resealed(image), "f")
    for find in (sst.find, Sst(resealed(image), "f").find):
        with pytest.raises(Corruption, match="hash table"):
            find(key(b"absent"), 0x3F)
    with pytest.raises(Corruption, match="hash table"):
        Sst(resealed(image), "f").ensure_whole()


def test_swapped_keys_are_found_by_verify() -> None:
    image = bytearray(file_of(numbered(100)))
    offset, _ = Sst(bytes(image), "f").layout.sections[Section.KEYS]
    first, second = image[offset : offset + 9], image[offset + 9 : offset + 18]
    image[offset : offset + 18] = second + first
    with pytest.raises(Corruption, match="order of the keys"):
        Sst(resealed(image), "f").verify()
