"""Reading and saving a journal file in the moment in which it is sealed, and so renamed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from whole_store import active_file, killed, no_hang, opened, rolled, settle

import octavo
from octavo.actors import journal_file
from octavo.actors.bookie import Bookie
from octavo.actors.inker import Inker
from octavo.actors.worker import WorkerDied
from octavo.files.door.disk import RealDisk
from octavo.files.door.open_file import RealFile
from octavo.files.journal.sealed_records import file_records
from octavo.manifest.journal_manifest import JournalEntry


def unsynced(_: RealFile) -> None:
    raise OSError(errno.EIO, "Input/output error")


@contextmanager
def renamed_but_not_told(store: octavo.Store) -> Iterator[None]:
    """A rolled file has its sealed name on disk, and its actor does not know it yet."""
    file = store._inker.active
    assert file is not None
    file.enter()  # so the sealing waits
    try:
        rolled(store)
        path = Path(file.path)
        path.rename(path.with_suffix(".cdb"))
        file.forget_map()
        yield
        path.with_suffix(".cdb").rename(path)
    finally:
        file.leave()


def test_a_file_is_read_while_it_gets_its_sealed_name(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        expected = {b"%03d" % i: b"value %d" % i for i in range(200)}
        store.put_many(expected)
        with store.snapshot() as snap, renamed_but_not_told(store):
            assert {key: store.get(key) for key in expected} == expected
            assert dict(snap.items()) == expected
        settle(store)
        assert dict(store.items()) == expected


def test_level_zero_is_saved_while_its_file_gets_its_sealed_name(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", roll_count=4096, push_rows=4096) as store:
        expected = {b"%03d" % i: b"value %d" % i for i in range(200)}
        store.put_many(expected)
        with renamed_but_not_told(store):
            store._running.bookie.call(Bookie.push)
            for actor in (store._running.penciller.actor, store._running.clerk.actor):
                actor.enter()
                actor.leave()
            assert store.stats()["persisted_sqn"] == 200
        settle(store)
        assert store.stats()["journal"]["sealed_files"] == 1
        assert dict(store.items()) == expected


def test_a_sealing_that_ctrl_c_cuts_short_at_its_end_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {b"%03d" % i: b"value %d" % i for i in range(200)}
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        store.put_many(expected)
        file = store._inker.active
        assert file is not None

        def interrupted(*_: object) -> JournalEntry:
            raise KeyboardInterrupt

        file.enter()  # so that nobody else seals it
        try:
            rolled(store)
            with monkeypatch.context() as patched:
                patched.setattr(journal_file, "JournalEntry", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    file.seal_now(store._inker.runner)
        finally:
            file.leave()
        settle(store)
        assert store.stats()["journal"]["sealed_files"] == 1
        assert dict(store.items()) == expected


def test_behind_a_sealing_that_finds_no_memory_at_its_end_files_are_sealed_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = RealFile.close

    def short(closed: RealFile) -> None:
        if closed is written:
            raise MemoryError
        close(closed)

    expected = {b"%03d" % i: b"value %d" % i for i in range(200)}
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        store.put_many(expected)
        file = store._inker.active
        assert file is not None
        written = file.file
        file.enter()  # so that nobody else seals it
        try:
            rolled(store)
            with monkeypatch.context() as patched:
                patched.setattr(RealFile, "close", short)
                with pytest.raises(MemoryError):
                    file.seal_now(store._inker.runner)
        finally:
            file.leave()
        store.put(b"later", b"")
        rolled(store)
        settle(store)
        assert not store._inker.unsealed
        assert store.stats()["journal"]["sealed_files"] == 2
        assert dict(store.items()) == {**expected, b"later": b""}


def test_of_files_that_were_not_sealed_as_the_store_closed_only_the_last_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> JournalEntry:
        raise octavo.StorageFull("no room for the tables")

    expected = {}
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        monkeypatch.setattr(journal_file.JournalFile, "seal_now", no_room)
        for turn in range(3):
            expected |= {b"%d-%03d" % (turn, i): b"value %d" % i for i in range(200)}
            store.put_many(expected)
            if turn < 2:
                rolled(store)
    monkeypatch.undo()
    assert len(list((tmp_path / "s/journal").glob("*.log"))) == 3
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        assert store._inker.last_sqn + 1 == store.put(b"later", b"")
        settle(store)
        assert store.stats()["journal"]["sealed_files"] == 2
        assert dict(store.items()) == {**expected, b"later": b""}
    assert len(list((tmp_path / "s/journal").glob("*.log"))) == 1


def test_a_sealing_that_is_told_twice_brings_no_compacted_file_back(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        for _ in range(2):
            store.put_many({b"%03d" % i: b"value %d" % i for i in range(200)})
        file = store._inker.active
        assert file is not None
        rolled(store)
        settle(store)
        entry = file.entry
        assert entry is not None
        assert store.compact().records_dropped == 200
        manifest = store._inker.manifest
        store._inker.actor_ref.call(Inker.sealed, file, entry)
        assert store._inker.manifest is manifest
        assert not store._inker._sealing


def test_a_sealing_that_fails_as_nobody_foresaw_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        store.put(b"a", b"1")
        runner = store._inker.runner
        run, failures = runner.run, [ImportError("a module in C may be loaded once")]

        def failing(job: str, *blobs: bytes, **arguments: object) -> dict[str, object]:
            if job == "seal" and failures:
                raise failures.pop()
            return run(job, *blobs, **arguments)

        runner.run = failing  # type: ignore[method-assign]
        file = store._inker.active
        assert file is not None
        rolled(store)
        for actor in (store._inker, file, store._inker):
            actor.answer(None)
        assert not failures
        assert "a module in C" in caplog.text
        store.put(b"b", b"2")
        rolled(store)
        settle(store)
        assert store.stats()["journal"]["sealed_files"] == 2


def test_a_sealing_whose_worker_was_killed_is_tried_again_only_once_a_sync_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it was killed in an fsync that failed, only who had the file open before is told of it."""
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        store.put(b"a", b"1", sync=True)
        runner = store._inker.runner
        run, sealed = runner.run, 0
        file = store._inker.active
        assert file is not None

        def killed_once(job: str, *blobs: bytes, **arguments: object) -> dict[str, object]:
            nonlocal sealed
            if job == "seal" and not sealed:
                sealed = 1
                monkeypatch.setattr(RealFile, "sync", unsynced)
                raise WorkerDied("the worker process was killed")
            sealed += job == "seal"
            return run(job, *blobs, **arguments)

        runner.run = killed_once
        rolled(store)
        for actor in (store._inker, file, store._inker):
            actor.answer(None)
        assert sealed == 1
        store._inker.actor_ref.call(Inker.seal_next)  # as the next roll does
        for actor in (file, store._inker):
            actor.answer(None)
        with pytest.raises(octavo.StorageFailed, match="fsync failed"):
            store.put(b"b", b"2")
        assert sealed == 1
        assert store[b"a"] == b"1"
        with pytest.raises(octavo.StorageFailed):
            store.close()
    monkeypatch.undo()
    with opened(tmp_path / "s", roll_count=4096) as store:
        assert store[b"a"] == b"1"
        assert store.verify().ok


@pytest.mark.parametrize("cut_short", [KeyboardInterrupt(), WorkerDied("it was killed")], ids=repr)
def test_a_sealing_that_was_cut_short_is_believed_by_nobody_before_a_sync_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_short: BaseException
) -> None:
    """Ctrl-C, too, has the worker killed."""
    with no_hang(), opened(tmp_path / "s", roll_count=4096) as store:
        store.put(b"a", b"1", sync=True)
        runner, file = store._inker.runner, store._inker.active
        assert file is not None
        run, sealings = runner.run, 0

        def killed(job: str, *blobs: bytes, **arguments: object) -> dict[str, object]:
            nonlocal sealings
            sealings += job == "seal"
            if job == "seal" and sealings == 1:
                raise cut_short
            return run(job, *blobs, **arguments)

        runner.run = killed  # type: ignore[method-assign]
        file.enter()  # so that nobody else seals it
        try:
            rolled(store)
            with pytest.raises(type(cut_short)):
                file.seal_now(runner)
            with monkeypatch.context() as patched:
                patched.setattr(RealFile, "sync", unsynced)
                with pytest.raises(octavo.StorageFailed, match="fsync failed"):
                    file.seal_now(runner)
        finally:
            file.leave()
        assert sealings == 1
        with pytest.raises(octavo.StorageFailed):
            store.close()
    with opened(tmp_path / "s", roll_count=4096) as store:
        assert store[b"a"] == b"1"
        assert store.verify().ok


def test_a_store_whose_worker_was_killed_as_it_closed_is_closed_only_once_a_sync_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {b"%05d" % n: b"v" * 100 for n in range(20_000)}
    with no_hang(), opened(tmp_path / "s", roll_count=1 << 20) as store:
        store.put_many(wanted)
        store.sync()
        runner = store._inker.runner
        run = runner.run

        def killed(job: str, *blobs: bytes, **arguments: object) -> dict[str, object]:
            if job != "seal":
                return run(job, *blobs, **arguments)
            monkeypatch.setattr(RealFile, "sync", unsynced)
            raise WorkerDied("the worker process was killed")

        runner.run = killed  # type: ignore[method-assign]
        with pytest.raises(octavo.StorageFailed, match="fsync failed"):
            store.close()
    monkeypatch.undo()
    with opened(tmp_path / "s", roll_count=1 << 20) as store:
        assert dict(store) == wanted
        assert store.verify().ok


@pytest.mark.parametrize("sealed", [False, True], ids=["being written", "sealed"])
def test_a_number_below_a_files_first_is_never_counted_from_its_end(
    tmp_path: Path, sealed: bool
) -> None:
    with opened(tmp_path / "s", roll_count=4096) as store:
        store.put_many((b"%03d" % i, b"value") for i in range(20))
        file = store._inker.active
        assert file is not None
        if sealed:
            rolled(store)
            settle(store)
        for number in (-1, -5):
            with pytest.raises(octavo.Corruption, match="no record of sqn"):
                file.raw(number)


@pytest.mark.parametrize(("records", "ending"), [((1 << 14) - 1, ".log"), (1 << 14, ".cdb")])
def test_a_file_of_many_small_records_is_sealed_as_the_store_closes(
    tmp_path: Path, records: int, ending: str
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"") for number in range(records))
    (name,) = (one.name for one in (tmp_path / "s" / "journal").glob("*.*"))
    assert name.endswith(ending)
    with octavo.open(tmp_path / "s", read_only=True) as store:
        assert len(store) == records


@pytest.mark.parametrize("sync", ["none", "always"])
def test_a_sealing_that_finds_no_room_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    """Zeros stand behind the records of the file that is synced."""
    expected = {b"%04d" % i: b"value %d" % i for i in range(2000)}
    whole = RealFile.pwrite_all
    with no_hang(), opened(tmp_path / "s", roll_count=4096, push_rows=4096) as store:
        for key, value in expected.items():
            store.put(key, value, sync=sync == "always")
        file, path = store._inker.active, active_file(store)
        assert file is not None
        before, full = path.read_bytes(), True

        def pwrite_all(to: RealFile, data: bytes, offset: int) -> None:
            if not full or to.path != str(path) or not any(data):
                return whole(to, data, offset)
            whole(to, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, "No space left on device", to.path)

        monkeypatch.setattr(RealFile, "pwrite_all", pwrite_all)
        rolled(store)
        for actor in (store._inker, file):  # which serves what was sent to them
            actor.enter()
            actor.leave()
        assert path.read_bytes() == before
        image = killed(store, tmp_path / "image")
        full = False
        store.put("last", "")
        rolled(store)
        settle(store)
        assert store.stats()["journal"]["sealed_files"] == 2
        assert store.pop("last") == b""
        assert dict(store.items()) == expected
    with opened(image) as again:
        assert [note for note in again.stats()["notes"] if "torn" in note] == []
        assert dict(again.items()) == expected


@pytest.mark.parametrize("more", [-1, 1])
def test_work_on_a_sealed_file_refuses_one_of_other_sqns_than_the_manifest_says(
    tmp_path: Path, more: int
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(9))
        rolled(store)
        settle(store)
        (entry,) = store._inker.manifest.entries
        path = str(tmp_path / "s" / "journal" / entry.name)
        who = RealDisk(), path, entry.seed, entry.base_sqn
        assert file_records(*who, entry.last_sqn)[1].size == 9
        with pytest.raises(octavo.Corruption, match="covers other sqns"):
            file_records(*who, entry.last_sqn + more)
