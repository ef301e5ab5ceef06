"""A call of a store, while another thread makes whole calls of it between any two operations that
the first one asks of the disk."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping

from history import History, Version
from interleaved import PATH, STEPS, Step, filled, wrong_owner
from look import NOW_MS, clock_ms, look, published_objects
from one_thread import forget, one_thread
from power_cuts import Machine
from simdisk import SimDisk

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.opening.identity import read as identity_of
from octavo.actors.published_reader import PublishedReader
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest import published

WAIT_SECONDS = 0.1
"""For a step: one that waits for what the first call has goes on beside that."""
END_SECONDS = 120.0
JOB = 4

# ---------------------------------------------------------------- what the other thread does


def _backs_up(machine: Machine, store: octavo.Store) -> None:
    store.backup(f"/other{machine.history.number}")


def _syncs(machine: Machine, store: octavo.Store) -> None:
    store.sync()


def _verifies(machine: Machine, store: octavo.Store) -> None:
    if problems := store.verify().problems:
        raise AssertionError(f"verify: {problems[:3]}")


def _consumes(machine: Machine, store: octavo.Store) -> None:
    since = store._running.inker.actor.manifest.horizon
    try:
        consumer = store.consumer("mail", since=since)
    except octavo.HistoryCompacted:
        return  # the first call has compacted since
    if seen := [change.sqn for change in consumer.changes()]:
        consumer.acknowledge(seen[len(seen) // 2])


ALONE = ("opens again", "is killed", "sweeps")
"""What an owner does not do in the midst of its own calls."""
OTHERS: dict[str, Step] = {
    **{name: step for name, step in STEPS.items() if name not in ALONE},
    "backs up": _backs_up,
    "syncs": _syncs,
    "verifies": _verifies,
    "consumes": _consumes,
}

# ---------------------------------------------------------------- the first call

Judge = Callable[[], str]


def _right() -> str:
    return ""


def _backup(machine: Machine, store: octavo.Store) -> Judge:
    done = store.backup("/backup")

    def judge() -> str:
        found = look(
            machine.disk.after_crash("all"), "/backup", rests=False, verifies=True, create=False
        )
        same = found.state == machine.history.at(done.sqn)
        return found.wrong or ("" if same else f"the backup is not the state of {done.sqn}")

    return judge


def _compact(machine: Machine, store: octavo.Store) -> Judge:
    store.compact()
    return _right


def _publish(machine: Machine, store: octavo.Store) -> Judge:
    with store.snapshot() as held:
        sqn, shown = held.sqn, held.publish("mine", count=True)

    def judge() -> str:
        try:
            path = published.found(machine.disk, PATH, shown.id, NOW_MS).path
            there = published.read(machine.disk, path)
        except octavo.SnapshotExpired:
            return ""  # the other thread has released it
        reader = PublishedReader(machine.disk, there, clock_ms, 64)
        objects = published_objects(reader, identity_of(machine.disk, PATH))
        state = {where: value for where, (value, _) in objects.items()}
        return "" if state == machine.history.at(sqn) else f"what is published is not that of {sqn}"

    return judge


def _verify(machine: Machine, store: octavo.Store) -> Judge:
    _verifies(machine, store)
    return _right


def _items(machine: Machine, store: octavo.Store) -> Judge:
    with store.snapshot() as snapshot:
        sqn, state = snapshot.sqn, {}
        for bucket in store.buckets():
            rows = snapshot.bucket(bucket).items()
            state.update({(bucket, key): value for key, value in rows})
    return lambda: "" if state == machine.history.at(sqn) else f"the items are not those of {sqn}"


def _changes(machine: Machine, store: octavo.Store) -> Judge:
    newest = store.last_sqn
    seen = [change.sqn for change in store.changes(0, compacted=True)]

    def judge() -> str:
        versions = machine.history.versions.values()
        live = {each[-1].sqn for each in versions if each[-1].value is not None}
        if missed := {sqn for sqn in live if sqn <= newest} - set(seen):
            return f"changes leave out {sorted(missed)}"
        return "" if seen == sorted(set(seen)) else f"changes are out of order: {seen}"

    return judge


def _commit(machine: Machine, store: octavo.Store) -> Judge:
    history = machine.history
    pairs = [(b"k%d" % key, history.value(b"mine" * key)) for key in range(JOB)]
    writer = StagedWriter(machine.disk, PATH, "mine", "a", now_ms=NOW_MS, file_records=2)
    writer.put_many(b"", [key for key, _ in pairs], [value for _, value in pairs])
    writer.finish()
    done = ingest(store._running, "mine", ["a"])
    for sqn, (key, value) in enumerate(pairs, done.first_sqn):
        versions = history.versions.setdefault((b"", key), [])
        versions.append(Version(sqn, value, 0))
        versions.sort(key=lambda each: each.sqn)
    history.highest = max(history.highest, done.last_sqn)
    return _right


CALLS: dict[str, Callable[[Machine, octavo.Store], Judge]] = {
    "backup": _backup,
    "compact": _compact,
    "publish": _publish,
    "verify": _verify,
    "items": _items,
    "changes": _changes,
    "commit": _commit,
}

# ---------------------------------------------------------------- both


class _Other:
    """The other thread, one step at a time."""

    def __init__(self, machine: Machine, store: octavo.Store) -> None:
        self._machine, self._store = machine, store
        self._thread: threading.Thread | None = None
        self.wrong = ""

    def does(self, step: str) -> None:
        """Begin with a step, unless the one before waits still, and wait for it a moment."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._work, args=(step,), daemon=True)
        self._thread.start()
        self._thread.join(WAIT_SECONDS)

    def _work(self, step: str) -> None:
        try:
            OTHERS[step](self._machine, self._store)
        except octavo.Busy:
            pass
        except Exception as error:
            self.wrong = self.wrong or f"{step}: {error!r}"
            raise

    def ends(self) -> None:
        if self._thread is not None:
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                self.wrong = "the other thread waits for ever"


def interleaved_calls(call: str, steps: Mapping[int, str], seed: int) -> tuple[int, str]:
    """(how many operations the call takes, what is wrong or nothing), where another thread does
    these steps just before the operations of these numbers, the first of which is 1."""
    disk, calls, me = SimDisk(), 0, threading.get_ident()
    with one_thread(f"calls {seed}") as pool:
        machine = Machine(disk, pool, random.Random(f"calls {seed}"), History())
        store = filled(machine, seed)
        other = _Other(machine, store)

        def meanwhile(_operation: str) -> None:
            nonlocal calls
            if threading.get_ident() != me:
                return
            calls += 1
            if step := steps.get(calls):
                with disk.given_up():
                    other.does(step)

        disk.at_call = meanwhile
        judge = _right
        try:
            judge = CALLS[call](machine, store)
        except octavo.Busy:
            pass  # the other thread compacts, say
        finally:
            disk.at_call = None
            other.ends()
        wrong = other.wrong or judge() or wrong_owner(machine)
        _verifies(machine, store)
        forget(store)
    return calls, wrong


def drawn_calls(call: str, seed: int, number: int, most: int) -> dict[int, str]:
    """Some steps before some of the operations up to ``most``."""
    rng = random.Random(f"{seed} {call} {number}")
    places = rng.sample(range(1, most + 1), min(rng.randint(1, 4), most))
    return {at: rng.choice(list(OTHERS)) for at in places}
