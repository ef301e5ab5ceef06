"""How what the combined machine has comes to an end: consumers that hold back too much, journal
files that compaction replaced, and stores that are destroyed while others read them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from combined_kept import one_fewer, remove
from event_log import EventLog, State
from every_read import EveryRead
from simdisk import SimDisk

import octavo
from octavo import read_only
from octavo.actors.keeping.whole_records import read_whole
from octavo.destroying import destroy_on
from octavo.files.journal.journal_names import identity

if TYPE_CHECKING:
    from combined_machine import CombinedMachine

HOLDS = (None, None, 1, 20_000, 1 << 20)
_DROPPED = re.compile(
    r"consumer '(\w+)' was dropped: over (\d+) bytes of the journal, more than "
    r"consumer_hold_bytes, it held back compaction at sqn (\d+)"
)


def dropped(machine: CombinedMachine) -> None:
    """Consumers go only where they hold back more than they may, and loudly."""
    store, there = machine.store, machine.store.consumers()
    for name in sorted(machine.consumers.keys() - there.keys()):
        position, limit = machine.consumers.pop(name), store._running.options.consumer_hold_bytes
        notes = [_DROPPED.search(note) for note in store.stats()["notes"]]
        told = [(note[1], int(note[3]), int(note[2])) for note in notes if note]
        assert limit is not None, f"{name} was dropped"
        assert any((name, position) == each[:2] and each[2] > limit for each in told), (name, told)


def held_bytes(store: octavo.Store, position: int) -> int:
    upto = store._bookie.view.ledger.persisted_sqn
    sealed = store._running.inker_clerk.actor.sealed()
    return sum(entry.bytes for entry in sealed if position < entry.last_sqn <= upto)


def compact_as_far_as_may_be(machine: CombinedMachine) -> None:
    """Behind it no consumer holds back more than it may."""
    store, limit = machine.store, machine.store._running.options.consumer_hold_bytes
    for _ in range(2):  # what the first one seals counts for the second
        store.compact()
    dropped(machine)
    for name, position in machine.consumers.items():
        assert limit is None or held_bytes(store, position) <= limit, name


def look_into_waste(machine: CombinedMachine) -> None:
    """What compaction replaced is there, whole, for as long as was asked for, and no longer."""
    path, disk, store = f"{machine.path}/waste", machine.disk, machine.store
    kept_ms = int(store._running.options.waste_retention_seconds * 1000)
    for pause in (0, machine.rng.choice((1, kept_ms - 1, kept_ms, kept_ms + 1))):
        machine.now += max(pause, 0)
        before = _names(disk, path)
        files = {name for name in _names(disk, f"{machine.path}/journal") if name[-4:] == ".cdb"}
        store.compact()
        gone = files - _names(disk, f"{machine.path}/journal")
        after = _names(disk, path)
        for name in before | after | {f"{machine.now:016x}-{name}" for name in gone}:
            kept = int(name[:16], 16) + kept_ms > machine.now
            assert (name in after) == kept, (name, machine.now, kept_ms)
    for name in sorted(after)[-4:]:
        who = identity(name[17:])
        assert who is not None, name
        whole = read_whole(disk, f"{path}/{name}", *who)
        assert not whole.faults, whole.faults


def _names(disk: SimDisk, path: str) -> set[str]:
    return set(disk.listdir(path)) if disk.exists(path) else set()


def destroy(machine: CombinedMachine, path: str, state: State) -> None:
    """The store there, beside readers of it, who find what was there, or are told."""
    one_fewer(machine)
    reader, now = read_only.opened(machine.disk, path, {}), machine.now
    reads = EveryRead(reader, state, now, machine.rng, machine.kinds)
    reads.some(machine.rng.choice((0, 2)))
    destroy_on(machine.disk, path)
    assert not machine.disk.exists(path)
    with pytest.raises(octavo.Misuse):
        destroy_on(machine.disk, path)
    with suppress(octavo.SnapshotExpired):
        reads.some(3)
    for look in (reader.verify, reader.newest):
        with pytest.raises((octavo.SnapshotExpired, octavo.Misuse)):
            look()
    reader.close()
    for pin in [each for each in machine.pins if each[0].path == path]:
        with suppress(octavo.SnapshotExpired):
            EveryRead(*pin, machine.rng, machine.kinds).some(2)
        pin[0].close()
        machine.pins.remove(pin)
    assert not machine.disk.exists(path)


def destroy_a_backup(machine: CombinedMachine) -> None:
    """Its files are the store's, too, and those of the other backup."""
    with pytest.raises(octavo.StoreLocked):
        destroy_on(machine.disk, machine.path)
    if not machine.backups:
        return
    path = machine.rng.choice(sorted(machine.backups))
    destroy(machine, path, dict(machine.backups.pop(path).state))
    machine.check(machine.store).everything()
    machine.verify()
    for other in machine.backups:
        machine.read_backup(other)


def begin_anew(machine: CombinedMachine) -> None:
    """The store is destroyed; another one comes to stand there, which has none of it."""
    machine.leave()
    machine.store.close()
    state = dict(machine.log.state)
    if machine.rng.random() < 0.5:
        destroy(machine, machine.path, state)
    else:
        remove(machine.disk, machine.path)
    machine.log = EventLog([], {})
    machine.forget_others()
    machine.open()
    assert not list(machine.store.buckets())
    assert machine.store.published() == []
    for path in sorted(machine.backups):  # of which it is none
        with pytest.raises(octavo.Misuse):
            machine.store.backup(path)
        machine.read_backup(path)
        destroy(machine, path, dict(machine.backups.pop(path).state))


ENDS: tuple[tuple[Any, float], ...] = (
    (compact_as_far_as_may_be, 1), (look_into_waste, 2), (destroy_a_backup, 0.5), (begin_anew, 0.2),
)  # fmt: skip
