"""A published snapshot takes the name of another: readers by name find the one or the other."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from whole_store import WallClock, opened

import octavo
from octavo.files.door.disk import AppendFile, RealDisk
from octavo.manifest import published
from octavo.manifest.journal_manifest import JournalManifest

NOW_MS = 1_800_000_000_000


@pytest.fixture
def clock() -> WallClock:
    return WallClock(NOW_MS)


@pytest.fixture
def store(tmp_path: Path, clock: WallClock) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s", clock_ms=clock) as store:
        yield store


def publish(store: octavo.Store, value: str, **options: object) -> octavo.PublishedSnapshot:
    store.put("k", value)
    with store.snapshot() as snap:
        return snap.publish("latest", replace=True, **options)  # type: ignore[arg-type]


class CallsDisk(RealDisk):
    """Somebody else does something just before one of the calls; None: before each."""

    def __init__(self, beside: Callable[[], object], at: int | None = None) -> None:
        self.beside, self.at, self.calls = beside, at, 0

    def _count(self) -> None:
        self.calls += 1
        if self.at in (None, self.calls):
            self.beside()

    def create(self, path: str) -> AppendFile:
        self._count()
        return super().create(path)

    def link(self, source: str, target: str) -> None:
        self._count()
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self._count()
        super().sync_dir(path)

    def listdir(self, path: str) -> list[str]:
        self._count()
        return super().listdir(path)

    def read(self, path: str, limit: int | None = None) -> bytes:
        self._count()
        return super().read(path) if limit is None else super().read(path, limit)

    def map(self, path: str) -> mmap.mmap | bytes:
        self._count()
        return super().map(path)


def test_one_takes_the_name_of_another_which_goes_on_without(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:  # by the clock that readers have
        _takes_the_name(store)


def _takes_the_name(store: octavo.Store) -> None:
    first = publish(store, "first")
    with store.published("latest")[0].open() as reader:
        second = publish(store, "second")
        assert [each.id for each in store.published("latest")] == [second.id]
        [old] = store.published(first.id)
        assert (old.name, old.expires_at) == ("", first.expires_at)
        with old.open() as then, store.published("latest")[0].open() as now:
            assert (reader["k"], then["k"], now["k"]) == (b"first", b"first", b"second")
        old.renew(7200)
        assert reader["k"] == b"first"
    second.release()
    with pytest.raises(octavo.Misuse, match="no published snapshot 'latest'"):
        store.published("latest")
    with store.snapshot() as snap:
        assert snap.publish("latest").name == "latest"  # nobody else has it


def test_a_name_that_is_taken_says_how_to_replace_it(store: octavo.Store) -> None:
    publish(store, "first")
    with store.snapshot() as snap:
        with pytest.raises(octavo.Misuse, match="replace=True"):
            snap.publish("latest")
        with pytest.raises(octavo.Misuse, match="replace=True takes a name"):
            snap.publish(replace=True)


def test_who_lets_go_of_a_name_may_be_gone_as_it_is_taken(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, "first")
    take = published.take_name

    def released(disk: RealDisk, holders: list[published.Published]) -> None:
        for each in holders:
            published.remove(disk, each.path)
        take(disk, holders)

    monkeypatch.setattr(published, "take_name", released)
    second = publish(store, "second")
    assert [each.id for each in store.published("latest")] == [second.id]
    assert os.listdir(f"{store.path}/snapshots") == [second.id]


def test_one_that_was_replaced_is_swept_as_any_other(store: octavo.Store, clock: WallClock) -> None:
    first = publish(store, "first", lease_seconds=10)
    second = publish(store, "second", lease_seconds=10_000)
    clock.now += 10_000 + published.GRACE_MS
    store.snapshot().publish().release()  # which sweeps
    assert os.listdir(f"{store.path}/snapshots") == [second.id] != [first.id]


@pytest.mark.parametrize("clock_goes", [1, -60_000])
def test_at_every_moment_of_a_replacement_readers_find_one(
    tmp_path: Path, clock: WallClock, clock_goes: int
) -> None:
    seen: list[int] = []

    def look() -> None:
        found = published.found(RealDisk(), str(tmp_path / "s"), "latest", clock())
        seen.append(found.sqn)

    disk = CallsDisk(lambda: None)
    with opened(tmp_path / "s", disk, clock_ms=clock) as store:
        first = publish(store, "first")
        clock.now += clock_goes
        disk.beside = look
        second = publish(store, "second")
        disk.beside = lambda: None
        look()
    assert seen == sorted(seen)
    assert set(seen) == {first.sqn, second.sqn}


@pytest.mark.parametrize("clock_goes", [1, -60_000])
def test_a_look_in_which_names_go_over_finds_one(
    store: octavo.Store, clock: WallClock, clock_goes: int
) -> None:
    def replace() -> None:
        clock.now += clock_goes
        was = store.published("latest")[0]
        publish(store, "next")
        was.release()

    publish(store, "first")
    for call in range(1, 50):
        disk = CallsDisk(replace, call)
        found = published.found(disk, store.path, "latest", clock())
        assert found.name == "latest"
        if disk.calls < call:
            break
    assert call > 2


def test_a_look_for_a_name_that_none_has_ends_though_others_come_all_the_time(
    store: octavo.Store, clock: WallClock
) -> None:
    class Coming(RealDisk):
        def listdir(self, path: str) -> list[str]:
            nonlocal looks
            looks += 1
            assert looks < 100
            with store.snapshot() as snap:
                snap.publish()
            return super().listdir(path)

    looks = 0
    publish(store, "first")
    with pytest.raises(octavo.Misuse, match="no published snapshot"):
        published.found(Coming(), store.path, "other", clock())
    assert published.found(Coming(), store.path, "latest", clock()).name == "latest"


def test_who_renews_one_that_is_being_replaced_does_not_give_it_its_name_back(
    store: octavo.Store, clock: WallClock
) -> None:
    for call in range(1, 20):
        first = publish(store, "first", lease_seconds=10_000)
        disk = CallsDisk(lambda: publish(store, "second"), call)
        renewed = published.renewed(disk, first.path, clock() + 90_000_000, clock())
        assert renewed.id == first.id
        [second] = store.published("latest")
        if disk.calls < call:
            break
        assert second.id != first.id
        second.release()
        with pytest.raises(octavo.Misuse, match="no published snapshot"):
            store.published("latest")
        first.release()
    assert call > 2


def test_where_a_replacement_was_cut_short_the_next_one_takes_the_name_from_both(
    store: octavo.Store, clock: WallClock
) -> None:
    publish(store, "first")
    clock.now += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "take_name", lambda *_: None)  # as a SIGKILL just before it
        second = publish(store, "second")
    clock.now += 1
    assert store.published("latest")[0].id == second.id
    third = publish(store, "third")
    assert [each.id for each in store.published() if each.name] == [third.id]


def test_of_two_of_a_name_the_one_is_found_whose_lease_runs(
    store: octavo.Store, clock: WallClock
) -> None:
    first = publish(store, "first", lease_seconds=7200)
    clock.now += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "take_name", lambda *_: None)  # as a SIGKILL just before it
        publish(store, "second", lease_seconds=60)
    clock.now += 60_000
    assert [each.id for each in store.published("latest")] == [first.id]
    clock.now += 7_200_000
    with pytest.raises(octavo.SnapshotExpired):
        store.published("latest")


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lists of journal files that were read, as they are stored."""
    read: list[bytes] = []
    decode = JournalManifest.decode

    def noted(payload: bytes) -> JournalManifest:
        read.append(payload)
        return decode(payload)

    monkeypatch.setattr(JournalManifest, "decode", noted)
    return read


def test_a_publication_reads_no_list_of_files_of_other_snapshots(
    store: octavo.Store, lists: list[bytes]
) -> None:
    for number in range(5):
        with store.snapshot() as snap:
            snap.publish(f"before {number}")
    publish(store, "1")
    publish(store, "2")
    with store.snapshot() as snap, pytest.raises(octavo.Misuse, match="has it"):
        snap.publish("before 3")
    assert not lists


def test_who_looks_for_a_snapshot_reads_no_list_of_files(
    store: octavo.Store, lists: list[bytes]
) -> None:
    for number in range(5):
        with store.snapshot() as snap:
            snap.publish(f"number {number}")
    assert {each.name for each in store.published()} == {f"number {n}" for n in range(5)}
    (found,) = store.published("number 3")
    assert store.published(found.id)[0].sqn == found.sqn
    assert not lists
    found.open().close()
    assert len(lists) == 1
