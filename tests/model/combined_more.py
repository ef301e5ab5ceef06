"""More of what the combined machine does: a store as a mapping, commits that are repeated, repairs,
and stores that go on where others ended."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from combined_kept import named_as_before, remove
from event_log import Where, in_bucket, live
from one_thread import forget

import octavo
from octavo.actors.compacting import scheduled
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.keeping.ingest import ingest
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.opening import startup
from octavo.repairing import repair_on

if TYPE_CHECKING:
    from combined_machine import CombinedMachine

BACKUPS = ("/backup", "/second")


def as_a_dict(machine: CombinedMachine) -> None:
    """pop, popitem, setdefault, update, clear and del."""
    rng = machine.rng
    where, value = machine.where(), machine.value()
    kind, name, key = where
    bucket = machine.store.bucket(name, tag=kind)
    rows = in_bucket(live(machine.log.state, machine.now), kind, name)
    there = dict(rows).get(key)
    before = machine.log.highest

    def deleted(*keys: bytes) -> None:
        if keys:
            events = [machine.event((kind, name, each), None) for each in keys]
            machine.wrote(machine.store.last_sqn, *events)

    what = rng.choice(
        ("pop", "popitem", "setdefault", "update", "del", *(["clear"] * (not rng.randrange(9))))
    )
    if what == "pop":
        assert bucket.pop(key, b"none") == (there.value if there else b"none")
        deleted(*([key] if there else []))
    elif what == "popitem" and rows:
        first, event = rows[0]
        assert bucket.popitem() == (first, event.value)
        deleted(first)
    elif what == "setdefault":
        assert bucket.setdefault(key, value) == (there.value if there else value)
        if not there:
            machine.wrote(machine.store.last_sqn, machine.event(where, value))
    elif what == "update":
        bucket.update({key: value}, more=value)
        other = (kind, name, b"more")
        events = [machine.event(each, value) for each in (where, other)]
        machine.wrote(machine.store.last_sqn, *events)
    elif what == "clear":
        bucket.clear()
        deleted(*(each for each, _ in rows))
        assert not bucket
    elif there:
        del bucket[key]
        deleted(key)
    else:
        with pytest.raises(KeyError):
            del bucket[key]
    assert machine.log.highest >= before


def out_of_itself(machine: CombinedMachine) -> None:
    """What a scan gives goes into the bucket that it is of, or another one; or is deleted."""
    rng, store = machine.rng, machine.store
    reads = machine.check(store)
    kind, name, source, rows = reads.chosen()
    given, rows = reads.bounds(kind, name, rows)
    if rng.random() < 0.5:
        given["reverse"], rows = True, rows[::-1]
    if rng.random() < 0.4:
        deleted = [machine.event((kind, name, key), None) for key, _ in rows]
        last = source.delete_many(source.keys(**given))
        machine.wrote(last or store.last_sqn, *deleted)
        return
    _, into, _ = machine.where() if rng.random() < 0.5 else (kind, name, b"")
    target = store.bucket(into, tag=kind)
    events = [machine.event((kind, into, key), event.value) for key, event in rows]
    if rng.random() < 0.6:
        last = target.put_many(source.items(**given))
        machine.wrote(last or store.last_sqn, *events)
        return
    with store.batch() as batch:
        for key, value in source.items(**given):
            batch.put(into, key, value, tag=kind)
    machine.wrote(batch.last_sqn or store.last_sqn, *events, batch=True)


def commit_again(machine: CombinedMachine) -> None:
    """What was taken in before changes nothing, whatever became of the store meanwhile."""
    if not machine.committed:
        return
    job, attempts, how, first, last = machine.rng.choice(machine.committed)
    again = ingest(machine.store._running, job, attempts, **how)
    assert again.repeated
    if not how:
        assert (again.first_sqn, again.last_sqn) == (first, last)


def compact_unasked(machine: CombinedMachine) -> None:
    """As on schedule: one run of files, or none."""
    machine.store._running.inker_clerk.call(InkerClerk.unasked, scheduled._best)


def repair_it_closed(machine: CombinedMachine) -> None:
    """Of a store that is whole, or lacks only what its journal says, too, nothing is lost."""
    machine.leave()
    if machine.rng.random() < 0.3:
        forget(machine.store)
        machine.pool.work.clear()
        machine.disk = machine.disk.after_kill()
    else:
        machine.store.close()
    ledger = f"{machine.path}/ledger"
    names = sorted(machine.disk.listdir(ledger)) if machine.disk.exists(ledger) else []
    if names and machine.rng.random() < 0.3:
        remove(machine.disk, f"{ledger}/{machine.rng.choice(names)}")
    timed = partial(startup.start, clock_ms=lambda: machine.now, monotonic=lambda: machine.ticks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "start", timed)
        done = repair_on(machine.disk, machine.path)
    assert done.ok, (done.verified.problems, done.files)
    assert not done.files.rewritten, done.files
    machine.open()
    named_as_before(machine)
    machine.check(machine.store).everything()


def go_on_elsewhere(machine: CombinedMachine) -> None:
    """The store is lost, and one that is restored from a backup, whole or to some point, goes on.
    The backups are none of its own: it can bring none of them up to date, and harms none."""
    rng = machine.rng
    if not machine.backups:
        return
    path = rng.choice(sorted(machine.backups))
    log = machine.backups[path]
    upto = rng.choice((None, None, rng.randrange(max(0, log.highest - 40), log.highest + 1)))
    fresh = "/elsewhere" if machine.path != "/elsewhere" else "/store"
    try:
        restore_on(machine.disk, path, fresh, sqn=upto, time_ms=None, copy=rng.random() < 0.3)
    except (octavo.HistoryCompacted, octavo.Misuse):  # compacted away, or within a batch
        assert upto is not None
        return
    machine.leave()
    machine.store.close()
    machine.log = log if upto is None else log.upto(upto)
    remove(machine.disk, machine.path)
    machine.path = fresh
    machine.forget_others()
    machine.open()
    machine.check(machine.store).everything()
    refused(machine)


def refused(machine: CombinedMachine) -> None:
    """The backups of another store, those that went their own way too, stay as they are, and then
    go."""
    for path in BACKUPS:
        if path == machine.path or not machine.disk.exists(path):
            continue
        with pytest.raises(octavo.Misuse):
            machine.store.backup(path)
        if path in machine.backups:
            machine.read_backup(path)
        remove(machine.disk, path)
    machine.backups.clear()


def stats(machine: CombinedMachine) -> None:
    """What the figures say of consumers and snapshots is so."""
    store, events = machine.store, machine.log.events
    told = store.stats(score=machine.rng.random() < 0.3)
    assert told["last_sqn"] == store.last_sqn
    assert {each["name"]: each["position"] for each in told["consumers"]} == machine.consumers
    for each in told["consumers"]:
        assert each["behind"] == sum(event.sqn > each["position"] for event in events)
    assert told["snapshots"] >= len(machine.snapshots)
    assert json.loads(json.dumps(told)) == told
    assert store.stats_prometheus().count("\n") > 50
    if machine.rng.random() < 0.1:
        assert store.inspect_html().lower().startswith("<!doctype html>")


def not_done(machine: CombinedMachine) -> None:
    """A batch that is discarded, or left by an error, and calls that are refused, write nothing."""
    where, before = machine.where(), machine.store.last_sqn
    batch = machine.store.batch()
    batch.put(where[1], where[2], b"never", tag=where[0])
    batch.discard()
    with pytest.raises(octavo.Closed):
        batch.commit()
    with pytest.raises(KeyError), machine.store.batch() as batch:
        left_by_an_error(batch, where)
    with pytest.raises(octavo.Misuse):
        machine.store.put(b"k" * 70_000, b"never")
    assert machine.store.last_sqn == before


def left_by_an_error(batch: octavo.Batch, where: Where) -> None:
    batch.delete(where[1], where[2], tag=where[0])
    raise KeyError


def consume_from(machine: CombinedMachine) -> None:
    """A consumer that begins at some number, if all that came behind it is still there."""
    rng, store = machine.rng, machine.store
    since = rng.choice((0, store.last_sqn, rng.randrange(store.last_sqn + 1)))
    if "from" in machine.consumers:
        store.consumer("from").drop()
        del machine.consumers["from"]
    horizon = store._inker.manifest.horizon
    try:
        found = store.consumer("from", since=since)
    except octavo.HistoryCompacted:
        assert since < horizon
        return
    assert since >= horizon
    machine.consumers["from"] = since
    machine.log.told(found.changes(), since, horizon)


def read_beside(machine: CombinedMachine) -> None:
    """What else another process that reads the store is told."""
    if not machine.pins:
        return
    made, state, now = machine.rng.choice(machine.pins)
    if machine.now >= made._found.expires_at:
        for read in (made.verify, made.stats, made.consumers):
            with pytest.raises(octavo.SnapshotExpired):
                read()
        return
    assert made.verify().ok
    if made is machine.pins[-1][0] and made._disk is machine.disk and made.path == machine.path:
        assert made.consumers() == machine.consumers
    with made.snapshot() as again:
        assert not list(octavo.compare(made, again))
        places = [(kind, name) for kind in machine.kinds for name in made.buckets(tag=kind)]
        counted = sum(len(again.bucket(name, tag=kind)) for kind, name in places)
        assert counted == len(live(state, now))
    assert made.stats()["last_sqn"] == made.last_sqn


MORE: tuple[tuple[Any, float], ...] = (
    (as_a_dict, 6), (out_of_itself, 2), (commit_again, 1), (compact_unasked, 2),
    (repair_it_closed, 0.5), (go_on_elsewhere, 0.5), (stats, 2),
    (not_done, 1), (consume_from, 1), (read_beside, 1),
)  # fmt: skip
