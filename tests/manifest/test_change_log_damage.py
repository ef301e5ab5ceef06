"""A damaged change log gives the state it had, or an earlier one and says so, or refuses."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_value import LoggedValue, value_of
from simdisk import SimDisk

from octavo.files.errors import Corruption, StorageFailed, UnsupportedFormat
from octavo.manifest.change_log import Limits, Recovered, recover
from octavo.manifest.log_file import HEADER_BYTES, id_of, parse

HERE = "/log"
Files = dict[str, bytes]


def written() -> tuple[Files, list[int]]:
    """Files of a log with two generations, each of several files, and the value in it."""
    disk = SimDisk()
    limits = Limits(file_bytes=320, snapshot_changes=1 << 30)
    first = LoggedValue(disk, HERE, limits)
    for number in range(3):
        first.add(number)
    first.log.close()
    value = LoggedValue(disk, HERE, limits)
    for number in range(3, 10):
        value.add(number)
    value.snapshot()
    for number in range(10, 14):
        value.add(number)
    disk.fail("sync", 1, errno.EIO)
    disk.fail("truncate", 1, errno.EIO)
    with pytest.raises(StorageFailed):
        value.add(99)
    for number in range(14, 22):
        value.add(number)
    value.log.close()
    files = {path.rpartition("/")[2]: content for path, content in disk.files().items()}
    assert len(files) == 5
    return files, value.value


FILES, VALUE = written()
NEWEST = max(FILES)
CLEAN_NOTES = 1  # of the write that failed


def disk_with(files: Files) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(HERE)
    for name, content in files.items():
        file = disk.create(f"{HERE}/{name}")
        file.write_all(content)
        file.close()
    return disk


def recovered(files: Files) -> Recovered | None:
    """None: it was refused by name."""
    try:
        return recover(disk_with(files), HERE)
    except (Corruption, UnsupportedFormat) as refused:
        if ".log" not in str(refused):
            raise
        return None


def is_prefix(found: Recovered) -> bool:
    value = value_of(found)
    return value == VALUE[: len(value)]


def record_starts(name: str) -> set[int]:
    """Where a cut leaves no trace: between records, and nothing but a header."""
    who = id_of(name)
    assert who is not None
    file = parse(who, name, FILES[name])
    return {record.offset for record in file.records} | {len(FILES[name])}


def test_undamaged_it_is_recovered_whole() -> None:
    found = recover(disk_with(FILES), HERE)
    assert value_of(found) == VALUE
    assert (found.damaged, len(found.notes)) == (False, CLEAN_NOTES)


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_harmless_or_told(name: str, mask: int) -> None:
    for at in range(len(FILES[name])):
        content = bytearray(FILES[name])
        content[at] ^= mask
        found = recovered({**FILES, name: bytes(content)})
        if found is None:
            continue
        assert is_prefix(found), at
        if value_of(found) != VALUE:
            assert found.damaged, at
            assert len(found.notes) > CLEAN_NOTES, at


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_cut_is_harmless_or_told(name: str) -> None:
    silent = record_starts(name)
    for length in range(len(FILES[name]) + 1):
        found = recovered({**FILES, name: FILES[name][:length]})
        assert found is not None
        assert is_prefix(found), length
        if value_of(found) != VALUE:
            assert name == NEWEST or found.damaged, length
            assert len(found.notes) > CLEAN_NOTES or length in silent, length


def test_a_cut_in_the_newest_file_is_a_torn_tail_and_no_damage() -> None:
    for length in range(len(FILES[NEWEST])):
        found = recovered({**FILES, NEWEST: FILES[NEWEST][:length]})
        assert found is not None
        assert not found.damaged


def test_every_torn_tail_keeps_all_records_before_it() -> None:
    disk = SimDisk()
    value = LoggedValue(disk, HERE)
    ends = [disk.size(f"{HERE}/{disk.listdir(HERE)[0]}")]
    for number in range(10):
        value.add(number, padding=number * 7)
        ends.append(disk.size(f"{HERE}/{disk.listdir(HERE)[0]}"))
    [(path, content)] = disk.files().items()
    name = path.rpartition("/")[2]
    for length in range(ends[0], len(content) + 1):
        found = recover(disk_with({name: content[:length]}), HERE)
        assert len(value_of(found)) == sum(end <= length for end in ends[1:])
        assert bool(found.notes) == (length not in ends)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_that_is_missing_is_harmless_or_told(name: str) -> None:
    found = recovered({other: content for other, content in FILES.items() if other != name})
    assert found is not None
    assert is_prefix(found)
    if name != NEWEST and value_of(found) != VALUE:
        assert found.damaged


@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"OcR1"])
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_of_rubbish_is_harmless_or_told(name: str, filler: bytes) -> None:
    length = len(FILES[name])
    found = recovered({**FILES, name: (filler * length)[:length]})
    assert found is not None
    assert is_prefix(found)
    assert value_of(found) == VALUE or len(found.notes) > CLEAN_NOTES


@pytest.mark.parametrize("content", [b"", bytes(4096)], ids=["empty", "zeros"])
def test_an_empty_newest_snapshot_falls_back_to_the_one_before(content: bytes) -> None:
    disk = SimDisk()
    value = LoggedValue(disk, HERE)
    for number in range(5):
        value.add(number)
    value.snapshot()
    value.log.close()
    files = {path.rpartition("/")[2]: held for path, held in disk.files().items()}
    found = recovered({**files, max(files): content})
    assert found is not None
    assert value_of(found) == [0, 1, 2, 3, 4]
    assert found.notes
    assert not found.damaged


def test_a_damaged_snapshot_takes_no_change_with_it() -> None:
    name = sorted(FILES)[-3]
    content = bytearray(FILES[name])
    content[HEADER_BYTES + 33] ^= 0x10
    found = recovered({**FILES, name: bytes(content)})
    assert found is not None
    assert value_of(found) == VALUE
    assert (found.damaged, len(found.notes)) == (False, CLEAN_NOTES + 1)


def test_sectors_of_zeros_in_the_middle_are_damage_where_whole_records_follow() -> None:
    disk = SimDisk()
    value = LoggedValue(disk, HERE)
    for number in range(100):
        value.add(number)
    [(path, content)] = disk.files().items()
    name = path.rpartition("/")[2]
    holed = content[:512] + bytes(512) + content[1024:]
    found = recover(disk_with({name: holed}), HERE)
    assert value_of(found) == list(range(len(value_of(found))))
    assert 0 < len(value_of(found)) < 100
    assert found.damaged


def test_after_damage_the_log_goes_on_from_what_was_recovered() -> None:
    name = sorted(FILES)[-2]
    content = bytearray(FILES[name])
    content[HEADER_BYTES + 40] ^= 1
    disk = disk_with({**FILES, name: bytes(content)})
    value = LoggedValue(disk, HERE)
    assert value.found.damaged
    value.add(1000)
    found = recover(disk, HERE)
    assert value_of(found) == value.value
    assert (found.damaged, found.notes) == (False, [])


def test_all_damaged_is_no_state_and_damage() -> None:
    found = recovered({name: b"\xff" * len(held) for name, held in FILES.items()})
    assert found is not None
    assert (found.snapshot, found.changes, found.damaged) == (None, [], True)
    assert found.epoch == 2


def test_magic_numbers_by_the_thousand_cost_no_time() -> None:
    found = recovered({**FILES, NEWEST: b"OcR1" * 500_000})
    assert found is not None
    assert is_prefix(found)
    assert found.damaged


names = st.sampled_from(sorted(FILES))


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.data())
def test_spliced_files_are_harmless_or_told(data: st.DataObject) -> None:
    files = dict(FILES)
    for _ in range(data.draw(st.integers(1, 3))):
        source, target = FILES[data.draw(names)], data.draw(names)
        content = bytearray(files[target])
        at = data.draw(st.integers(0, len(content)))
        start = data.draw(st.integers(0, len(source)))
        length = data.draw(st.integers(0, 200))
        if data.draw(st.booleans()):
            content[at : at + length] = source[start : start + length]
        else:
            content[at:at] = source[start : start + length]
        files[target] = bytes(content)
    found = recovered(files)
    if found is not None:
        assert is_prefix(found)
        assert value_of(found) == VALUE or found.notes
