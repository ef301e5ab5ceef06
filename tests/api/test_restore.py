"""restore: a backup as a store of its own, or as it was at some point."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cli_runs import document, output
from one_thread import one_thread, opened
from simdisk import SimDisk
from simfaults import SimCrash
from whole_store import flush, killed, rolled
from whole_store import opened as opened_small

import octavo
from octavo import restoring
from octavo.actors.keeping import restoring as restored
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import cdb
from octavo.store import Store


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with octavo.open(tmp_path / "s", roll_count=256, push_rows=100) as store:
        for n in range(700):
            store.put(b"%d" % (n % 100), b"%d" % n)
        store.backup(tmp_path / "b")
    return tmp_path / "b"


def at(sqn: int) -> dict[bytes, bytes]:
    return {b"%d" % (n % 100): b"%d" % n for n in range(sqn)}


@pytest.mark.parametrize("sqn", [0, 1, 99, 255, 256, 257, 512, 600, 699, 700, 10_000])
def test_a_state_is_restored_by_its_sqn(backup: Path, tmp_path: Path, sqn: int) -> None:
    done = octavo.restore(backup, tmp_path / "r", sqn=sqn)
    assert done.sqn == min(sqn, 700)
    assert [f"ends at sqn 700: what came up to {sqn}" in note for note in done.notes] == (
        [True] if sqn > 700 else []
    )
    with octavo.open(tmp_path / "r", create=False) as store:
        assert dict(store.items()) == at(min(sqn, 700))
        assert store.verify().ok
        assert store.put(b"new", b"v") > 700  # no sqn of what was cut off is given again
    assert octavo.restore(backup, tmp_path / "r2").sqn == 700  # the backup is as it was


def test_many_files_take_few_descriptors(tmp_path: Path) -> None:
    with opened_small(tmp_path / "s", compact_every_seconds=None) as store:
        for n in range(300):
            store.put(b"%d" % (n % 100), b"%d" % n)
            rolled(store)
    code = (
        "import octavo, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        f"print(octavo.restore({str(tmp_path / 's')!r}, {str(tmp_path / 'r')!r}, sqn=290).sqn)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == "290", done.stderr
    with octavo.open(tmp_path / "r", create=False) as store:
        assert dict(store.items()) == at(290)


def test_no_file_is_compared_with_all_others(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With thousands of files that was most of what a restore takes.
    compared = Mock(return_value=False)
    monkeypatch.setattr(restored.SourceFile, "__eq__", compared)
    octavo.restore(backup, tmp_path / "restored", sqn=600)
    assert not compared.called


def test_a_state_is_restored_by_its_moment(tmp_path: Path) -> None:
    now = [1_000_000]
    running = startup.start(
        str(tmp_path / "s"), Options(roll_count=256), RealDisk(), clock_ms=lambda: now[0]
    )
    with Store(running) as store:
        for n in range(600):
            now[0] = 1_000_000 + n
            store.delete(b"none")  # which asks the given clock
            store.put(b"k", b"%d" % n, metadata=b"m")
        store.backup(tmp_path / "b")
    done = octavo.restore(tmp_path / "b", tmp_path / "r", time=1_000_000 + 299)
    assert done.sqn == 600
    with octavo.open(tmp_path / "r") as copy:
        assert copy[b"k"] == b"299"
    moment = datetime.fromtimestamp(1_000.0, UTC)
    assert octavo.restore(tmp_path / "b", tmp_path / "r2", time=moment).sqn == 2


def stamped(path: Path, moments: list[int], **options: int) -> None:
    """A store of one put at each moment, of its number; backed up beside it."""
    clock = iter(moments)
    now = [moments[0]]
    with opened_small(path, clock_ms=lambda: now[0], **options) as store:
        for number, moment in enumerate(clock):
            now[0] = moment
            store.put(b"%d" % (number % 50), b"%d" % number)
        store.backup(path.with_suffix(".b"))


BACK = [*range(1000, 1600), *range(1200, 1700)]
"""A clock that is set back by 400 ms once; sqn 601 is the first one after."""


@pytest.mark.parametrize(
    ("moment", "sqn", "behind"),
    [
        (999, 0, 0), (1100, 101, 0), (1199, 200, 0), (1200, 201, 601), (1500, 501, 901),
        (1598, 599, 999), (1599, 1000, 0), (1650, 1051, 0), (5000, 1100, 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("roll", [256, 5000], ids=["sealed", "one file"])
def test_a_moment_ends_before_the_first_later_write_though_the_clock_went_back(
    tmp_path: Path, moment: int, sqn: int, behind: int, roll: int
) -> None:
    stamped(tmp_path / "s", BACK, roll_count=roll)
    done = octavo.restore(tmp_path / "s.b", tmp_path / "r", time=moment)
    assert done.sqn == sqn
    with octavo.open(tmp_path / "r") as store:
        assert dict(store.items()) == {b"%d" % (n % 50): b"%d" % n for n in range(sqn)}
    if behind:
        (note,) = done.notes
        assert f"sqn {sqn + 1} was written at" in note
        assert f"up to sqn {behind}," in note
        assert "set back" in note
    else:
        assert done.notes == ()
    assert octavo.restore(tmp_path / "s.b", tmp_path / "r2", time=moment, sqn=90).notes == ()


def test_compacted_files_tell_their_moments(tmp_path: Path) -> None:
    stamped(tmp_path / "s", BACK, roll_count=256)
    now = [1700]
    with opened_small(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        assert store.compact().records_dropped > 900
        for moment in (1710, 1640, 1720):
            now[0] = moment
            store.put(b"new", b"%d" % moment)
    done = octavo.restore(tmp_path / "s", tmp_path / "r", time=1700)
    assert (done.sqn, len(done.notes)) == (1100, 1)
    assert octavo.restore(tmp_path / "s", tmp_path / "r2", time=1715).sqn == 1102
    with pytest.raises(octavo.HistoryCompacted, match=r"of sqn 10\d\d \(sqn .* set back"):
        octavo.restore(tmp_path / "s", tmp_path / "r3", time=1640)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_moment_before_deletes_that_compaction_dropped_is_told(
    tmp_path: Path, again: bool
) -> None:
    now = [1000]
    with opened_small(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        store.put(b"kept", b"v")
        store.put(b"gone", b"v")
        now[0] = 2000
        store.delete(b"gone")
        assert store.compact().records_dropped == 2
        if again:
            now[0] = 1000
            store.put(b"other", b"v")
            assert store.compact().files_after == 1
    assert octavo.restore(tmp_path / "s", tmp_path / "r", time=2000).sqn == 3 + again
    with pytest.raises(octavo.HistoryCompacted, match=r"up to 1970-01-01T00:00:02\.000"):
        octavo.restore(tmp_path / "s", tmp_path / "r2", time=1999)
    assert not (tmp_path / "r2").exists()


def test_a_moment_before_a_dropped_write_of_a_clock_ahead_is_told(tmp_path: Path) -> None:
    now = [1000]
    with opened_small(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        for moment in (1000, 9000, 2000):
            now[0] = moment
            store.put(b"k", b"%d" % moment)
        store.compact()
    with pytest.raises(octavo.HistoryCompacted, match="name a later one with sqn="):
        octavo.restore(tmp_path / "s", tmp_path / "r", time=3000)
    assert octavo.restore(tmp_path / "s", tmp_path / "r", time=9000).sqn == 3


def test_a_damaged_record_tells_no_moment(tmp_path: Path) -> None:
    stamped(tmp_path / "s", BACK, roll_count=256)
    file = sorted((tmp_path / "s.b/journal").glob("*.cdb"))[0]
    raw = bytearray(file.read_bytes())
    raw[cdb.RECORDS_AT + 30] ^= 0xFF  # the first record's write time
    file.write_bytes(raw)
    assert octavo.restore(tmp_path / "s.b", tmp_path / "r", time=1400).sqn == 401
    with pytest.raises(octavo.Corruption, match=r"checksum of sqn 1, after which .* to be cut"):
        octavo.restore(tmp_path / "s.b", tmp_path / "r2", time=1100)


def test_impossible_moments_are_all_or_nothing(backup: Path, tmp_path: Path) -> None:
    assert octavo.restore(backup, tmp_path / "r", time=-1).sqn == 0
    assert octavo.restore(backup, tmp_path / "r2", time=10**30).sqn == 700


def test_a_store_that_was_closed_is_restored_with_what_is_not_sealed(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"v")
    octavo.restore(tmp_path / "s", tmp_path / "r")
    with octavo.open(tmp_path / "r") as copy:
        assert copy[b"k"] == b"v"


def test_a_journal_that_lost_its_end_is_not_restored_as_an_earlier_state(tmp_path: Path) -> None:
    """Found by the campaign ``corruption``, seed 20261122, case 1."""
    with opened_small(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"old") for n in range(10))
        store.put_many((b"%d" % n, b"new") for n in range(5))
        flush(store)
    [file] = (tmp_path / "s/journal").glob("*.log")
    whole = file.read_bytes().rstrip(b"\0")  # what stands behind the records is no part of them
    for left in (whole[:2048], whole[:-1], whole[:2048] + b"\xff" * (len(whole) - 2048)):
        file.write_bytes(left)
        for limit in (None, 15, 10_000):
            with pytest.raises(octavo.Corruption, match="its ledger goes up to 15"):
                octavo.restore(tmp_path / "s", tmp_path / "r", sqn=limit)
        assert not (tmp_path / "r").exists()
    file.write_bytes(whole[:-1])
    assert octavo.restore(tmp_path / "s", tmp_path / "r14", sqn=14).sqn == 14
    with octavo.open(tmp_path / "s") as store:
        assert store.stats()["notes"]
    octavo.restore(tmp_path / "s", tmp_path / "r")
    with octavo.open(tmp_path / "r") as copy:
        assert copy[b"3"] == b"new"


def test_what_is_not_whole_at_the_end_of_a_journal_is_noted(tmp_path: Path) -> None:
    with opened_small(tmp_path / "live") as store:
        store.put_many((b"%d" % n, b"v") for n in range(10))
        killed(store, tmp_path / "s")
    [file] = (tmp_path / "s/journal").glob("*.log")
    file.write_bytes(file.read_bytes()[:-1])
    done = octavo.restore(tmp_path / "s", tmp_path / "r")
    assert done.sqn == 9
    assert [note for note in done.notes if file.name in note and "torn tail" in note]
    assert b"torn tail" in output("restore", tmp_path / "s", tmp_path / "r2")


def test_a_cut_inside_a_batch_is_refused_and_says_where_it_may_be(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put(b"before", b"v")
        with store.batch() as batch:
            for n in range(5):
                batch.put("", b"%d" % n, b"v")
        store.backup(tmp_path / "b")
    with pytest.raises(octavo.Misuse, match="name 1, before it, or 6"):
        octavo.restore(tmp_path / "b", tmp_path / "r", sqn=3)
    assert not (tmp_path / "r").exists()
    assert octavo.restore(tmp_path / "b", tmp_path / "r", sqn=6).sqn == 6


def test_a_state_between_what_was_dropped_and_what_replaced_it_is_not_made_up(
    tmp_path: Path,
) -> None:
    with opened_small(tmp_path / "s", roll_count=256) as store:
        for n in range(300):
            store.put(b"a%d" % n, b"old")
        for n in range(300):
            store.put(b"b%d" % n, b"other")
        for n in range(300):
            store.put(b"a%d" % n, b"new")
        store.compact()
        assert store._inker.manifest.horizon == 300
        for n in range(300):
            store.put(b"c%d" % n, b"later")
        store.backup(tmp_path / "b")
    for sqn in (299, 300, 301, 600, 750, 899):
        with pytest.raises(octavo.HistoryCompacted, match=f"by sqn 900: .* not that of sqn {sqn}"):
            octavo.restore(tmp_path / "b", tmp_path / "r", sqn=sqn)
    new = {b"a%d" % n: b"new" for n in range(300)} | {b"b%d" % n: b"other" for n in range(300)}
    for sqn in (900, 901, 1100):
        octavo.restore(tmp_path / "b", tmp_path / f"r{sqn}", sqn=sqn)
        with octavo.open(tmp_path / f"r{sqn}") as copy:
            assert dict(copy.items()) == new | {b"c%d" % n: b"later" for n in range(sqn - 900)}
            assert copy.verify().ok


def test_files_that_were_only_put_together_keep_their_states(tmp_path: Path) -> None:
    size = {"roll_size_bytes": 1 << 20}
    with opened_small(tmp_path / "s", **size) as store:
        for n in range(600):
            store.put(b"a%d" % (n % 500), random.Random(n).randbytes(4000))
        assert store.compact().records_dropped == 100
        for n in range(3):
            store.put(b"b%d" % n, b"small")
            store.backup(tmp_path / "b")  # which rolls
        before = store.compact()
        assert (before.records_dropped, before.files_before - before.files_after) == (0, 2)
        assert store._inker.manifest.entries[-1].base_sqn == 601
    octavo.restore(tmp_path / "s", tmp_path / "r", sqn=601)
    with octavo.open(tmp_path / "r") as copy:
        assert len(list(copy.keys())) == 501
    with pytest.raises(octavo.HistoryCompacted, match="by sqn 600"):
        octavo.restore(tmp_path / "s", tmp_path / "r2", sqn=599)


def test_a_compacted_file_that_is_cut_says_of_which_states_it_is(tmp_path: Path) -> None:
    with opened_small(tmp_path / "s", roll_count=256) as store:
        for n in range(500):
            store.put(b"a%d" % (n % 100), b"%d" % n)
        store.compact()
        for n in range(100):
            store.put(b"b%d" % n, b"later")
        store.compact()  # the small files become one
        store.put(b"c", b"last")
        store.backup(tmp_path / "b")
    assert len(list((tmp_path / "b/journal").glob("*.cdb"))) == 2
    with pytest.raises(octavo.HistoryCompacted, match="by sqn 600"):
        octavo.restore(tmp_path / "b", tmp_path / "r", sqn=599)
    octavo.restore(tmp_path / "b", tmp_path / "r", sqn=600)
    with pytest.raises(octavo.HistoryCompacted, match="by sqn 600"):
        octavo.restore(tmp_path / "r", tmp_path / "r2", sqn=590)


def test_what_compaction_dropped_is_not_made_up(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", roll_count=256, push_rows=100) as store:
        for n in range(700):
            store.put(b"%d" % (n % 100), b"%d" % n)
        store.compact()
        store.backup(tmp_path / "b")
    with pytest.raises(octavo.HistoryCompacted, match="of sqn 300"):
        octavo.restore(tmp_path / "b", tmp_path / "r", sqn=300)
    octavo.restore(tmp_path / "b", tmp_path / "r")
    with octavo.open(tmp_path / "r") as copy:
        assert dict(copy.items()) == at(700)


@pytest.mark.usefixtures("small_reserve")
@pytest.mark.parametrize("mode", ["nothing", "random_subset", "names_reordered"])
@pytest.mark.parametrize("sqn", [None, 300])
def test_a_restore_that_is_cut_short_leaves_nothing_or_all(mode: str, sqn: int | None) -> None:
    crashes = 0
    while True:
        disk = SimDisk()
        with Store(startup.start("/s", Options(worker=False, roll_count=256), disk)) as store:
            for n in range(600):
                store.put(b"%d" % (n % 100), b"%d" % n)
            store.backup("/b")
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            restore_on(disk, "/b", "/r", sqn=sqn, time_ms=None, copy=False)
            break
        except SimCrash:
            left = disk.after_crash(mode, crashes)
        if not left.exists("/r/OCTAVO"):
            assert not left.exists("/r")
            restore_on(left, "/b", "/r", sqn=sqn, time_ms=None, copy=False)
        running = startup.start("/r", Options(worker=False), left)
        assert dict(Store(running).items()) == at(sqn or 600)
        shutdown.stop(running)
        crashes += 3
    assert crashes > 20


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_restore_that_finds_no_room_says_so_and_where(nth: int) -> None:
    disk = SimDisk()
    with one_thread(nth) as pool:
        store = opened(disk, "/b", clock_ms=lambda: 1)
        for number in range(300):  # a file that is sealed, and one to be cut
            store.put(b"%d" % number, b"value")
        pool.go_on()
        store.close()
    wanted = {"sqn": 280, "time_ms": None, "copy": False}
    disk.fail("write", nth, errno.ENOSPC, lasting=True)
    with pytest.raises(octavo.StorageFull, match=r"/r\.partial/"):
        restore_on(disk, "/b", "/r", **wanted)  # type: ignore[arg-type]
    assert disk.listdir("/") == ["b"]  # or the disk would stay full
    disk.heal()
    assert restore_on(disk, "/b", "/r", **wanted).sqn == 280  # type: ignore[arg-type]


def test_indexes_are_those_of_the_point_in_time(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"1", index={"n": 1})
        store.put(b"k", b"2", index={"n": 2})
        store.backup(tmp_path / "b")
    octavo.restore(tmp_path / "b", tmp_path / "r", sqn=1)
    with octavo.open(tmp_path / "r") as copy:
        assert list(copy.index("n").range()) == [(1, b"k")]


def test_a_restored_store_is_another_store(backup: Path, tmp_path: Path) -> None:
    octavo.restore(backup, tmp_path / "r")
    with octavo.open(tmp_path / "r") as store, pytest.raises(octavo.Misuse, match="another store"):
        store.backup(backup)


def test_bad_arguments_are_named(backup: Path, tmp_path: Path) -> None:
    for given, why in (
        ({"sqn": -1}, "sqn=-1"), ({"sqn": True}, "sqn=True"), ({"time": "now"}, "time='now'"),
        ({"time": datetime(2026, 1, 1)}, "time zone"),
    ):  # fmt: skip
        with pytest.raises(octavo.Misuse, match=why):
            octavo.restore(backup, tmp_path / "r", **given)  # type: ignore[arg-type]
    with pytest.raises(octavo.Misuse, match="no backup and no store"):
        octavo.restore(tmp_path / "none", tmp_path / "r")
    with pytest.raises(octavo.Misuse, match="other things in it"):
        octavo.restore(backup, tmp_path / "s")
    with pytest.raises(octavo.Misuse, match="inside the backup"):
        octavo.restore(backup, backup / "r")
    with octavo.open(backup), pytest.raises(octavo.StoreLocked):
        octavo.restore(backup, tmp_path / "r")


@pytest.mark.parametrize("whose", ["backup", "path"])
def test_the_directory_that_cannot_be_used_is_named(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    where = backup if whose == "backup" else tmp_path / "r"

    def refuse(*given: object, **more: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", f"{where}/LOCK")

    monkeypatch.setattr(restoring, "restore_on", refuse)
    with pytest.raises(octavo.Misuse, match=f"^{whose}='{where}' cannot be used: Perm"):
        octavo.restore(backup, tmp_path / "r")


def test_the_commands_back_up_and_restore(tmp_path: Path) -> None:
    output("put", tmp_path / "s", "k", "1")
    output("put", tmp_path / "s", "k", "2")
    assert document("backup", tmp_path / "s", tmp_path / "b", "--json")["sqn"] == 2
    assert b"sqn 2" in output("backup", tmp_path / "s", tmp_path / "b")
    told = document("restore", tmp_path / "b", tmp_path / "r", "--sqn", "1", "--json")
    assert told["sqn"] == 1
    assert output("get", tmp_path / "r", "k") == b"1"
    assert b"sqn 2" in output("restore", tmp_path / "b", tmp_path / "r2", "--time", "2100-01-01")


def test_a_backup_that_lacks_a_journal_file_says_which_and_what_to_do(
    backup: Path, tmp_path: Path
) -> None:
    files = sorted((backup / "journal").glob("*.cdb"))
    files[1].rename(tmp_path / "kept")
    with pytest.raises(octavo.Corruption, match=r"with sqns \d+ to \d+: bring it back"):
        octavo.restore(backup, tmp_path / "r")
    assert not (tmp_path / "r").exists()
    shutil.copytree(backup, tmp_path / "copy")
    assert octavo.repair(tmp_path / "copy", accept_missing=True).files.notes
    assert octavo.restore(tmp_path / "copy", tmp_path / "r3").sqn == 700
    (tmp_path / "kept").rename(files[1])
    assert octavo.restore(backup, tmp_path / "r").sqn == 700


def test_a_backup_without_a_folder_says_so_or_does_without(backup: Path, tmp_path: Path) -> None:
    (backup / "ledger").rename(tmp_path / "ledger")
    assert octavo.restore(backup, tmp_path / "r").sqn == 700
    with octavo.open(tmp_path / "r") as store:
        assert dict(store.items()) == at(700)
    (backup / "journal").rename(tmp_path / "journal")
    with pytest.raises(octavo.Corruption, match="journal at offset 0: the directory is missing"):
        octavo.restore(backup, tmp_path / "r2")


def test_somebody_elses_directory_in_the_way_is_left_alone(tmp_path: Path) -> None:
    with opened_small(tmp_path / "s") as store:
        store.put("k", b"v")
        store.backup(tmp_path / "b")
    mine = tmp_path / "r.partial" / "notes"
    mine.mkdir(parents=True)
    (mine / "mine.txt").write_text("not of a store")
    with pytest.raises(octavo.Misuse, match="'notes'"):
        octavo.restore(tmp_path / "b", tmp_path / "r")
    assert (mine / "mine.txt").read_text() == "not of a store"


def test_what_a_restore_left_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    with opened_small(tmp_path / "s") as store:
        store.put("k", b"v")
        store.backup(tmp_path / "b")
    shutil.copytree(tmp_path / "s", tmp_path / "r.partial")
    octavo.restore(tmp_path / "b", tmp_path / "r")
    assert not (tmp_path / "r.partial").exists()
    with opened_small(tmp_path / "r") as store:
        assert dict(store.items()) == {b"k": b"v"}


def test_two_restores_to_one_path_keep_apart(tmp_path: Path) -> None:
    with opened_small(tmp_path / "s") as store:
        store.put("k", b"v")
        store.backup(tmp_path / "b")
    (tmp_path / "r.partial").mkdir()
    other = RealDisk().lock(str(tmp_path / "r.partial" / "LOCK"))
    with pytest.raises(octavo.StoreLocked):
        octavo.restore(tmp_path / "b", tmp_path / "r")
    other.release()
    octavo.restore(tmp_path / "b", tmp_path / "r")
    with opened_small(tmp_path / "r") as store:
        assert dict(store.items()) == {b"k": b"v"}


@pytest.mark.parametrize("mode", ["standard", "head_only"])
def test_a_backup_after_an_unclean_stop_is_restored_though_numbers_were_skipped(
    tmp_path: Path, mode: str
) -> None:
    """What was in memory is saved, under the highest number that was skipped, and nothing is put
    before the backup."""

    def bucket(of: octavo.Store) -> Any:
        return of.bucket("b") if mode == "standard" else of.head_bucket("b")

    with opened_small(tmp_path / "s", mode=mode) as store:
        store.consumer("keeps the journal", since=0)
        for number in range(300):
            bucket(store).put(f"{number % 200:03}", b"%d" % number)
        image = killed(store, tmp_path / "image")
    with opened_small(image) as store:
        flush(store)
        if mode == "standard":
            store.compact()
        backed = store.backup(tmp_path / "b")
    assert backed.sqn > 1 << 20
    octavo.restore(tmp_path / "b", tmp_path / "r")
    with opened_small(tmp_path / "r") as store:
        assert store.stats()["notes"] == []
        assert len(bucket(store)) == 200
        assert [bucket(store).get(key) for key in ("000", "199")] == [b"200", b"199"]
        assert bucket(store).put("more", b"") > backed.sqn
        assert store.verify().ok


def test_an_io_error_is_one_of_ours(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(disk: RealDisk, source: str, target: str) -> None:
        raise OSError(errno.EIO, "Input/output error", target)

    monkeypatch.setattr(RealDisk, "link", fails)
    with pytest.raises(octavo.StorageFailed, match=f"{tmp_path}/r"):
        octavo.restore(backup, tmp_path / "r")


def test_of_a_restored_store_the_feed_begins_where_that_of_its_source_does(
    backup: Path, tmp_path: Path
) -> None:
    with octavo.open(backup) as store:
        assert store.compact().records_dropped
        horizon = store._inker.manifest.horizon
        store.put(b"more", b"v")
    octavo.restore(backup, tmp_path / "r")
    with octavo.open(tmp_path / "r") as restored:
        for since in (0, horizon - 1):
            with pytest.raises(octavo.HistoryCompacted):
                restored.changes(since)
        assert [change.key for change in restored.changes(horizon)][-1] == b"more"


def test_a_commit_behind_the_restored_state_is_made_again(tmp_path: Path) -> None:
    def brought(store: octavo.Store, job: str) -> bool:
        writer = StagedWriter(RealDisk(), store.path, job, "0-0", now_ms=1000)
        writer.put_many(b"", [job.encode()], [b"v"])
        writer.finish()
        return store.ingest(job, ["0-0"]).repeated

    with octavo.open(tmp_path / "s", worker=False) as store:
        assert [brought(store, job) for job in ("one", "two")] == [False, False]
    octavo.restore(tmp_path / "s", tmp_path / "r", sqn=1)
    with octavo.open(tmp_path / "r", worker=False) as restored:
        assert dict(restored.items()) == {b"one": b"v"}
        assert [brought(restored, job) for job in ("one", "two")] == [True, False]
        assert dict(restored.items()) == {b"one": b"v", b"two": b"v"}
