"""A fault at every call of the disk within a bulk load's commit: the job comes whole or not at all,
and once; whether the store goes on, or is found as it was left."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import pytest
from look import NOW_MS, clock_ms, read_all
from one_thread import forget, one_thread, opened
from simdisk import SimDisk

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.compacting import compaction
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.keeping import ingest as commits
from octavo.actors.keeping.ingest import Ingested, _Taking, ingest
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest import change_log
from octavo.manifest.change_log import Limits
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.pinning import pin
from octavo.pipeline.feed_files import JournalLook

JOB = {b"k%d" % n: b"job" for n in range(5)}
BEFORE = {b"k%d" % n: b"old" for n in range(3, 8)}
LATER = {b"k9": b"later"}
BASE = len(BEFORE) + 1
"""Where the job's records are to begin."""
FAULTS = {"MemoryError": 0, "EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
WANT_ROOM = ("create", "write", "pwrite", "link", "mkdir", "rename")
LASTING = {"full": WANT_ROOM, "nothing taken back": ("truncate",)}
"""Kinds by which calls of these names find no room any more, either, from the fault on."""


@pytest.fixture(autouse=True)
def snapshots_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the commit's change brings a snapshot of the manifest."""
    monkeypatch.setattr(change_log, "Limits", partial(Limits, 16 << 20, 1, 1))


def staged_disk() -> SimDisk:
    """A closed store with keys in its ledger and in its journal's end, and a job's files."""
    disk = SimDisk()
    with one_thread("setup") as pool:
        store = opened(disk, clock_ms=clock_ms, sync="always")
        store.put_many(BEFORE.items())
        pool.go_on()
        store.close()
    for part, keys in enumerate((list(JOB)[:3], list(JOB)[3:])):
        writer = StagedWriter(disk, "/store", "j", f"a{part}", now_ms=NOW_MS, file_records=2)
        writer.put_many(b"", keys, [JOB[key] for key in keys])
        writer.finish()
    return disk


def commit(store: octavo.Store) -> Ingested:
    return ingest(store._running, "j", ["a0", "a1"], stream="q", batch=3)


def contents(store: octavo.Store) -> dict[bytes, bytes]:
    return {key: value for (_, key), value in read_all(store).state.items()}


class Fault:
    """The call of this number goes wrong, whichever it is, and as LASTING says those behind it."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number = kind, number
        self.calls = 0
        self.met = ""

    def __call__(self, operation: str) -> tuple[int, None] | None:
        if operation in ("exists", "size", "links"):
            return None
        self.calls += 1
        if self.calls < self.number:
            return None
        lasting = LASTING.get(self.kind, ())
        if self.calls > self.number and operation not in lasting:
            return None
        if self.kind == "full" and operation not in WANT_ROOM:
            return None
        self.met = self.met or operation
        if self.kind == "MemoryError":
            raise MemoryError
        return FAULTS.get(self.kind, errno.ENOSPC), None


def taken_on(
    disk: SimDisk, fault: Fault, again: bool
) -> tuple[dict[bytes, bytes], Exception | None]:
    """Commit with the fault, and where the store goes on put and save memory, behind a second
    commit or without one; what must be in the store then, with the job or without it, and what the
    commit raised."""
    with one_thread("commit") as pool:
        store = opened(disk, clock_ms=clock_ms, sync="always")
        disk.at_call = fault
        raised: Exception | None = None
        try:
            commit(store)
        except (octavo.OctavoError, MemoryError) as error:
            raised = error
        disk.at_call = None
        expected = dict(BEFORE)
        assert contents(store) in (expected, expected | JOB)
        if store._inker.failed is None:
            whole = contents(store) == expected | JOB
            assert raised is not None or whole
            assert not (whole and isinstance(raised, octavo.StorageFull))
            if again:
                assert commit(store).repeated == whole
            store.put_many(LATER.items())
            expected |= LATER | (JOB if whole or again else {})
            store._running.bookie.call(Bookie.push)
            pool.go_on()
            assert contents(store) == expected
        else:
            with pytest.raises(octavo.StorageFailed):  # and not "repeated": memory may lack it
                commit(store)
        forget(store)
    return expected, raised


class NothingRemoved(Fault):
    """The call of this number finds no room, and from then on nothing can be removed."""

    def __call__(self, operation: str) -> tuple[int, None] | None:
        self.calls += operation not in ("exists", "size", "links")
        if self.calls >= self.number and operation == "unlink":
            self.met = self.met or operation
            return errno.EPERM, None
        if self.calls == self.number and operation in WANT_ROOM:
            self.met = operation
            return errno.ENOSPC, None
        return None


def test_what_is_written_behind_a_failed_commit_whose_links_stay_is_told() -> None:
    number, left = 0, 0
    while True:
        number += 1
        disk, fault = staged_disk(), NothingRemoved("", number)
        with one_thread("commit"):
            store = opened(disk, clock_ms=clock_ms, sync="always")
            disk.at_call = fault
            with suppress(octavo.OctavoError):
                commit(store)
            reached, fault.number = fault.calls >= number, 0  # by now nothing but removals fails
            look = JournalLook(disk, "/store")
            if store._inker.failed is not None:
                with suppress(octavo.StorageFailed):  # an fsync failed, of which a mark may tell
                    assert look.newest() <= store.last_sqn
            else:
                told = look.newest()
                assert told <= store.last_sqn
                left += any(
                    name.startswith(f"{BASE:016x}") and name.endswith(".cdb")
                    for name in disk.listdir("/store/journal")
                )
                for key, value in LATER.items():
                    store.put(key, value)
                assert look.newest() == store.last_sqn
                assert JournalLook(disk, "/store").newest() == store.last_sqn
                parts = look.parts(told, store.last_sqn, 1 << 20)
                assert [part.last for part in parts][-1:] == [store.last_sqn]
            disk.at_call = None
            forget(store)
        if not reached:
            break
    assert left > 2


def test_what_a_failed_commit_could_not_remove_is_never_taken_in() -> None:
    """Its numbers were given to others, and the ledger goes beyond them."""
    number, left = 0, 0
    while True:
        number += 1
        disk, fault = staged_disk(), NothingRemoved("", number)
        with one_thread("commit") as pool:
            store = opened(disk, clock_ms=clock_ms, sync="always")
            disk.at_call = fault
            with suppress(octavo.OctavoError):
                commit(store)
            reached, fault.number = fault.calls >= number, 0
            if store._inker.failed is None:
                store.put_many(LATER.items())
                store._running.bookie.call(Bookie.push)
                pool.go_on()
            expected = contents(store)
            left += JOB.items() <= expected.items() or any(
                name.startswith(f"{BASE:016x}") and name.endswith(".cdb")
                for name in disk.listdir("/store/journal")
            )
            disk.at_call = None
            forget(store)
        disk = disk.after_kill()
        with suppress(octavo.StorageFailed):  # an fsync failed, of which a mark may tell
            pin(disk, "/store", 60_000, NOW_MS)
        with one_thread("opening"):
            store = opened(disk, clock_ms=clock_ms, sync="always")
            assert contents(store) in (expected, expected | JOB)
            assert not [note for note in store._running.notes if "lacks" in note]
            forget(store)
        if not reached:
            break
    assert left > 2


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        ("MemoryError", False),
        ("MemoryError", True),
        ("EIO", True),
        ("ENOSPC", True),
        ("full", True),
        ("nothing taken back", False),
        ("nothing taken back", True),
    ],
)
def test_a_job_comes_whole_and_once_whatever_call_of_its_commit_fails(
    kind: str, again: bool
) -> None:
    staged = staged_disk()
    for number in range(1, 300):
        disk, fault = staged.after_crash("all"), Fault(kind, number)
        expected, raised = taken_on(disk, fault, again)
        if not fault.met:
            assert number > 30
            return
        where = f"{kind} at call {number} ({fault.met})"
        with one_thread("again"):
            store = opened(disk.after_kill(), clock_ms=clock_ms, sync="always")
            found = contents(store)
            assert found in (expected, expected | JOB), where
            # Which says that nothing is kept.
            assert found == expected or not isinstance(raised, octavo.StorageFull), where
            assert commit(store).repeated == (found == expected | JOB), where
            assert contents(store) == expected | JOB, where
            report = store.verify()
            assert report.ok, (where, report.problems)
            forget(store)
    raise AssertionError("more calls than there can be")


def failed_seal(
    monkeypatch: pytest.MonkeyPatch, operation: str, code: int
) -> tuple[Exception, octavo.OctavoError | None, octavo.OctavoError | None]:
    """What a commit raises where a writer was quicker, and that call fails as that writer's file is
    sealed; what the journal refuses writes with as the commit has the turns still, and later."""
    disk = staged_disk()
    at_once: list[octavo.OctavoError | None] = []

    def sealed_badly(taking: _Taking) -> None:
        inker = taking.inker
        active = inker.active
        assert active is not None
        active.commit.wait_durable(active.offsets[-1], 1.0)
        disk.fail(operation, 1, code)
        try:
            seal_active(taking)
        finally:
            disk.heal()
            at_once.append(inker.failed)

    def settled(clerk: InkerClerk) -> None:
        settle(clerk)
        store.put_many(LATER.items())

    seal_active, settle = _Taking._seal_active, compaction.settle
    monkeypatch.setattr(_Taking, "_seal_active", sealed_badly)
    monkeypatch.setattr(compaction, "settle", settled)
    with one_thread("commit") as pool:
        store = opened(disk, clock_ms=clock_ms)
        with pytest.raises(Exception) as told:  # noqa: PT011 - which one is what is asked
            commit(store)
        pool.go_on()
        later = store._inker.failed
        forget(store)
    return told.value, at_once[0], later


@pytest.mark.parametrize(
    ("operation", "code", "expected"),
    [
        ("pwrite", errno.EIO, octavo.StorageFailed),
        ("pwrite", errno.ENOSPC, octavo.StorageFull),
        ("reopen", errno.EMFILE, octavo.StorageFull),
    ],
)
def test_a_commit_that_cannot_seal_says_so_in_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    code: int,
    expected: type[octavo.OctavoError],
) -> None:
    told, _, later = failed_seal(monkeypatch, operation, code)
    assert type(told) is expected
    assert later is None  # the file is as it was, and sealed later


def test_a_commit_that_could_not_sync_a_sealed_name_lets_no_write_go_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, at_once, _ = failed_seal(monkeypatch, "sync_held", errno.EIO)
    assert type(told) is octavo.StorageFailed
    assert at_once is not None


def no_memory(*_: object, **__: object) -> NoReturn:
    raise MemoryError


def test_a_commit_that_memory_could_not_be_told_of_lets_no_write_go_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = staged_disk()
    with one_thread("commit"):
        store = opened(disk, clock_ms=clock_ms, sync="always")
        with monkeypatch.context() as short:
            short.setattr(commits, "MemoryTable", no_memory)
            with pytest.raises(MemoryError):
                commit(store)
        assert contents(store) == BEFORE
        with pytest.raises(octavo.StorageFailed, match="may be committed"):
            store.put_many(LATER.items())
        with pytest.raises(octavo.StorageFailed, match="may be committed"):
            commit(store)
        forget(store)
    with one_thread("again"):
        store = opened(disk.after_kill(), clock_ms=clock_ms, sync="always")
        assert contents(store) == BEFORE | JOB
        assert commit(store).repeated
        forget(store)


class ShortOnce(list[str]):
    """There is no memory for the first that is to be in it."""

    short = True

    def append(self, name: str) -> None:
        if self.short:
            self.short = False
            raise MemoryError
        super().append(name)


def test_a_commit_that_found_no_memory_for_the_name_of_a_link_may_be_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Short(_Taking):
        def __init__(self, *told: Any) -> None:
            super().__init__(*told)
            self._linked = ShortOnce()

    with one_thread("commit"):
        store = opened(staged_disk(), clock_ms=clock_ms, sync="always")
        with monkeypatch.context() as short:
            short.setattr(commits, "_Taking", Short)
            with pytest.raises(MemoryError):
                commit(store)
        assert not commit(store).repeated
        assert contents(store) == BEFORE | JOB
        forget(store)


def test_of_a_commit_that_found_no_memory_for_its_change_no_link_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edit = JournalManifest.edit

    def short(manifest: JournalManifest, *told: Any, **more: Any) -> JournalManifest:
        if "commits" in more:
            raise MemoryError
        return edit(manifest, *told, **more)

    disk = staged_disk()
    with one_thread("commit"):
        store = opened(disk, clock_ms=clock_ms, sync="always")
        with monkeypatch.context() as patch:
            patch.setattr(JournalManifest, "edit", short)
            with pytest.raises(MemoryError):
                commit(store)
        linked = [*disk.listdir("/store/journal"), *disk.listdir("/store/ledger")]
        named = {entry.name for entry in store._inker.manifest.entries}
        named |= {entry.name for entry in store._running.penciller.actor.manifest.entries}
        assert {name for name in linked if name.endswith((".cdb", ".sst"))} == named
        assert not commit(store).repeated
        assert contents(store) == BEFORE | JOB
        forget(store)
