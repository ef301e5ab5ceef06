"""A clock that is set back over an expiry: what was dropped for it stays absent, in every way of
reading and in everything that is made of the store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compacted_store import SMALL_FILES
from whole_store import NEVER_MS, WallClock, flush, opened, settle

import octavo
from octavo.actors.compacting import journal_install
from octavo.actors.penciller import Penciller
from octavo.actors.published_reader import PublishedReader
from octavo.files.door.disk import RealDisk
from octavo.files.errors import StorageFailed
from octavo.manifest import pinning
from octavo.manifest import published as snapshots
from octavo.manifest.closed_store import closed_store
from octavo.pipeline.offline import Run
from octavo.pipeline.offline import _merge as merged_offline
from octavo.pipeline.offline_journal import compacted as compacted_offline
from octavo.read_only import ReadOnlyStore

HOUR_MS = 3_600_000
BEGIN_MS = 100_000_000_000
ENDS_MS = BEGIN_MS + 10_000
GONE = range(300)
STAYS = range(300, 600)


def key(number: int) -> bytes:
    return b"k%03d" % number


def with_expired(path: Path, clock: WallClock, **options: Any) -> octavo.Store:
    """A store of some keys that expire at ENDS_MS, and some that do not; all of it is in the
    ledger."""
    store = opened(path, clock_ms=clock, compact_every_seconds=None, **SMALL_FILES, **options)
    for number in (*GONE, *STAYS):
        ends = ENDS_MS if number in GONE else NEVER_MS
        store.put(key(number), b"v%d" % number * 30, expires_at=ends, index={"f": number})
    for number in range(900):
        store.put(b"x%d" % (number % 100), b"f" * 100)
    flush(store)
    return store


def check(reader: Any) -> None:
    """Heads, values, scans and indexes agree, whatever they have."""
    assert [reader.get(key(number)) for number in GONE] == [None] * len(GONE)
    assert [reader.head(key(number)) for number in GONE] == [None] * len(GONE)
    assert [reader.get(key(number)) for number in STAYS] == [b"v%d" % n * 30 for n in STAYS]
    assert list(reader.get_many([key(0), key(599)])) == [None, b"v599" * 30]
    assert [k for k, _ in reader.items("k", "l")] == [key(number) for number in STAYS]
    assert list(reader.keys("k", "l")) == [key(number) for number in STAYS]
    assert list(reader.index("f").keys(0, 600)) == [key(number) for number in STAYS]


def compacted(path: Path, clock: WallClock) -> octavo.Store:
    """One whose values went with their expiry, and whose clock is back before it."""
    store = with_expired(path, clock)
    clock.now = ENDS_MS + HOUR_MS
    assert store.compact().records_dropped >= len(GONE)
    clock.now = BEGIN_MS
    return store


@pytest.fixture
def clock() -> WallClock:
    return WallClock(BEGIN_MS)


def test_what_compaction_dropped_stays_absent(tmp_path: Path, clock: WallClock) -> None:
    with compacted(tmp_path / "s", clock) as store:
        for reader in (store, store.snapshot()):
            check(reader)
        assert store.verify().ok


def test_a_failure_to_note_it_refuses_writes_for_nothing_is_merged_any_more(
    tmp_path: Path, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = StorageFailed("the ledger's log takes no more")

    def refuses(payload: bytes) -> None:
        raise failed

    with with_expired(tmp_path / "s", clock) as store:
        clock.now = ENDS_MS + HOUR_MS
        with monkeypatch.context() as patch:
            patch.setattr(store._running.penciller.actor.change_log, "append", refuses)
            with pytest.raises(StorageFailed, match="takes no more"):
                store.compact()
        with pytest.raises(StorageFailed, match="takes no more"):
            store.put("x", "v")
        assert store.get(key(STAYS[0])) is not None
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        store.put("x", "v")
        check(store)
        assert store.verify().ok


def test_so_it_does_in_the_next_life(tmp_path: Path, clock: WallClock) -> None:
    compacted(tmp_path / "s", clock).close()
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        check(store)
        assert store.verify().ok


def test_a_ttl_counts_from_what_the_store_takes_for_now(tmp_path: Path, clock: WallClock) -> None:
    with compacted(tmp_path / "s", clock) as store:
        store.put("short", "v", ttl=5)
        with store.batch() as batch:
            batch.put("", "batched", "v", ttl=5)
        assert (store.get("short"), store.get("batched")) == (b"v", b"v")
        assert store.head("short").expires_at == ENDS_MS + 5000
        clock.now = ENDS_MS + 5000
        assert (store.get("short"), store.get("batched")) == (None, None)


def test_a_condition_on_absence_holds(tmp_path: Path, clock: WallClock) -> None:
    with compacted(tmp_path / "s", clock) as store:
        store.put(key(0), "anew", if_sqn=0)
        assert store.get(key(0)) == b"anew"


def test_only_what_was_dropped_counts(tmp_path: Path, clock: WallClock) -> None:
    """A clock that once was ten years ahead ends nothing that comes after it was set right."""
    with with_expired(tmp_path / "s", clock) as store:
        clock.now = ENDS_MS + 86_400_000 * 3650
        store.compact()
        clock.now = BEGIN_MS
        check(store)
        store.put("later", "v", expires_at=ENDS_MS + 1)
        assert store.get("later") == b"v"


def test_what_was_deleted_before_its_expiry_does_not_count(
    tmp_path: Path, clock: WallClock
) -> None:
    store = opened(tmp_path / "s", clock_ms=clock, compact_every_seconds=None, **SMALL_FILES)
    for number in (*GONE, *STAYS):
        ends = ENDS_MS + HOUR_MS if number in GONE else ENDS_MS
        store.put(key(number), b"v%d" % number * 30, expires_at=ends)
    store.delete_many(map(key, GONE))
    for number in range(900):
        store.put(b"x%d" % (number % 100), b"f" * 100)
    flush(store)
    assert store.compact().records_dropped >= len(GONE)
    assert store._running.penciller.actor.manifest.expired_ms == 0
    assert list(store.keys("k", "l")) == [key(number) for number in STAYS]
    store.close()


def test_a_snapshot_from_before_keeps_what_it_had(tmp_path: Path, clock: WallClock) -> None:
    with with_expired(tmp_path / "s", clock) as store, store.snapshot() as before:
        clock.now = ENDS_MS + HOUR_MS
        store.compact()
        clock.now = BEGIN_MS
        assert [before.get(key(number)) for number in GONE] == [b"v%d" % n * 30 for n in GONE]
        check(store)


def published(store: octavo.Store, home: Path, clock: WallClock) -> Any:
    made = store.snapshot().publish(lease_seconds=HOUR_MS)
    return PublishedReader(RealDisk(), snapshots.read(RealDisk(), made.path), clock, 64)


def pinned(store: octavo.Store, home: Path, clock: WallClock) -> Any:
    found = pinning.pin(RealDisk(), store.path, HOUR_MS, int(clock.now))
    return PublishedReader(RealDisk(), found, clock, 64)


@pytest.mark.parametrize("made_by", [published, pinned])
def test_readers_of_other_processes_judge_as_the_store_does(
    tmp_path: Path, clock: WallClock, made_by: Callable[[octavo.Store, Path, WallClock], Any]
) -> None:
    with compacted(tmp_path / "s", clock) as store:
        reader = made_by(store, tmp_path, clock)
        for number in GONE:
            assert reader.get(b"o\0\0" + key(number)) is None
        assert reader.now_ms == ENDS_MS
        reader.really_close()


def test_a_store_that_is_opened_to_be_read_judges_as_its_owner_does(
    tmp_path: Path, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with compacted(tmp_path / "s", clock) as store:
        monkeypatch.setattr(time, "time_ns", lambda: BEGIN_MS * 1_000_000)
        with ReadOnlyStore(RealDisk(), store.path) as reader:
            check(reader)


@pytest.mark.parametrize("ledger", [True, False])
def test_a_backup_and_what_is_restored_of_it(
    tmp_path: Path, clock: WallClock, ledger: bool
) -> None:
    with compacted(tmp_path / "s", clock) as store:
        store.backup(tmp_path / "b", ledger=ledger)
    octavo.restore(tmp_path / "b", tmp_path / "r")
    for name in ("b", "r"):
        with opened(tmp_path / name, clock_ms=clock, **SMALL_FILES) as store:
            check(store)
            assert store.verify().ok


def test_a_ledger_that_is_made_anew(tmp_path: Path, clock: WallClock) -> None:
    compacted(tmp_path / "s", clock).close()
    (tmp_path / "s" / "ledger" / "REBUILD").write_text("a test")
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        check(store)
        assert store.verify().ok


def test_a_ledger_that_is_made_anew_without_its_manifest(tmp_path: Path, clock: WallClock) -> None:
    compacted(tmp_path / "s", clock).close()
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        check(store)
        assert store.verify().ok


def test_what_merging_dropped_stays_absent(tmp_path: Path, clock: WallClock) -> None:
    """The journal has it still; verify must not call it lost."""
    store = with_expired(tmp_path / "s", clock)
    clock.now = ENDS_MS
    for number in (*GONE, *STAYS):  # other keys among them, so that their files are merged
        store.put(key(number) + b"+", b"f" * 60)
    for number in range(2400):
        store.put(b"m%d" % (number % 800), b"f" * 60)
        if number % 400 == 0:
            flush(store)
    flush(store)
    assert store._running.penciller.actor.manifest.expired_ms == ENDS_MS
    clock.now = BEGIN_MS
    assert store.get(key(0)) is None
    assert store.verify().ok
    store.close()
    (tmp_path / "s" / "ledger" / "REBUILD").write_text("a test")
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        assert store.get(key(0)) is None
        assert store.head(key(0)) is None


def test_what_was_dropped_while_the_store_was_closed(
    tmp_path: Path, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_expired(tmp_path / "s", clock).close()
    now = {"ms": ENDS_MS + HOUR_MS}
    monkeypatch.setattr(time, "time_ns", lambda: now["ms"] * 1_000_000)
    compacted_offline(RealDisk, str(tmp_path / "s"), Run())
    with closed_store(RealDisk(), str(tmp_path / "s")) as there:
        assert there.ledger is not None
        assert there.ledger.expired_ms == ENDS_MS
    now["ms"] = BEGIN_MS
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        check(store)
        assert store.verify().ok
    merged_offline(RealDisk, str(tmp_path / "s"), Run())
    with opened(tmp_path / "s", clock_ms=clock, **SMALL_FILES) as store:
        check(store)
        assert store._running.penciller.actor.manifest.expired_ms == ENDS_MS


def test_a_merge_that_ends_as_a_compaction_notes_it_does_not_take_it_back(
    tmp_path: Path, clock: WallClock
) -> None:
    with with_expired(tmp_path / "s", clock) as store:
        before = store._bookie.view.ledger  # as a merge gives it, and is held up then
        journal_install.stays_expired(store._running.bookie, ENDS_MS)
        store._bookie.ledger_installed(before, None)
        assert store._bookie.view.ledger.expired_ms == ENDS_MS
        assert store.get(key(GONE[0])) is None


def test_a_compaction_that_cannot_note_it_in_time_leaves_the_store_as_it_is(
    tmp_path: Path, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*_: object) -> None:
        raise octavo.AskTimeout("Penciller did not get round to it within 60 s")

    with with_expired(tmp_path / "s", clock) as store:
        clock.now = ENDS_MS + 2 * HOUR_MS
        with monkeypatch.context() as patch:
            patch.setattr(Penciller, "stays_expired", too_late)
            with pytest.raises(octavo.AskTimeout):
                store.compact()
        store.put("late", b"v", sync=True)
        settle(store)
        named = {entry.name for entry in store._running.inker.actor.manifest.entries}
        assert {file.name for file in (tmp_path / "s/journal").glob("*.cdb")} == named
        assert store.compact().records_dropped
        clock.now = BEGIN_MS
        check(store)
