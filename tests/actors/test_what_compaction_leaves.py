"""Which files compaction, and what it shares with others, leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import pytest
from look import clock_ms
from one_thread import forget, one_thread
from one_thread import opened as opened_on_one_thread
from simdisk import SimDisk
from whole_store import Clock, flush, opened, rolled, settle

import octavo
from octavo.actors.compacting import compaction, journal_install
from octavo.actors.compacting.compaction import next_run
from octavo.actors.compacting.delete_pending import DeletePending
from octavo.actors.compacting.waste import Waste
from octavo.actors.inker_clerk import InkerClerk, Score
from octavo.actors.ledger_file import LedgerFile
from octavo.actors.open_files import OpenFiles
from octavo.files.door.disk import RealDisk
from octavo.files.messages import messages_of
from octavo.manifest.register import SnapshotRegister


def test_files_of_which_the_ledger_lacks_something_or_that_are_damaged_are_not_whole(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, roll_count=1 << 16) as store:
        clerk = store._running.inker_clerk.actor
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
            rolled(store)
            settle(store)
        assert len(clerk.sealed()) == 2
        assert clerk.whole() == ()
        flush(store)
        first, second = clerk.whole()
        clerk.damaged[first.name] = "damaged"
        assert clerk.whole() == (second,)


def test_what_it_replaced_goes_once_the_lease_of_a_snapshot_that_was_left_open_is_over(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with opened(tmp_path / "s", monotonic=clock, compact_every_seconds=None) as store:
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
        snapshot = store.snapshot(lease_seconds=60)
        store.compact()
        clerk = store._running.inker_clerk
        assert clerk.call(InkerClerk.sweep) > 0
        clock.now += 61
        assert clerk.call(InkerClerk.sweep) == 0
        snapshot.close()


def test_what_merges_replaced_beside_a_compaction_goes_with_its_end(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, compact_every_seconds=None) as store:
        penciller = store._running.penciller.actor
        with store._running.inker_clerk.actor.held():
            for value in range(4):
                store.put_many((b"%d" % n, b"%d" % value) for n in range(100))
                flush(store)
            assert penciller.delete_pending.waiting
        settle(store)
        named = {entry.name for entry in penciller.manifest.entries}
        assert {file.name for file in (tmp_path / "s/ledger").glob("*.sst")} == named


def test_a_run_ends_before_a_file_that_was_found_damaged_behind_its_score(tmp_path: Path) -> None:
    # It would be tried again and again.
    with opened(tmp_path / "s", roll_count=1 << 16, compact_every_seconds=None) as store:
        clerk = store._running.inker_clerk.actor
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
            rolled(store)
        flush(store)
        first, second = clerk.sealed()
        scores = {entry.name: Score(100.0, 0.0, 0.0) for entry in (first, second)}
        assert next_run(clerk, [first, second], scores, 0.0) == [first, second]
        clerk.damaged[second.name] = "damaged"
        assert next_run(clerk, [first, second], scores, 0.0) == [first]
        clerk.damaged[first.name] = "damaged"
        assert next_run(clerk, [first, second], scores, 0.0) == []


def test_of_files_without_deletes_none_is_compared_with_all_that_are_older(tmp_path: Path) -> None:
    # With thousands of files that took seconds, and minutes with tens of thousands.
    large = {"roll_size_bytes": 1 << 20, "compression": "none"}
    with opened(tmp_path / "s", **large, compact_every_seconds=None) as store:
        for number in range(12):
            store.put(b"%d" % number, bytes(1 << 19))
            rolled(store)
        flush(store)
        asked = InkerClerk.clean_below
        with patch.object(InkerClerk, "clean_below", autospec=True, side_effect=asked) as compared:
            store.compact()
        assert len(store._inker.manifest.entries) == 12
        assert compared.call_count == 1  # as the files are scored


def test_a_file_whose_deletion_was_broken_off_stands_in_the_way_of_no_other() -> None:
    files = [LedgerFile.start(RealDisk(), "s", name, OpenFiles()).actor for name in "abc"]
    gone: list[str] = []

    def no_memory_at_first(path: str) -> None:
        gone.append(path)
        if len(gone) == 1:
            raise MemoryError

    log = messages_of("octavo.test")
    pending = DeletePending(SnapshotRegister(Clock()), no_memory_at_first, log)
    pending.replaced += files
    pending.retire(1)
    with pytest.raises(MemoryError):
        pending.sweep()
    files[0].stop()
    assert pending.sweep() == 0
    assert gone == ["s/a", "s/b", "s/c"]


def test_a_compaction_that_finds_no_memory_to_show_its_files_leaves_all_as_it_was() -> None:
    def no_memory(*_: object) -> NoReturn:
        raise MemoryError

    disk = SimDisk()
    with one_thread("not shown") as pool:
        store = opened_on_one_thread(disk, clock_ms=clock_ms)
        for value in (b"old", b"new"):
            store.put_many((b"%02d" % n, value) for n in range(60))
            store._running.bookie.call(journal_install.rolled)
            pool.go_on()
        with patch.object(journal_install.JournalView, "of", no_memory), pytest.raises(MemoryError):
            store.compact()
        assert store.backup("/backup").sqn == store.last_sqn
        assert store.compact().records_dropped == 60
        assert store.backup("/backup").sqn == store.last_sqn
        assert dict(store.items()) == {b"%02d" % n: b"new" for n in range(60)}
        forget(store)


def test_a_trim_makes_of_what_it_gave_back_the_room_that_there_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with one_thread("no room"):  # nor is anything trimmed unasked
        store = opened_on_one_thread(SimDisk(), clock_ms=clock_ms, mode="head_only")
        bucket, settle, full = store.head_bucket(b""), compaction.settle, list[bool]()

        def no_room_at_first(clerk: InkerClerk) -> None:
            full.append(True)
            if len(full) == 1:
                raise octavo.StorageFull("no room")
            settle(clerk)

        bucket.put(b"1", b"1")
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "settle", no_room_at_first)
            with pytest.raises(octavo.StorageFull):
                compaction.trim(store._running.inker_clerk.actor)
        assert len(full) == 1
        settle(store._running.inker_clerk.actor)
        store._running.inker_clerk.actor.waiting_messages.clear()
        bucket.put(b"2", b"2")
        full.clear()
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "settle", no_room_at_first)
            assert compaction.trim(store._running.inker_clerk.actor) > 0
        assert store.stats()["persisted_sqn"] == store.last_sqn
        assert store.stats()["journal"]["sealed_files"] == 0
        assert [row.key for row in bucket.rows()] == [b"1", b"2"]
        forget(store)


@pytest.mark.parametrize("retention", [0, 60])
def test_what_others_put_beside_its_waste_stays(tmp_path: Path, retention: int) -> None:
    strangers = ["0-notes.txt", "f-0000000000000001-0000000000000002.cdb", f"{0:016x}-notes.txt"]
    (tmp_path / "s/waste").mkdir(parents=True)
    for name in strangers:
        (tmp_path / "s/waste" / name).write_text("mine")
    disk, clock = RealDisk(), Clock()
    waste = Waste(disk, f"{tmp_path}/s/waste", retention, lambda: int(clock.now * 1000))
    (tmp_path / "s/1.cdb").write_text("")
    waste.remove(f"{tmp_path}/s/1.cdb")
    clock.now += 61
    waste.sweep()
    assert sorted(disk.listdir(f"{tmp_path}/s/waste")) == sorted(strangers)
