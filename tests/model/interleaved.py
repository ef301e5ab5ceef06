"""A store that one process reads while another one, its owner, does whole steps between any two
operations of that: on one simulated disk, on one thread, so that each run can be had again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from crash_workloads import rolled, save, some
from history import History
from look import NOW_MS, clock_ms, published_objects, read_all
from one_thread import forget, one_thread
from power_cuts import Machine
from simdisk import SimDisk

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.opening.identity import read as identity_of
from octavo.actors.published_reader import PublishedReader
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest import pinning, published
from octavo.manifest.published import Published
from octavo.pipeline.feed_files import JournalLook, records

PATH = "/store"
NAME = "newest"
LEASE_MS = 60_000
JOB = 4
LOOKS = 6

# ---------------------------------------------------------------- what an owner does


def _rolls(machine: Machine, store: octavo.Store) -> None:
    some(machine, store, 2)
    rolled(store)


def _seals(machine: Machine, store: octavo.Store) -> None:
    _rolls(machine, store)
    machine.pool.go_on()


def _saves(machine: Machine, store: octavo.Store) -> None:
    some(machine, store, 2)
    save(machine, store)


def _merges(machine: Machine, store: octavo.Store) -> None:
    for _ in range(5):
        some(machine, store, 1)
        save(machine, store)
    machine.pool.go_on()


def _compacts(machine: Machine, store: octavo.Store) -> None:
    some(machine, store, 3)
    rolled(store)
    machine.pool.go_on()
    store.compact()


def _takes_in(machine: Machine, store: octavo.Store) -> None:
    history = machine.history
    job = f"job{history.number}"
    pairs = [(b"k%d" % key, history.value(b"job" * key)) for key in range(JOB)]
    writer = StagedWriter(machine.disk, PATH, job, "a", now_ms=NOW_MS, file_records=2)
    writer.put_many(b"", [key for key, _ in pairs], [value for _, value in pairs])
    writer.finish()
    history.begin(*(((b"", key), value) for key, value in pairs), batch=True)
    history.done(ingest(store._running, job, ["a"]).last_sqn, durable=True)


def _publishes(machine: Machine, store: octavo.Store) -> None:
    with store.snapshot() as held:
        held.publish(NAME, replace=True, count=False)


def _releases(machine: Machine, store: octavo.Store) -> None:
    for each in store.published():
        if each.name:
            each.release()


def _opens_again(machine: Machine, store: octavo.Store) -> None:
    store.close()
    machine.opened()


def _is_killed(machine: Machine, store: octavo.Store) -> None:
    forget(store)
    machine.pool.work.clear()
    disk = machine.disk
    del disk._locked[id(disk._file(f"{PATH}/LOCK"))]  # who reads has its own still
    machine.opened()


def _sweeps(machine: Machine, store: octavo.Store) -> None:
    published.sweep(machine.disk, PATH, NOW_MS)


def _puts(machine: Machine, store: octavo.Store) -> None:
    some(machine, store, 3)


Step = Callable[[Machine, octavo.Store], None]
STEPS: dict[str, Step] = {
    "puts": _puts,
    "rolls": _rolls,
    "seals": _seals,
    "saves": _saves,
    "merges": _merges,
    "compacts": _compacts,
    "takes in": _takes_in,
    "publishes": _publishes,
    "releases": _releases,
    "opens again": _opens_again,
    "is killed": _is_killed,
    "sweeps": _sweeps,
}


# ---------------------------------------------------------------- who reads meanwhile


class Reading:
    """One who reads; what the owner did meanwhile is in ``steps``."""

    def __init__(self, machine: Machine) -> None:
        self.disk, self.history = machine.disk, machine.history
        self.before = pinning.pin(self.disk, PATH, LEASE_MS, NOW_MS)
        self.look = JournalLook(self.disk, PATH)
        self.steps: list[str] = []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it the owner does nothing."""
        meanwhile, self.disk.at_call = self.disk.at_call, None
        try:
            yield
        finally:
            self.disk.at_call = meanwhile

    def pinned(self, before: Published | None = None) -> str:
        """A state that there was since this began."""
        given = self.history.highest
        found = pinning.pin(self.disk, PATH, LEASE_MS, NOW_MS, before)
        if found.sqn < given:
            return f"pinned at {found.sqn}, though {given} had been given"
        return self._is_state(found)

    def published(self) -> str:
        """The snapshot of a name, linked again, unless it is released meanwhile."""
        try:
            named = published.found(self.disk, PATH, NAME, NOW_MS)
            found = pinning.pin_again(self.disk, PATH, named.path, LEASE_MS, NOW_MS)
        except (octavo.SnapshotExpired, octavo.Misuse) as gone:
            return "" if "releases" in self.steps else str(gone)
        return self._is_state(found)

    def _is_state(self, found: Published) -> str:
        with self.alone():
            reader = PublishedReader(self.disk, found, clock_ms, 64)
            objects = published_objects(reader, identity_of(self.disk, PATH))
        if {where: value for where, (value, _) in objects.items()} != self.history.at(found.sqn):
            return f"the state of {found.sqn} is not {objects}"
        for first, members in self.history.batches.items():
            if first <= found.sqn < first + len(members) - 1:
                return f"{found.sqn} is within the batch, or the job, of {first}"
        return ""

    def followed(self) -> str:
        """Changes from the first one on, some at a time: none twice, none left out but by a
        compaction."""
        look, seen, since = self.look, [], 0
        try:
            for turn in range(LOOKS):
                since = look.end_of(upto := since, 5 if turn % 2 else 0, 0)
                parts = look.parts(upto, since, 300)
                if look.horizon > upto:
                    return ""  # what the feed says then, its own tests look at
                for part in parts:
                    seen += [each.sqn for each in records(self.disk, PATH, part, upto)]
        except octavo.HistoryCompacted:
            return ""
        known = {each.sqn for versions in self.history.versions.values() for each in versions}
        if seen != sorted(sqn for sqn in known if sqn <= since):
            return f"up to {since} the changes are not {seen}"
        return ""


Read = Callable[[Reading], str]
READS: dict[str, Read] = {
    "pin": lambda reading: reading.pinned(),
    "newest": lambda reading: reading.pinned(reading.before),
    "published": Reading.published,
    "feed": Reading.followed,
}


# ---------------------------------------------------------------- both


def interleaved(read: str, steps: Mapping[int, str], seed: int) -> tuple[int, str]:
    """(how many operations the reading takes, what is wrong or nothing), where the owner does these
    steps just before the operations of these numbers, the first of which is 1."""
    disk, calls = SimDisk(), 0
    with one_thread(f"interleaved {seed}") as pool:
        rng = random.Random(f"interleaved {seed}")
        machine = Machine(disk, pool, rng, History())
        filled(machine, seed)
        reading = Reading(machine)
        some(machine, _of(machine), 3)
        if seed % 3 == 0:
            _seals(machine, _of(machine))

        def meanwhile(_operation: str) -> None:
            nonlocal calls
            calls += 1
            if step := steps.get(calls):
                reading.steps.append(step)
                with reading.alone():
                    STEPS[step](machine, _of(machine))

        disk.at_call = meanwhile
        try:
            wrong = READS[read](reading)
        finally:
            disk.at_call = None
        wrong = wrong or wrong_owner(machine)
        forget(_of(machine))
    return calls, wrong


def filled(machine: Machine, seed: int) -> octavo.Store:
    """Two sealed files, a ledger file, what is in memory alone, a published snapshot."""
    store = machine.opened()
    some(machine, store, 8)
    _seals(machine, store)
    _saves(machine, store)
    machine.pool.go_on()
    some(machine, store, 4)
    _publishes(machine, store)
    if seed % 2:
        some(machine, store, 2)
    return store


def _of(machine: Machine) -> octavo.Store:
    if machine.store is None:
        raise AssertionError("no store was opened")
    return machine.store


def wrong_owner(machine: Machine) -> str:
    """What is wrong with what the owner has, who goes on."""
    _puts(machine, _of(machine))
    machine.pool.go_on()
    found, history = read_all(_of(machine)), machine.history
    now = history.now()
    return found.wrong or ("" if found.state == now else f"the owner has {found.state}, not {now}")


MOST_STEPS = 5
LAST_CALL = 90


def drawn(read: str, seed: int, number: int) -> dict[int, str]:
    """Some steps before some operations, which that many a reading may never have."""
    rng = random.Random(f"{seed} {read} {number}")
    places = rng.sample(range(1, LAST_CALL), rng.randint(2, MOST_STEPS))
    return {at: rng.choice(list(STEPS)) for at in places}
