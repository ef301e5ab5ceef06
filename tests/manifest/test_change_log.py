"""The change log: what is appended is found again, in order, once; files come and go by rule."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logged_value import SMALL, LoggedValue, change, value_of
from simdisk import MODES, SimDisk

from octavo.files.door.disk import Disk, RealDisk
from octavo.files.errors import (
    Closed,
    Corruption,
    Fenced,
    Misuse,
    StorageFailed,
    StorageFull,
    UnsupportedFormat,
)
from octavo.manifest import log_file
from octavo.manifest.change_log import SNAPSHOT_ATTEMPTS, ChangeLog, Limits, recover
from octavo.manifest.log_file import CHANGE, HEADER_BYTES, SNAPSHOT, FileId

HERE = "/log"


@pytest.fixture(params=["real", "simulated"])
def disk_and_place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path / "log")
    return SimDisk(), HERE


@pytest.fixture
def sim() -> SimDisk:
    return SimDisk()


def put(disk: Disk, who: FileId, content: bytes) -> None:
    file = disk.create(f"{HERE}/{who.name}")
    file.write_all(content)
    file.sync()
    file.close()
    disk.sync_dir(HERE)


def file_of(who: FileId, begins: int, follows: int, *records: tuple[int, int, bytes]) -> bytes:
    """A file as a writer would leave it; records are (kind, sequence, payload)."""
    out = log_file.header(who, begins, follows, (0, 0))
    for kind, sequence, payload in records:
        out += log_file.record(who.seed, len(out), kind, who.epoch, sequence, payload)
    return out


def append_record(disk: Disk, who: FileId, kind: int, sequence: int, payload: bytes) -> None:
    """What a zombie, or a retry, adds to a file."""
    path = f"{HERE}/{who.name}"
    size = disk.size(path)
    file = disk.reopen(path, size)
    file.write_all(log_file.record(who.seed, size, kind, who.epoch, sequence, payload))
    file.sync()
    file.close()


# ---------------------------------------------------------------- the ordinary course


def test_an_absent_directory_is_an_empty_log(disk_and_place: tuple[Disk, str]) -> None:
    found = recover(*disk_and_place)
    assert (found.snapshot, found.changes, found.epoch) == (None, [], 0)
    assert (found.notes, found.damaged) == ([], False)


def test_what_was_appended_is_recovered_in_order(disk_and_place: tuple[Disk, str]) -> None:
    disk, place = disk_and_place
    log = ChangeLog.begin(disk, place, 1, b"snapshot")
    for payload in (b"a", b"", b"c" * 100_000):
        log.append(payload)
    log.close()
    found = recover(disk, place)
    assert found.snapshot == b"snapshot"
    assert found.changes == [b"a", b"", b"c" * 100_000]
    assert (found.epoch, found.notes, found.damaged) == (1, [], False)


def test_an_empty_snapshot_is_a_state(disk_and_place: tuple[Disk, str]) -> None:
    disk, place = disk_and_place
    ChangeLog.begin(disk, place, 1, b"").close()
    assert recover(disk, place).snapshot == b""


def test_changes_after_a_snapshot_follow_it(disk_and_place: tuple[Disk, str]) -> None:
    disk, place = disk_and_place
    log = ChangeLog.begin(disk, place, 1, b"one")
    log.append(b"a")
    log.snapshot(b"two")
    log.append(b"b")
    log.close()
    found = recover(disk, place)
    assert (found.snapshot, found.changes) == (b"two", [b"b"])


def test_a_new_epoch_begins_with_its_snapshot(sim: SimDisk) -> None:
    for number in range(5):
        value = LoggedValue(sim, HERE)
        assert value.value == list(range(number))
        assert value.found.epoch == number
        value.add(number)
        value.log.close()


def test_a_log_that_was_not_closed_is_recovered(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    value.add(2)
    assert value_of(recover(sim.after_kill(), HERE)) == [1, 2]


def test_a_file_is_named_by_epoch_and_number(sim: SimDisk) -> None:
    ChangeLog.begin(sim, HERE, 26, b"").close()
    assert sim.listdir(HERE) == ["000000000000001a-00000001.log"]


# ---------------------------------------------------------------- files come and go


def test_a_full_file_is_followed_by_another(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE, Limits(file_bytes=300, snapshot_changes=1 << 30))
    for number in range(40):
        value.add(number)
    assert len(sim.listdir(HERE)) > 5
    found = recover(sim, HERE)
    assert (value_of(found), found.notes) == (list(range(40)), [])


def test_a_full_file_is_synced_and_not_written_again(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE, Limits(file_bytes=300, snapshot_changes=1 << 30))
    while len(sim.listdir(HERE)) == 1:
        value.add(1)
    sizes = [sim.size(f"{HERE}/{name}") for name in sim.listdir(HERE)]
    assert sizes[1] == HEADER_BYTES + log_file.RECORD_BYTES + len(change(1))
    assert len(value_of(recover(sim.after_crash("nothing"), HERE))) == len(value.value)


def test_the_generation_before_leads_up_to_the_snapshot(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    value.snapshot()
    left = sim.after_crash("nothing")
    left.unlink(f"{HERE}/{left.listdir(HERE)[-1]}")
    assert value_of(recover(left, HERE)) == [1]


def test_two_generations_are_kept(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    for number in range(20):
        value.add(number)
        value.snapshot()
        assert len(sim.listdir(HERE)) == 2
    assert [log_file.id_of(name) for name in sim.listdir(HERE)] == [FileId(1, 20), FileId(1, 21)]


def test_begin_keeps_the_generation_before_it_and_no_older_one(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE, Limits(file_bytes=300, snapshot_changes=1 << 30))
    for number in range(20):
        value.add(number)
    last_generation = sim.listdir(HERE)
    value.log.close()
    LoggedValue(sim, HERE).log.close()
    assert sim.listdir(HERE)[:-1] == last_generation
    LoggedValue(sim, HERE).log.close()
    assert [log_file.id_of(name) for name in sim.listdir(HERE)] == [FileId(2, 1), FileId(3, 1)]


def test_files_of_another_kind_are_left_alone_and_noted(sim: SimDisk) -> None:
    LoggedValue(sim, HERE).log.close()
    for name in ("README", "1-1.log", "000000000000000A-00000001.log", "x.tmp"):
        sim.create(f"{HERE}/{name}").close()
    LoggedValue(sim, HERE).log.close()
    found = recover(sim, HERE)
    assert len(found.notes) == 4
    assert found.epoch == 2


def test_a_snapshot_is_due_after_many_changes_and_bytes(sim: SimDisk) -> None:
    limits = Limits(snapshot_changes=10, snapshot_bytes=1000)
    log = ChangeLog.begin(sim, HERE, 1, b"s", limits=limits)
    for _ in range(9):
        log.append(b"x" * 1000)
        assert not log.snapshot_due
    log.append(b"")
    assert log.snapshot_due
    log.snapshot(b"s")
    assert not log.snapshot_due


def test_a_snapshot_is_not_due_before_the_changes_are_as_large_as_the_last_one(
    sim: SimDisk,
) -> None:
    limits = Limits(snapshot_changes=10, snapshot_bytes=1000)
    log = ChangeLog.begin(sim, HERE, 1, b"s" * 50_000, limits=limits)
    written = 0
    while not log.snapshot_due:
        log.append(b"x" * 1000)
        written += 1
    assert written == 50_000 // (1000 + log_file.RECORD_BYTES) + 1


def test_recover_reads_one_generation_of_11000_files(sim: SimDisk) -> None:
    log = ChangeLog.begin(sim, HERE, 1, b"old", limits=Limits(file_bytes=1))
    for _ in range(11_000):
        log.append(b"x")
    log.close()
    again = ChangeLog.begin(sim, HERE, 2, b"new")
    again.append(b"y")
    sim.fail("read", 2, errno.EIO, lasting=True)
    found = recover(sim, HERE)
    assert (found.snapshot, found.changes) == (b"new", [b"y"])


# ---------------------------------------------------------------- writes that fail


@pytest.mark.parametrize("op_name", ["write", "sync"])
def test_after_a_failed_write_the_log_goes_on_in_a_new_file(sim: SimDisk, op_name: str) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    sim.fail(op_name, 1, errno.EIO)
    with pytest.raises(StorageFailed):
        value.add(2)
    value.add(3)
    assert len(sim.listdir(HERE)) == 2
    for mode in ("nothing", "all"):
        found = recover(sim.after_crash(mode), HERE)
        assert value_of(found) == [1, 3]
        assert not found.damaged


def test_what_was_reported_as_failed_is_taken_back(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    sim.fail("sync", 1, errno.EIO)
    with pytest.raises(StorageFailed):
        value.add(2)
    found = recover(sim.after_kill(), HERE)
    assert (value_of(found), found.notes) == ([1], [])


@pytest.mark.parametrize("op_name", ["write", "sync", "sync_dir"])
@pytest.mark.parametrize("begins", [False, True])
def test_no_kill_and_no_power_cut_brings_what_found_no_room_to_light(
    sim: SimDisk, op_name: str, begins: bool
) -> None:
    log = ChangeLog.begin(sim, HERE, 1, b"0", limits=Limits(file_bytes=1 if begins else 1 << 20))
    log.append(b"a")
    if op_name == "write":
        sim.shorten(1, 90)
        sim.fail("write", 2, errno.ENOSPC)
    else:
        sim.fail(op_name, 1, errno.ENOSPC)
    if op_name == "sync_dir" and not begins:
        return  # it needs none
    with pytest.raises(StorageFull):
        log.append(b"b" * 100)
    assert recover(sim.after_kill(), HERE).changes == [b"a"]
    for mode, seed in [(mode, seed) for mode in MODES for seed in range(20)]:
        assert recover(sim.after_crash(mode, seed), HERE).changes == [b"a"], (mode, seed)
    log.close()


def test_a_new_file_that_finds_no_room_is_taken_back_durably(
    sim: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may have come to the disk all the same."""
    log = ChangeLog.begin(sim, HERE, 1, b"0", limits=Limits(file_bytes=1))
    done: list[str] = []

    def noted(name: str) -> None:
        plain = getattr(SimDisk, name)

        def call(disk: SimDisk, path: str) -> object:
            done.append(name)
            return plain(disk, path)

        monkeypatch.setattr(SimDisk, name, call)

    for name in ("create", "unlink", "sync_dir"):
        noted(name)
    sim.fail("sync_dir", 1, errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.append(b"b")
    assert done == ["create", "sync_dir", "unlink", "sync_dir"]
    log.close()


@pytest.mark.parametrize("begins", [False, True], ids=["record", "file"])
def test_what_found_no_room_and_cannot_be_taken_back_may_come_to_light(
    sim: SimDisk, begins: bool
) -> None:
    """StorageFull would say that it never does: then the files that it names would be removed."""
    log = ChangeLog.begin(sim, HERE, 1, b"0", limits=Limits(file_bytes=1 if begins else 1 << 20))
    log.append(b"a")
    sim.fail("sync_dir" if begins else "sync", 1, errno.ENOSPC)
    sim.fail("unlink" if begins else "truncate", 1, errno.EIO)
    with pytest.raises(StorageFailed, match="what was written cannot be taken back"):
        log.append(b"b")
    log.close()
    assert recover(sim.after_kill(), HERE).changes == [b"a", b"b"]


def test_what_was_reported_as_failed_does_not_come_back(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    sim.fail("sync", 1, errno.EIO)
    sim.fail("truncate", 1, errno.EIO)  # so it cannot be taken back: its bytes stay
    with pytest.raises(StorageFailed):
        value.add(2)
    value.add(3)
    found = recover(sim, HERE)
    assert value_of(found) == [1, 3]
    assert "replaces 1 changes whose write had failed" in found.notes[0]
    assert not found.damaged


def test_a_short_write_that_ends_in_an_error_is_cut(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    sim.shorten(1, 10)
    sim.fail("write", 2, errno.ENOSPC)
    sim.fail("truncate", 1, errno.EIO)
    with pytest.raises(StorageFull):
        value.add(1)
    found = recover(sim, HERE)
    assert value_of(found) == []
    assert not found.damaged
    assert len(found.notes) == 1
    value.add(2)
    assert value_of(recover(sim, HERE)) == [2]


def test_close_lets_go_of_the_file(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    value.log.close()
    assert value_of(recover(sim.after_crash("nothing"), HERE)) == [1]
    assert sim.open_files() == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_is_storage_full(sim: SimDisk, code: int) -> None:
    value = LoggedValue(sim, HERE)
    sim.fail("write", 1, code)
    with pytest.raises(StorageFull):
        value.add(1)


def test_a_full_disk_stops_nothing_for_ever(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    sim.fail("write", 1, errno.ENOSPC, lasting=True)
    sim.fail("create", 1, errno.ENOSPC, lasting=True)
    for number in range(20):
        with pytest.raises(StorageFull):
            value.add(number)
    with pytest.raises(StorageFull):
        value.snapshot()
    sim.heal()
    value.add(1)
    value.snapshot()
    value.add(2)
    assert value_of(recover(sim, HERE)) == [1, 2]
    assert len(sim.listdir(HERE)) == 3  # the snapshot, and two files of the generation before


@pytest.mark.parametrize("op_name", ["create", "write", "sync", "sync_dir", "read"])
@pytest.mark.parametrize("times", range(1, SNAPSHOT_ATTEMPTS))
def test_a_snapshot_is_tried_again_under_the_next_name(
    sim: SimDisk, op_name: str, times: int
) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    for _ in range(times):
        sim.fail(op_name, 1, errno.EIO)
        if op_name == "read":
            sim.fail("read", 2, errno.EIO)
            sim.fail("read", 3, errno.EIO)
    value.snapshot()
    value.add(2)
    found = recover(sim.after_crash("nothing"), HERE)
    assert (found.snapshot, value_of(found)) == (b"[1]", [1, 2])


@pytest.mark.parametrize("op_name", ["create", "write", "sync", "sync_dir", "read"])
def test_a_snapshot_that_never_succeeds_leaves_the_log_as_it_was(
    sim: SimDisk, op_name: str
) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    sim.fail(op_name, 1, errno.EIO, lasting=True)
    with pytest.raises(StorageFailed):
        value.snapshot()
    sim.heal()
    assert value_of(recover(sim, HERE)) == [1]
    value.add(2)
    for mode in ("nothing", "all"):
        assert value_of(recover(sim.after_crash(mode), HERE)) == [1, 2]


def test_what_a_snapshot_that_failed_did_not_replace_goes_with_the_next_ones(sim: SimDisk) -> None:
    log = ChangeLog.begin(sim, HERE, 1, b"0")
    first = sim.listdir(HERE)
    log.append(b"a")
    sim.fail("create", 1, errno.EIO, lasting=True)
    with pytest.raises(StorageFailed):
        log.snapshot(b"1")
    sim.heal()
    log.snapshot(b"1")
    assert set(first) <= set(sim.listdir(HERE))
    log.snapshot(b"2")
    assert len(sim.listdir(HERE)) == 2
    assert not set(first) & set(sim.listdir(HERE))
    log.close()


@pytest.mark.parametrize("file_bytes", [1, 1 << 20], ids=["new file", "same file"])
def test_of_a_change_that_is_in_no_memory_is_wanted_to_say_so(
    sim: SimDisk, file_bytes: int
) -> None:
    log = ChangeLog.begin(sim, HERE, 1, b"s", limits=Limits(file_bytes))

    class Short(bytes):
        """Nobody has the memory to count it once it is in."""

        def __len__(self) -> int:
            if log.sequence:
                raise MemoryError
            return super().__len__()

    log.append(Short(b"first"))
    log.append(b"second")
    assert recover(sim.after_kill(), HERE).changes == [b"first", b"second"]


def test_a_snapshot_for_which_there_is_no_memory_is_put_off(sim: SimDisk) -> None:
    limits = Limits(snapshot_changes=1, snapshot_bytes=1)
    for number in range(1, 100):
        sim = SimDisk()
        log = ChangeLog.begin(sim, HERE, 1, b"s", limits=limits)
        log.append(b"change")
        calls = iter(range(1, 100))

        def at_call(name: str, number: int = number, calls: Iterator[int] = calls) -> None:
            if next(calls) == number:
                raise MemoryError(name)

        sim.at_call = at_call
        log.snapshot_if_due(lambda: b"s, change")
        sim.at_call = None
        log.append(b"next")
        found = recover(sim.after_crash("nothing"), HERE)
        assert not found.damaged
        assert found.changes[-1] == b"next"
        assert [found.snapshot, *found.changes[:-1]] in ([b"s", b"change"], [b"s, change"])
        if next(calls) <= number:
            assert number > 4
            return
    raise AssertionError("more calls than there can be")


def test_a_snapshot_counts_only_when_it_reads_back_equal(
    sim: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = LoggedValue(sim, HERE)
    read = SimDisk.read
    wrong = iter([True, True, False])

    def misread(disk: SimDisk, path: str, limit_bytes: int) -> bytes:
        found = read(disk, path, limit_bytes)
        return found[:-1] if next(wrong) else found

    monkeypatch.setattr(SimDisk, "read", misread)
    value.snapshot()
    assert value.log._numbers == 4
    monkeypatch.setattr(SimDisk, "read", lambda *_: b"")
    with pytest.raises(StorageFailed, match="reads back otherwise"):
        value.snapshot()


def test_an_interrupted_write_is_replaced_by_the_next_one(
    sim: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = LoggedValue(sim, HERE)

    def interrupted(_: SimDisk, *__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SimDisk, "_sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            value.add(1)
    value.add(2)
    assert value_of(recover(sim, HERE)) == [2]


# ---------------------------------------------------------------- duplicates and zombies


def test_a_change_that_is_there_twice_counts_once(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    value.add(2)
    for sequence, number in ((2, 2), (1, 1)):
        append_record(sim, FileId(1, 1), CHANGE, sequence, change(number))
    found = recover(sim, HERE)
    assert value_of(found) == [1, 2]
    assert len(found.notes) == 2
    assert not found.damaged


def test_a_zombie_changes_nothing(sim: SimDisk) -> None:
    zombie = LoggedValue(sim, HERE)
    zombie.add(1)
    owner = LoggedValue(sim, HERE)
    zombie.add(66)
    owner.add(2)
    zombie.snapshot()
    zombie.add(67)
    owner.snapshot()
    zombie.add(68)
    found = recover(sim, HERE)
    assert value_of(found) == [1, 2]
    assert not found.damaged


def test_a_zombie_changes_nothing_before_the_owners_first_change(sim: SimDisk) -> None:
    first = LoggedValue(sim, HERE)
    first.add(10)
    zombie = LoggedValue(sim, HERE)
    LoggedValue(sim, HERE)
    zombie.add(4)
    assert LoggedValue(sim, HERE).value == [10]


def test_nine_epochs_of_zombies_change_nothing(sim: SimDisk) -> None:
    logs: list[LoggedValue] = []
    for number in range(9):
        logs.append(LoggedValue(sim, HERE))
        for zombie in logs[:-1]:
            zombie.add(1000 + number)
            if number % 3 == 0:
                zombie.snapshot()
        logs[-1].add(number)
    assert value_of(recover(sim, HERE)) == list(range(9))


def test_a_zombie_changes_nothing_even_where_the_barrier_is_damaged(sim: SimDisk) -> None:
    zombie = LoggedValue(sim, HERE)
    zombie.add(1)
    owner = LoggedValue(sim, HERE)
    owner.add(2)
    zombie.add(66)
    name = FileId(2, 1).name
    content = bytearray(sim.files()[f"{HERE}/{name}"])
    content[HEADER_BYTES + 40] ^= 1
    sim.unlink(f"{HERE}/{name}")
    put(sim, FileId(2, 1), bytes(content))
    found = recover(sim, HERE)
    assert value_of(found) == [1]
    assert found.damaged
    assert any("after its successor began" in note for note in found.notes)


def test_an_epoch_that_died_before_its_barrier_leaves_no_trace(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    whole = file_of(FileId(2, 1), SNAPSHOT, 0, (SNAPSHOT, 0, b"[7]"))
    put(sim, FileId(2, 1), whole[:-5])
    put(sim, FileId(2, 2), b"")
    value.add(2)
    found = recover(sim, HERE)
    assert value_of(found) == [1, 2]
    assert found.epoch == 2
    assert not found.damaged
    assert LoggedValue(sim, HERE).log.epoch == 3


def test_begin_refuses_an_epoch_that_is_not_the_highest(sim: SimDisk) -> None:
    ChangeLog.begin(sim, HERE, 5, b"").close()
    for epoch in (1, 4, 5):
        with pytest.raises(Fenced):
            ChangeLog.begin(sim, HERE, epoch, b"")


def test_two_writers_of_one_epoch_are_told(sim: SimDisk) -> None:
    log = ChangeLog.begin(sim, HERE, 1, b"")
    put(sim, FileId(1, 2), b"another writer's")
    with pytest.raises(Fenced):
        log.snapshot(b"")


# ---------------------------------------------------------------- what is whole but wrong


def test_a_newer_version_is_refused_by_name(sim: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    sim.mkdir(HERE)
    with monkeypatch.context() as patched:
        patched.setattr(log_file, "VERSION", 2)
        content = file_of(FileId(1, 1), SNAPSHOT, 0, (SNAPSHOT, 0, b""))
    put(sim, FileId(1, 1), content)
    with pytest.raises(UnsupportedFormat, match=r"0001-00000001.log.*version 2"):
        recover(sim, HERE)


@pytest.mark.parametrize("kind", [0, 3, 255])
def test_a_record_of_unknown_kind_is_refused_by_name(sim: SimDisk, kind: int) -> None:
    LoggedValue(sim, HERE).log.close()
    append_record(sim, FileId(1, 1), kind, 1, b"")
    with pytest.raises(UnsupportedFormat, match=rf"0001-00000001.log at offset \d+.*kind {kind}"):
        recover(sim, HERE)


def test_whole_records_with_a_gap_between_them_stop_the_reading(sim: SimDisk) -> None:
    LoggedValue(sim, HERE).log.close()
    append_record(sim, FileId(1, 1), CHANGE, 2, change(2))
    with pytest.raises(Corruption, match="not the next change: expected 1, found 2"):
        recover(sim, HERE)


def test_a_file_under_anothers_name_is_not_taken_for_it(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    content = sim.files()[f"{HERE}/{FileId(1, 1).name}"]
    put(sim, FileId(2, 1), content)
    found = recover(sim, HERE)
    assert value_of(found) == [1]
    assert found.damaged


def test_a_record_moved_within_its_file_is_not_taken_for_one(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    value.add(2)
    content = sim.files()[f"{HERE}/{FileId(1, 1).name}"]
    length = log_file.RECORD_BYTES + len(change(1))
    sim.unlink(f"{HERE}/{FileId(1, 1).name}")
    put(sim, FileId(1, 1), content[:-length] + content[-2 * length : -length])
    found = recover(sim, HERE)
    assert value_of(found) == [1]
    assert found.damaged


def test_a_file_that_is_too_large_is_not_read(
    sim: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    put(sim, FileId(2, 1), bytes(5000))
    monkeypatch.setattr("octavo.manifest.log_history.MAX_FILE_BYTES", 4096)
    found = recover(sim, HERE)
    assert value_of(found) == [1]
    assert "too large" in found.notes[0]


def test_a_directory_under_a_files_name_is_passed_over(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    sim.mkdir(f"{HERE}/{FileId(2, 1).name}")
    found = recover(sim, HERE)
    assert value_of(found) == [1]
    assert found.damaged


def test_a_symbolic_link_under_a_files_name_is_passed_over(tmp_path: Path) -> None:
    disk, place = RealDisk(), str(tmp_path)
    value = LoggedValue(disk, place)
    value.add(1)
    value.log.close()
    (tmp_path / FileId(2, 1).name).symlink_to(tmp_path / FileId(1, 1).name)
    found = recover(disk, place)
    assert value_of(found) == [1]
    assert "symbolic link" in found.notes[0]


def test_a_read_error_is_tried_again_and_then_raised(sim: SimDisk) -> None:
    value = LoggedValue(sim, HERE)
    value.add(1)
    sim.fail("read", 1, errno.EIO)
    assert value_of(recover(sim, HERE)) == [1]
    sim.fail("read", 1, errno.EIO, lasting=True)
    with pytest.raises(StorageFailed, match="cannot be read"):
        recover(sim, HERE)


# ---------------------------------------------------------------- misuse


def test_a_closed_log_refuses_everything_but_close(sim: SimDisk) -> None:
    log = ChangeLog.begin(sim, HERE, 1, b"")
    log.close()
    log.close()
    calls: list[Callable[[], None]] = [
        lambda: log.append(b""),
        lambda: log.snapshot(b""),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()


def test_epoch_zero_is_refused(sim: SimDisk) -> None:
    with pytest.raises(Misuse, match="epoch=0"):
        ChangeLog.begin(sim, HERE, 0, b"")


def test_a_payload_that_is_too_large_is_refused(
    sim: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.manifest.change_log.MAX_PAYLOAD_BYTES", 10)
    log = ChangeLog.begin(sim, HERE, 1, b"", limits=SMALL)
    with pytest.raises(Misuse, match="payload of 11 bytes"):
        log.append(bytes(11))
    log.append(bytes(10))


def test_a_first_snapshot_that_is_too_large_is_refused_before_anything_is_written(
    sim: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ChangeLog.begin(sim, HERE, 1, b"old").close()
    before = sim.files()
    monkeypatch.setattr("octavo.manifest.change_log.MAX_PAYLOAD_BYTES", 10)
    with pytest.raises(Misuse, match="payload of 11 bytes"):
        ChangeLog.begin(sim, HERE, 2, bytes(11))
    assert sim.files() == before
