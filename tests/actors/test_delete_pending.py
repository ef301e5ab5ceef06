"""When a replaced ledger file may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, opened, settle

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.compacting import compaction, journal_install
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.journal_file import JournalFile
from octavo.actors.ledger_file import LedgerFile
from octavo.actors.penciller import LevelZero, Merge, Penciller
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest.ledger_manifest import LedgerManifest


def test_a_sweep_between_a_merge_and_the_bookies_new_view_takes_no_file(tmp_path: Path) -> None:
    # A snapshot that ended just then swept files which the next snapshot's view still named.
    with octavo.open(tmp_path / "s", push_rows=64, push_bytes=64 << 10, worker=False) as store:
        clerk = store._running.clerk.actor
        penciller = store._running.penciller
        told = clerk.on_change

        def swept_first(manifest: object, saved: object) -> int:
            if saved is None:
                penciller.call(Penciller.sweep)
                with store.snapshot() as snap:
                    counted.append(len(snap) == len(keys))
            return told(manifest, saved)

        keys: set[bytes] = set()
        counted: list[bool] = []
        clerk.on_change = swept_first
        for i in range(6):
            fresh = [b"%d" % (j * (i + 1)) for j in range(100)]
            keys.update(fresh)
            store.put_many((key, b"v") for key in fresh)
            store._running.bookie.call(Bookie.push)
            while penciller.call(Penciller.next_task) is not None:
                clerk.enter()  # serves its inbox: the work itself
                clerk.leave()
        assert store.stats()["ledger"]["rows_merged"] > 0
        assert counted
        assert all(counted)


def test_files_that_a_merge_replaces_stay_for_a_snapshot_of_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snaps: list[octavo.Snapshot] = []
    merge = PencillerClerk._merge

    def merged(clerk: PencillerClerk, task: Merge) -> None:
        snaps.append(store.snapshot())
        merge(clerk, task)

    monkeypatch.setattr(PencillerClerk, "_merge", merged)
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for version in range(4):
            store.put_many((b"%03d" % number, b"%d" % version) for number in range(100))
            flush(store)
        assert len(snaps) == 1
        store._running.penciller.call(Penciller.sweep)
        store._running.open_files._shrink(0)  # no map keeps what has no name any more
        with snaps[0] as snap:
            assert dict(snap.items()) == {b"%03d" % number: b"3" for number in range(100)}


@pytest.mark.parametrize("kind", [JournalFile, LedgerFile])
def test_a_file_that_is_deleted_just_as_a_get_maps_it_keeps_no_map(
    kind: type[JournalFile | LedgerFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The map would keep the room of the file until the store is closed.
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put_many((b"%d" % n, b"v" * 100) for n in range(1000))
        store.compact()
        view = store._bookie.view
        file = view.journal.files[0] if kind is JournalFile else view.ledger.entries[0].file
        file.forget_map()
        plain = kind.map_now

        def just_then(self: Any) -> object:
            mapped = plain(self)
            self.replace()
            self.delete(lambda path: None)
            return mapped

        monkeypatch.setattr(kind, "map_now", just_then)
        if isinstance(file, JournalFile):
            assert file.ensure_open()[0]
            assert file.reading[0] is None
        else:
            assert file.reader().rows == 1000
            assert file.sst is None
        assert file not in store._running.open_files._open


def test_a_file_that_is_deleted_just_as_a_get_opens_it_to_read_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put_many((b"%d" % n, b"v" * 100) for n in range(1000))
        store.compact()
        file = store._bookie.view.journal.files[0]
        plain = JournalFile.by_name

        def just_then(self: JournalFile, found: Any) -> object:
            opened = plain(self, found)
            self.replace()
            self.delete(lambda path: None)
            return opened

        monkeypatch.setattr(JournalFile, "by_name", just_then)
        assert len(store._running.open_files.read(file, 0, 10)) == 10
        assert file.pread is None


def too_late(*_: object) -> int:
    raise octavo.AskTimeout("Bookie did not get round to it within 60 s")


def test_what_a_merge_replaced_of_which_the_bookie_was_told_late_goes_then(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        clerk = store._running.clerk.actor
        told = clerk.on_change

        def late(manifest: LedgerManifest, saved: LevelZero | None) -> int:
            return told(manifest, saved) if saved else too_late()

        wanted = {b"%03d" % number: b"v" for number in range(100)}
        clerk.on_change = late
        for _ in range(4):  # the last of which are merged with all
            store.put_many(wanted.items())
            flush(store)
        clerk.on_change = told
        assert dict(store.items()) == wanted
        store.put_many(wanted.items())
        flush(store)
        assert dict(store.items()) == wanted
        named = {entry.name for entry in store._running.penciller.actor.manifest.entries}
        assert {file.name for file in (tmp_path / "s/ledger").glob("*.sst")} == named


def test_what_a_compaction_replaced_of_which_the_bookie_was_told_late_goes_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {b"%03d" % number: b"v" for number in range(100)}
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for _ in range(2):
            store.put_many(wanted.items())
        with monkeypatch.context() as patch:
            patch.setattr(journal_install, "journal_replaced", too_late)
            with pytest.raises(octavo.AskTimeout):
                store.compact()
        assert dict(store.items()) == wanted
        store.put_many(wanted.items())
        store.compact()
        assert dict(store.items()) == wanted
        settle(store)
        named = {entry.name for entry in store._running.inker.actor.manifest.entries}
        assert {file.name for file in (tmp_path / "s/journal").glob("*.cdb")} == named
        assert store.verify().ok


@pytest.mark.parametrize("install", ["install_level_zero", "install_merge"])
def test_what_a_job_made_goes_where_the_pencillers_turn_did_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: str
) -> None:
    wanted = {b"%03d" % number: b"v" for number in range(100)}
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for _ in range(3):
            store.put_many(wanted.items())
            flush(store)
        store.put_many(wanted.items())
        with monkeypatch.context() as patch:
            patch.setattr(Penciller, install, too_late)
            store._running.bookie.call(Bookie.push)
            clerk = store._running.clerk.actor
            while not clerk._waits_ms:  # it found that it has to wait
                clerk.enter()
                clerk.leave()
        named = {entry.name for entry in store._running.penciller.actor.manifest.entries}
        assert {file.name for file in (tmp_path / "s/ledger").glob("*.sst")} == named
        clerk.wake()
        settle(store)
        assert dict(store.items()) == wanted
        assert store.stats()["ledger"]["rows_merged"]
        assert store.verify().ok


def test_what_a_merge_replaced_of_which_the_bookie_was_told_late_stays_for_snapshots_in_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {b"%03d" % number: b"v" for number in range(100)}
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for _ in range(3):
            store.put_many(wanted.items())
            flush(store)
        clerk = store._running.clerk.actor
        told, settled = clerk.on_change, compaction.settle
        snaps: list[octavo.Snapshot] = []

        def late(manifest: LedgerManifest, saved: LevelZero | None) -> int:
            return told(manifest, saved) if saved else too_late()

        def beside(clerk_of: InkerClerk) -> None:
            """Others write, and a merge is done, just before the commit is."""
            settled(clerk_of)
            if not snaps:
                clerk.on_change = late
                store.put_many(wanted.items())
                flush(store)
                clerk.on_change = told
                snaps.append(store.snapshot())
                store.put(b"x", b"")

        writer = StagedWriter(RealDisk(), f"{tmp_path}/s", "job", "0", now_ms=1)
        writer.put_many(b"", [b"new"], [b"1"])
        writer.finish()
        monkeypatch.setattr(compaction, "settle", beside)
        store.ingest("job", ["0"])
        store._running.open_files._shrink(0)  # no map keeps what has no name any more
        with snaps[0] as snap:
            assert dict(snap.items()) == wanted
        assert dict(store.items()) == {**wanted, b"x": b"", b"new": b"1"}
