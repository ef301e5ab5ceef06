"""States that the combined machine keeps in other ways: by leases that end while they are read, by
names that go from one to the next, in backups that others read, in twins that share files, and for
feeds, queries and folds that take their time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from event_log import Event, EventLog, State, same
from every_read import KINDS, EveryRead, shape, slowly
from simdisk import SimDisk

import octavo
from octavo import read_only
from octavo.actors.bookie import Bookie
from octavo.actors.keeping.restoring import restore_on

if TYPE_CHECKING:
    from combined_machine import CombinedMachine

NAMES = ("latest", "of monday", "é")
TWIN = "/twin"


class Brief:
    """A snapshot with scans of it, of which none gives anything wrong once its lease has ended."""

    def __init__(self, machine: CombinedMachine, seconds: float) -> None:
        self.machine = machine
        self.state, self.now = dict(machine.log.state), machine.now
        self.ends = machine.ticks + seconds
        self.snapshot = machine.store.snapshot(lease_seconds=seconds)
        self.scans: list[Iterator[None]] = []
        rng, reads = machine.rng, self.reads()
        for _ in range(rng.choice((0, 1, 2))):
            _, _, bucket, rows = reads.chosen()
            kind, reverse = rng.choice(KINDS), rng.random() < 0.5
            wanted = shape(kind, rows[::-1] if reverse else rows)
            self.scans.append(slowly(getattr(bucket, kind)(reverse=reverse), wanted))

    def reads(self) -> EveryRead:
        machine = self.machine
        return EveryRead(self.snapshot, self.state, self.now, machine.rng, machine.kinds)

    def read(self) -> bool:
        """Whether it still can be."""
        rng = self.machine.rng
        try:
            for scan in self.scans:
                for _ in range(rng.choice((0, 1, 5, 100))):
                    if next(scan, self) is self:
                        break
            self.reads().some(2)
            if rng.random() < 0.1:
                self.snapshot.renew(1.0)
                self.ends = self.machine.ticks + 1.0
        except octavo.SnapshotExpired:
            assert self.machine.ticks >= self.ends, "a lease ended before its time"
            with pytest.raises(octavo.SnapshotExpired):
                self.snapshot.get(b"k")
            with pytest.raises(octavo.SnapshotExpired):
                self.snapshot.renew(1.0)
            return False
        return True


def lease_briefly(machine: CombinedMachine) -> None:
    if len(machine.brief) > 3:
        machine.brief.pop(0)
    machine.brief.append(Brief(machine, machine.rng.choice((0.001, 0.004, 0.03, 0.5))))


def read_brief(machine: CombinedMachine) -> None:
    if machine.rng.random() < 0.3:
        machine.ticks += 0.01
    machine.brief = [each for each in machine.brief if each.read()]


def publish_by_name(machine: CombinedMachine) -> None:
    """At most one has the name; who had it before can still be read by its id."""
    rng, store, disk = machine.rng, machine.store, machine.disk
    name = rng.choice(NAMES)
    before = machine.named.get(name)
    if before is not None and rng.random() < 0.2:
        before[0].release()
        assert before[0].id not in {each.id for each in store.published()}
        machine.named.pop(name)
        before = None
    lives = before is not None and not before[0].expired
    lease, replacing = rng.choice((0.02, 600.0, 3e7)), rng.random() < 0.6
    snap, state, now = rng.choice(machine.snapshots or [(None, {}, 0)])
    if snap is None or rng.random() < 0.6:
        snap, state, now = store.snapshot(), dict(machine.log.state), machine.now
    how: dict[str, Any] = {"lease_seconds": lease, "count": False, "replace": replacing}
    if lives and not replacing:
        with pytest.raises(octavo.Misuse):
            snap.publish(name, **how)
        return
    made = snap.publish(name, **how)
    machine.named[name] = made, state, now
    if lives and before is not None:
        old = store.published(before[0].id)
        assert [each.name for each in old] == [""]
        open_named(machine, before)
        before[0].release()
    assert disk.exists(made.path)


def read_named(machine: CombinedMachine) -> None:
    """By the owner, and by another process, beyond the end of its lease, too."""
    for name, (made, state, now) in list(machine.named.items()):
        if made.expired:
            with pytest.raises((octavo.SnapshotExpired, octavo.Misuse)):
                machine.store.published(name)
            read_only._dropped.clear()
            with pytest.raises(octavo.SnapshotExpired):
                read_only.opened_published(machine.disk, machine.path, made.path)
            machine.named.pop(name)
            continue
        (found,) = machine.store.published(name)
        assert (found.id, found.name, found.sqn) == (made.id, name, made.sqn)
        if machine.rng.random() < 0.2:
            found.renew(600.0)
            machine.named[name] = found, state, now
        open_named(machine, (found, state, now))


def named_as_before(machine: CombinedMachine) -> None:
    """Of what was published nothing is lost with its owner, or with power."""
    for name, (made, state, now) in list(machine.named.items()):
        machine.named.pop(name)
        if not made.expired:
            (found,) = machine.store.published(name)
            assert (found.id, found.expires_at) == (made.id, made.expires_at)
            machine.named[name] = found, state, now


def open_named(machine: CombinedMachine, of: tuple[octavo.PublishedSnapshot, State, int]) -> None:
    made, state, now = of
    one_fewer(machine)
    reader = read_only.opened_published(machine.disk, machine.path, made.path)
    assert reader.last_sqn == made.sqn
    assert made.id not in {each.id for each in reader.published()} or not made.expired
    machine.pins.append((reader, state, now))
    EveryRead(reader, state, now, machine.rng, machine.kinds).some(2)


def one_fewer(machine: CombinedMachine) -> None:
    read_only._dropped.clear()  # of processes that were lost, on disks that are no more
    if len(machine.pins) > 2:
        machine.pins.pop(0)[0].close()


def read_backup_beside(machine: CombinedMachine) -> None:
    """Another process reads a backup, which its store brings up to date, or others write to,
    meanwhile."""
    if not machine.backups:
        return
    path = machine.rng.choice(sorted(machine.backups))
    log = machine.backups[path]
    one_fewer(machine)
    older = [each for each, _, _ in machine.pins if each.path == path]
    if older and machine.rng.random() < 0.6:
        made = older[-1].newest()
    else:
        made = read_only.opened(machine.disk, path, {})
    machine.pins.append((made, dict(log.state), machine.now))
    machine.check(made, log).everything()
    if machine.rng.random() < 0.3:
        report = made.verify()
        assert report.ok, report.problems[:3]
    horizon = made._found.journal.horizon
    log.told(made.changes(horizon), horizon, horizon)


def twins(machine: CombinedMachine) -> None:
    """A backup, and what is made of it by links, go their own ways; neither sees the other."""
    if not machine.backups:
        return
    rng = machine.rng
    path = rng.choice(sorted(machine.backups))
    log = machine.backups.pop(path)
    restore_on(machine.disk, path, TWIN, sqn=None, time_ms=None, copy=rng.random() < 0.1)
    both = [(where, log.upto(log.highest)) for where in (path, TWIN)]
    for _ in range(rng.choice((1, 2))):
        stores = [(machine.opened(machine.disk, at, create=False), log) for at, log in both]
        for _ in range(rng.choice((1, 3, 8))):
            _go_on(machine, *rng.choice(stores))
        for store, each in stores:
            machine.check(store, each).everything()
            horizon = store._inker.manifest.horizon
            each.told(store.changes(horizon), horizon, horizon)
            each.what_is_left(store.changes(0, compacted=True), machine.now)
            report = store.verify()
            assert report.ok, report.problems[:3]
        for store, _ in stores:
            store.close()
    machine.check(machine.store).everything()
    remove(machine.disk, TWIN)


def _go_on(machine: CombinedMachine, store: octavo.Store, log: EventLog) -> None:
    rng = machine.rng
    for _ in range(rng.choice((0, 1, 10, 70))):
        where = machine.where()
        value = None if rng.random() < 0.2 else machine.value()[:300]
        bucket = store.bucket(where[1], tag=where[0])
        sqn = bucket.delete(where[2]) if value is None else bucket.put(where[2], value)
        log.add(machine.event(where, value)._replace(sqn=sqn))
    if rng.random() < 0.5:
        store._running.bookie.call(Bookie.push)
        machine.pool.go_on(rng.choice((1, 5, 100_000)))
    if rng.random() < 0.4:
        store.compact()


def remove(disk: SimDisk, path: str) -> None:
    """A directory, with all that is in it, for good: no power cut brings it back."""
    _remove(disk, path)
    disk.sync_dir(os.path.dirname(path))


def _remove(disk: SimDisk, path: str) -> None:
    try:
        names = disk.listdir(path)
    except NotADirectoryError:
        disk.unlink(path)
        return
    for name in names:
        _remove(disk, f"{path}/{name}")
    disk.rmdir(path)


def begin_slowly(machine: CombinedMachine) -> None:
    """A feed, a query or a fold, which goes on beside all that follows."""
    rng, store = machine.rng, machine.store
    if len(machine.scans) > 5:
        return
    what = rng.choice(("feed", "query", "items", "heads", "arrow"))
    if what == "feed":
        horizon = store._inker.manifest.horizon
        since = rng.choice((horizon, rng.randrange(horizon, machine.log.highest + 1)))
        machine.scans.append(told_slowly(store.changes(since), machine.log.above(since)))
        return
    reads = machine.check(store)
    if what == "query":
        index, pairs = reads.entries()
        given, wanted = reads.terms(pairs)
        reverse = rng.random() < 0.5
        query = index.range(**given, reverse=reverse)
        machine.scans.append(slowly(query, wanted[::-1] if reverse else wanted))
        return
    tag, snap = rng.choice(machine.kinds), store.snapshot(lease_seconds=1e6)
    rows = [(name, key, event) for (of, name, key), event in reads.live.items() if of == tag]
    by_sqn = sorted(rows, key=lambda row: row[2].sqn)
    found: Iterator[Any]
    if what == "items":
        found = snap.items_by_sqn(tag=tag)
        given_out: list[Any] = [(event.sqn, *where, event.value) for *where, event in by_sqn]
    elif what == "heads":
        found = snap.heads_by_sqn(tag=tag)
        given_out = [(*where, event.head()) for *where, event in by_sqn]
    else:
        batches = snap.to_arrow(["key", "value"], tag=tag, batch_rows=rng.choice((1, 7, 100)))
        found = (row for batch in batches for row in batch.to_pylist())
        given_out = [
            {"key": key, "value": event.value}
            for _, key, event in sorted(rows, key=lambda row: row[:2])
        ]
    machine.scans.append(slowly(found, given_out))


def told_slowly(changes: Iterator[octavo.Change], wanted: list[Event]) -> Iterator[None]:
    for event in wanted:
        same(next(changes), event)
        yield
    assert next(changes, None) is None


KEPT: tuple[tuple[Any, float], ...] = (
    (lease_briefly, 2), (read_brief, 4), (publish_by_name, 1), (read_named, 1.5),
    (read_backup_beside, 1), (twins, 0.4), (begin_slowly, 4),
)  # fmt: skip
