"""Published snapshots: what other processes are given, and when it goes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from whole_store import WallClock, flush, killed, opened, rolled, settle

import octavo
from octavo.files.door.disk import AppendFile, Disk, RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.manifest import pinning, published
from octavo.manifest.snapshot_draft import Draft

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> WallClock:
    return WallClock(1_800_000_000_000)


@pytest.fixture
def store(tmp_path: Path, clock: WallClock) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe 1", clock_ms=clock) as store:
        for number in range(400):
            store.put(b"k%04d" % number, b"first %d" % number)
        flush(store)
        for number in range(0, 400, 3):
            store.delete(b"k%04d" % number)
        store.bucket("b").put("x", "y")
        yield store


def names(store: octavo.Store) -> list[str]:
    return sorted(os.listdir(f"{store.path}/snapshots"))


def test_counts_are_exact(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        made = snap.publish()
        assert made.keys == len(snap) + 1
        assert made.bytes == sum(map(len, snap.values())) + 1
        assert made.sqn == snap.sqn
        assert made.counts["standard"].keys == made.keys


def test_it_need_not_be_counted(store: octavo.Store) -> None:
    assert store.snapshot().publish(count=False).keys is None


def test_every_file_it_names_is_there_and_stays(store: octavo.Store) -> None:
    made = store.snapshot().publish("kept")
    for number in range(400):
        store.put(b"k%04d" % number, b"second")
    flush(store)
    store.compact()
    settle(store)
    found = published.read(RealDisk(), made.path)
    there = set(os.listdir(made.path))
    assert {entry.name for level in found.ledger.levels for entry in level} <= there
    assert {entry.name for entry in found.journal.entries} <= there
    assert all(name.endswith((".sst", ".cdb")) or name in ("manifest", "live") for name in there)


def test_a_name_is_of_one_snapshot_at_a_time(store: octavo.Store, clock: WallClock) -> None:
    first = store.snapshot().publish("nightly")
    with pytest.raises(octavo.Misuse, match=first.id):
        store.snapshot().publish("nightly")
    clock.now += HOUR_MS
    second = store.snapshot().publish("nightly")
    assert [each.id for each in store.published("nightly")] == [second.id]


def test_names_and_ids_find_it(store: octavo.Store) -> None:
    made = store.snapshot().publish("nightly")
    assert [each.id for each in store.published(made.id)] == [made.id]
    assert store.published("nightly")[0].name == "nightly"
    with pytest.raises(octavo.Misuse, match="no published snapshot 'daily'"):
        store.published("daily")
    with pytest.raises(octavo.SnapshotExpired):
        store.published(made.id[:-1] + ("0" if made.id[-1] != "0" else "1"))


@pytest.mark.parametrize("name", ["", "a\nb", 5, "x" * 256, "ü" * 128, "0123456789ab-01234567"])
def test_names_are_checked(store: octavo.Store, name: object) -> None:
    with pytest.raises(octavo.Misuse, match="name="):
        store.snapshot().publish(name)  # type: ignore[arg-type]


def test_it_expires_and_is_swept_after_a_grace_period(
    store: octavo.Store, clock: WallClock
) -> None:
    made = store.snapshot().publish(lease_seconds=10)
    clock.now += 10_000
    assert made.expired
    assert store.published() == []
    with pytest.raises(octavo.SnapshotExpired, match=made.id):
        made.renew()
    with pytest.raises(octavo.SnapshotExpired, match=made.id):
        store.published(made.id)
    assert names(store) == [made.id]
    clock.now += published.GRACE_MS - 1
    store.snapshot().publish().release()  # which sweeps
    assert names(store) == [made.id]
    clock.now += 1
    other = store.snapshot().publish()
    assert names(store) == [other.id]


def test_it_can_be_renewed_and_released(store: octavo.Store, clock: WallClock) -> None:
    made = store.snapshot().publish(lease_seconds=10)
    clock.now += 9_000
    made.renew(10)
    clock.now += 9_000
    assert store.published()[0].expires_at == made.expires_at
    made.release()
    made.release()
    assert names(store) == []
    with pytest.raises(octavo.SnapshotExpired):
        made.renew()


def test_no_renewal_shortens_the_lease_of_another(store: octavo.Store, clock: WallClock) -> None:
    made = store.snapshot().publish(lease_seconds=1000)
    [other] = store.published(made.id)
    other.renew(10)
    [found] = store.published(made.id)
    assert found.expires_at == other.expires_at == made.expires_at
    other.renew(2000)
    [found] = store.published(made.id)
    assert found.expires_at == other.expires_at == made.expires_at + 1_000_000


def test_the_next_opening_sweeps(tmp_path: Path, clock: WallClock) -> None:
    path = tmp_path / "s"
    with opened(path, clock_ms=clock) as store:
        store.put(b"a", b"1")
        made = store.snapshot().publish(lease_seconds=1)
        kept = store.snapshot().publish(lease_seconds=10_000)
    with opened(path, clock_ms=clock) as store:
        assert sorted(names(store)) == sorted([made.id, kept.id])  # of one moment
    clock.now += 1000 + published.GRACE_MS
    with opened(path, clock_ms=clock) as store:
        assert names(store) == [kept.id]


def test_it_survives_the_death_of_its_owner(store: octavo.Store, tmp_path: Path) -> None:
    made = store.snapshot().publish("kept")
    image = killed(store, tmp_path / "image")
    found = published.found(RealDisk(), str(image), "kept", made.expires_at - 1)
    assert found.sqn == made.sqn


def test_one_that_is_released_as_soon_as_it_can_be_seen_was_published(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = published.write

    def write(disk: Disk, made: published.Published) -> None:
        plain(disk, made)
        for each in store.published():
            each.release()

    monkeypatch.setattr(published, "write", write)
    with store.snapshot() as snap:
        assert snap.publish("seen").name == "seen"
    assert store.published() == []


def test_an_orphan_is_swept_an_hour_after_its_making_began(
    store: octavo.Store, clock: WallClock
) -> None:
    orphan = Draft(RealDisk(), store.path, clock())
    orphan.link_journal(store._running.inker.actor.active.name)  # type: ignore[union-attr]
    orphan._lock.release()
    os.unlink(f"{orphan.path}/{published.MAKING}")  # as where it is killed before it holds it
    assert store.published() == []
    clock.now += published.ORPHAN_MS - 1
    published.sweep(RealDisk(), store.path, clock())
    assert names(store) == [orphan.id]
    clock.now += 1
    published.sweep(RealDisk(), store.path, clock())
    assert names(store) == []
    store.put(b"still", b"there")


def test_what_a_maker_left_that_was_killed_is_swept_at_once(store: octavo.Store) -> None:
    orphan = Draft(RealDisk(), store.path, store._running.bookie.actor.clock_ms())
    orphan.link_journal(store._running.inker.actor.active.name)  # type: ignore[union-attr]
    store.snapshot().publish().release()  # which sweeps
    assert names(store) == [orphan.id]
    orphan._lock.release()  # as where it is killed
    store.snapshot().publish().release()
    assert names(store) == []


def test_what_is_in_the_making_is_not_swept_by_a_clock_that_is_hours_ahead(
    store: octavo.Store,
) -> None:
    late = 1_800_000_000_000
    for call in range(4, 40):  # its directory and its lock are made
        disk = _BesideDisk(call, lambda: published.sweep(RealDisk(), store.path, late))
        found = pinning.pin(disk, store.path, 3 * HOUR_MS, late - 2 * HOUR_MS)
        named = itertools.chain(found.journal.entries, *found.ledger.levels)
        assert {each.name for each in named} <= set(os.listdir(found.path))
        published.remove(RealDisk(), found.path)
        if disk.left > 0:
            break
    assert call > 8


def test_who_begins_to_read_is_seen_from_the_moment_that_its_file_is_there(
    store: octavo.Store, clock: WallClock
) -> None:
    class Swept(RealDisk):
        def hold_file(self, path: str) -> FileLock:
            assert published.sweep(RealDisk(), store.path, clock()) == []
            return super().hold_file(path)

    made = store.snapshot().publish()
    held = published.hold(Swept(), f"{made.path}/{published.READING}")
    assert published.sweep(RealDisk(), store.path, clock()) == []
    held.release()
    assert published.sweep(RealDisk(), store.path, clock()) == [made.id]


def test_nothing_is_left_of_one_that_could_not_be_made(store: octavo.Store) -> None:
    snap = store.snapshot()
    file = snap._shared.view.journal.files[0]
    os.rename(file.path, file.path + ".away")
    with pytest.raises(octavo.Corruption, match="missing"):
        snap.publish()
    assert names(store) == []
    os.rename(file.path + ".away", file.path)


def test_nothing_is_left_of_one_that_could_not_even_be_begun(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(disk: RealDisk, path: str) -> NoReturn:
        raise OSError(errno.ENOSPC, "no room", path)

    monkeypatch.setattr(published, "hold", no_room)
    with pytest.raises(octavo.StorageFull):
        store.snapshot().publish()
    with pytest.raises(octavo.OctavoError):
        octavo.open(store.path, read_only=True)
    assert names(store) == []


def test_a_damaged_manifest_is_told_and_listed_no_more(store: octavo.Store) -> None:
    made = store.snapshot().publish()
    path = Path(made.path, "manifest")
    stored = bytearray(path.read_bytes())
    for at in range(0, len(stored), 7):
        wrong = stored.copy()
        wrong[at] ^= 4
        path.write_bytes(wrong)
        with pytest.raises(octavo.Corruption):
            published.read(RealDisk(), made.path)
    for length in (0, 3, 8, 20, len(stored) - 1):
        path.write_bytes(stored[:length])
        with pytest.raises(octavo.Corruption):
            published.read(RealDisk(), made.path)
    assert store.published() == []


def test_a_key_that_memory_has_and_whose_record_is_damaged_is_not_left_out(
    store: octavo.Store,
) -> None:
    store.put("newest", b"v")
    rolled(store)
    settle(store)
    path = max(Path(store.path, "journal").glob("*.cdb"))
    content = path.read_bytes()
    at = content.index(b"newest")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"N")
    with (
        store.snapshot() as snap,
        pytest.raises(octavo.Corruption, match="is damaged: repair the store"),
    ):
        snap.publish()
    with pytest.raises(octavo.Corruption, match="is damaged: repair the store"):
        pinning.pin(RealDisk(), store.path, HOUR_MS, 1_800_000_000_000)
    assert names(store) == []


def test_an_empty_store_can_be_published(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        made = store.snapshot().publish()
        assert (made.keys, made.bytes, made.sqn) == (0, 0, 0)


def test_a_snapshot_that_expired_cannot_be_published(store: octavo.Store) -> None:
    snap = store.snapshot()
    snap.close()
    with pytest.raises(octavo.Closed):
        snap.publish()


def test_destroying_the_store_removes_them(store: octavo.Store) -> None:
    store.snapshot().publish()
    store.close()
    octavo.destroy(store.path)
    assert not os.path.exists(store.path)


class Stopped(Exception):  # noqa: N818
    """Where the test breaks off."""


class _BesideDisk(RealDisk):
    """Somebody else does something just before one of the calls that change names."""

    def __init__(self, left: int, beside: Callable[[], object]) -> None:
        self.left, self.beside = left, beside

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.beside()

    def link(self, source: str, target: str) -> None:
        self._count()
        super().link(source, target)

    def create(self, path: str) -> AppendFile:
        self._count()
        return super().create(path)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def sync_dir(self, path: str) -> None:
        self._count()
        super().sync_dir(path)

    def rmdir(self, path: str) -> None:
        self._count()
        super().rmdir(path)


def stop() -> None:
    raise Stopped


def test_a_removal_that_is_cut_short_leaves_no_half_of_a_snapshot(
    tmp_path: Path, clock: WallClock
) -> None:
    with opened(tmp_path / "s", clock_ms=clock) as store:
        store.put(b"a", b"1")
        for steps in range(1, 8):
            made = store.snapshot().publish()
            try:
                published.remove(_BesideDisk(steps, stop), made.path)
            except Stopped:
                there = os.path.exists(f"{made.path}/manifest")
                assert [each.id for each in store.published()] == ([made.id] if there else [])
                if there:
                    found = published.read(RealDisk(), made.path)
                    named = itertools.chain(found.journal.entries, *found.ledger.levels)
                    assert {each.name for each in named} <= set(os.listdir(made.path))
                published.remove(RealDisk(), made.path)
            assert store.published() == []
            assert names(store) == []


def test_two_processes_may_renew_one_at_once(store: octavo.Store, clock: WallClock) -> None:
    made = store.snapshot().publish()
    first, second = clock() + 2 * HOUR_MS, clock() + 3 * HOUR_MS
    for call in range(1, 10):
        disk = _BesideDisk(call, lambda: published.renewed(RealDisk(), made.path, second, clock()))
        published.renewed(disk, made.path, first, clock())
        assert published.read(RealDisk(), made.path).expires_at in (first, second)
        if disk.left > 0:
            break
    assert call > 3
    made.release()
    assert names(store) == []


def test_who_renews_what_is_being_released_brings_nothing_back(
    store: octavo.Store, clock: WallClock
) -> None:
    def renew() -> None:
        with contextlib.suppress(octavo.SnapshotExpired):
            published.renewed(RealDisk(), made.path, clock() + HOUR_MS, clock())

    def renew_late() -> None:
        found = replace(found_before, expires_at=clock() + HOUR_MS)
        with contextlib.suppress(FileNotFoundError):
            published.write(RealDisk(), found)  # it was read before the release began

    for late in (renew, renew_late):
        for call in range(1, 30):
            made = store.snapshot().publish()
            found_before = published.read(RealDisk(), made.path)
            disk = _BesideDisk(call, late)
            published.remove(disk, made.path)
            assert names(store) == []
            if disk.left > 0:
                break
        assert call > 5


def test_what_is_released_while_it_is_renewed_has_expired(
    store: octavo.Store, clock: WallClock
) -> None:
    for call in range(1, 10):
        made = store.snapshot().publish()
        disk = _BesideDisk(call, made.release)
        with contextlib.suppress(octavo.SnapshotExpired):
            published.renewed(disk, made.path, clock() + HOUR_MS, clock())
        if disk.left > 0:
            made.release()
        assert names(store) == []
        if disk.left > 0:
            break
    assert call > 3


def test_one_that_cannot_be_read_hides_no_other(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """But where it is the process that is short of something, none is left out."""
    bad = store.snapshot().publish("bad")
    good = store.snapshot().publish("good")
    wrong = errno.EIO
    read = RealDisk.read

    def failing(disk: RealDisk, path: str, limit_bytes: int) -> bytes:
        if path.startswith(bad.path):
            raise OSError(wrong, os.strerror(wrong), path)
        return read(disk, path, limit_bytes)

    monkeypatch.setattr(RealDisk, "read", failing)
    assert [each.id for each in store.published()] == [good.id]
    assert f"{bad.path} is left out" in caplog.text
    assert [each.id for each in store.published("good")] == [good.id]
    with pytest.raises(octavo.StorageFailed, match="Input/output error"):
        store.published(bad.id)
    wrong = errno.EMFILE
    with pytest.raises(octavo.StorageFull, match="close some files"):
        store.published()


@pytest.mark.parametrize("how", ["cannot be read", "cannot be removed"])
def test_one_that_cannot_be_swept_keeps_no_other_and_no_opening_from_it(
    tmp_path: Path,
    clock: WallClock,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(tmp_path / "s", clock_ms=clock) as store:
        store.put("k", b"v")
        bad = store.snapshot().publish("bad", lease_seconds=1)
        store.snapshot().publish("good", lease_seconds=1)
    read = RealDisk.read

    def failing(disk: RealDisk, path: str, limit_bytes: int) -> bytes:
        if path.startswith(bad.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return read(disk, path, limit_bytes)

    if how == "cannot be read":
        monkeypatch.setattr(RealDisk, "read", failing)
    else:
        (Path(bad.path) / "a directory of somebody's").mkdir()
    clock.now += HOUR_MS // 2
    for _ in range(2):
        with opened(tmp_path / "s", clock_ms=clock) as store:
            assert names(store) == [bad.id]
            assert store.get("k") == b"v"
    assert f"{bad.path} {'is left alone' if how == 'cannot be read' else how}" in caplog.text
