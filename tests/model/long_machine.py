"""A store against a model, for tens of thousands of steps: every kind of call, over random options,
with a clock that jumps, snapshots, backups, reopenings, kills and power cuts, bulk loads, and what
other processes read of it.

On a simulated disk and one thread, so that a seed says everything. After each step the key that
was touched is read; now and then all of it, each way there is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from history import Found, History, State, Version, Where
from long_machine_more import MORE, MORE_WEIGHTS
from look import FIELD, look, read_all
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import MODES, SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.keeping.restoring import restore_on

HOUR_MS = 3_600_000
YEAR_MS = 8766 * HOUR_MS
JUMPS = (HOUR_MS, -HOUR_MS, 10 * YEAR_MS, -10 * YEAR_MS, 1, -1, 60_000)
KEYS, BUCKETS = 24, (b"", b"docs", b"docs\0")
ALL_ONE_IN = 40


def chosen_options(rng: random.Random) -> dict[str, object]:
    return {
        "sync": rng.choice(("none", "none", "always")),
        "push_rows": rng.choice((64, 65, 200)),
        "roll_count": rng.choice((256, 300)),
        "max_open_files": rng.choice((8, 64)),
        "compression": rng.choice(("lz4", "none")),
        "read_cache_bytes": rng.choice((0, 4096, 1 << 20)),
        "compact_run_length": rng.choice((1, 2, 8)),
        "waste_retention_seconds": rng.choice((0.0, 100.0)),
    }


class LongMachine:
    """One run; ``run(steps)`` raises AssertionError where the store and the model differ."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"machine {seed}")
        self.disk = SimDisk()
        self.history = History()
        self.history.may_be_gone = lambda value: (
            self.expiry.get(value, self.latest + 1) <= (self.latest)
        )
        self.now = self.latest = 1_800_000_000_000
        self.ticks = 0.0
        self.expiry: dict[bytes, int] = {}
        self.hidden: dict[Where, set[bytes | None]] = {}
        """Of keys that were absent behind a power cut: what may have expired, and come back."""
        self.snapshots: list[tuple[octavo.Snapshot, State]] = []
        self.pins: list[tuple[Any, int, Any]] = []
        """Readers of other processes, the end of their leases, and what they saw first."""
        self.jobs = 0
        self.step = 0
        self.done: dict[str, int] = {}

    def run(self, steps: int) -> None:
        with one_thread(f"machine {self.seed}") as pool:
            self.pool: HeldPool = pool
            self.open()
            try:
                for self.step in range(steps):
                    rule = self.rng.choices(RULES, WEIGHTS)[0]
                    self.done[rule.__name__] = self.done.get(rule.__name__, 0) + 1
                    rule(self)
                    self.ticks += 0.001
                    if self.rng.random() < 0.2:
                        pool.go_on(self.rng.randrange(1, 8))
                    if self.rng.randrange(ALL_ONE_IN) == 0:
                        self.compare(self.store, self.history.now())
                self.compare(self.store, self.history.now())
                report = self.store.verify()
                assert report.ok, report.problems[:3]
            except BaseException as error:
                error.add_note(f"seed {self.seed}, step {self.step}, {rule.__name__}")
                raise
            finally:
                forget(self.store)

    # ------------------------------------------------------------ opening

    def open(self) -> None:
        self.store = opened(
            self.disk,
            clock_ms=lambda: self.now,
            monotonic=lambda: self.ticks,
            **chosen_options(self.rng),
        )

    def reopen(self) -> None:
        self.snapshots.clear()
        self.store.close()
        self.open()
        self.compare(self.store, self.history.now())

    def kill(self) -> None:
        """SIGKILL: what was acknowledged is there, synced or not."""
        self.lose(self.disk.after_kill())
        self.compare(self.store, self.history.now())
        if self.rng.random() < 0.2:  # numbers were skipped, and nothing was written above them
            self.save()
            self.backup()

    def cut_the_power(self) -> None:
        self.lose(self.disk.after_crash(self.rng.choice(MODES), self.rng.randrange(1 << 30)))
        found = read_all(self.store)
        found.next_sqn = self.history.highest + 1
        back = {
            where: found.objects.pop(where)
            for where in self.hidden.keys() & found.objects.keys()
            if found.objects[where][0] in self.hidden[where] and not self.sure(where)
        }
        wrong = self.history.wrong(found)
        assert not wrong, wrong
        found.objects.update(back)
        self.take_over(found)

    def lose(self, disk: SimDisk) -> None:
        self.snapshots.clear()
        self.pins.clear()
        forget(self.store)
        self.pool.work.clear()
        self.disk = disk
        self.open()

    def sure(self, where: Where) -> bool:
        """Whether something that was written there since the last power cut is durable."""
        versions = self.history.versions.get(where, [])
        return any(each.sqn <= self.history.durable for each in versions)

    def take_over(self, found: Found) -> None:
        """What was found is what there is now, and it is durable."""
        history = self.history
        for where, versions in history.versions.items():
            older = set() if self.sure(where) else self.hidden.get(where, set())
            expiring = {each.value for each in versions if each.value in self.expiry}
            self.hidden[where] = older | expiring
        for where in found.objects:
            self.hidden.pop(where, None)
        history.versions = {
            where: [Version(sqn, value, 0)] for where, (value, sqn) in found.objects.items()
        }
        history.batches.clear()
        history.all_durable()

    # ------------------------------------------------------------ writing

    def where(self) -> Where:
        return self.rng.choice(BUCKETS), b"k%d" % self.rng.randrange(KEYS)

    def filling(self) -> bytes:
        size = self.rng.choice((0, 5, 30, 300, 3000))
        return self.rng.randbytes(size // 2) + bytes(size - size // 2)

    def put(self) -> None:
        where, value = self.where(), self.history.value(self.filling())
        self.history.begin((where, value))
        sync = self.rng.random() < 0.1
        self.wrote(self.store.bucket(where[0]).put(where[1], value, sync=sync), sync)
        assert self.store.bucket(where[0]).get(where[1]) == value

    def put_with_index(self) -> None:
        where, term = self.where(), self.rng.randrange(6)
        value = self.history.value(self.filling(), term)
        self.history.begin((where, value))
        self.wrote(self.store.bucket(where[0]).put(where[1], value, index={FIELD: term}), False)
        assert where[1] in self.store.bucket(where[0]).index(FIELD).having(term)

    def put_that_expires(self) -> None:
        where, value = self.where(), self.history.value(b"ttl")
        ttl = self.rng.choice((0.001, 1.0, 4000.0, 10.0 * 365 * 86400))
        self.history.begin((where, value))
        bucket = self.store.bucket(where[0])
        self.wrote(bucket.put(where[1], value, ttl=ttl), False)
        head = bucket.head(where[1])
        assert head is not None, f"{where} was put and is not there"
        # Later than by this clock, if it was set back over what was dropped.
        assert head.expires_at is not None
        assert head.expires_at >= self.now + int(ttl * 1000)
        self.expiry[value] = head.expires_at
        assert bucket.get(where[1]) == value

    def put_many(self) -> None:
        name = self.rng.choice(BUCKETS)
        pairs = [
            ((name, b"k%d" % key), self.history.value(self.filling()[:60]))
            for key in self.rng.sample(range(KEYS), self.rng.randrange(1, KEYS))
        ]
        self.history.begin(*pairs)
        last = self.store.bucket(name).put_many((where[1], value) for where, value in pairs)
        self.wrote(last, False)

    def delete(self) -> None:
        where = self.where()
        self.history.begin((where, None))
        self.wrote(self.store.bucket(where[0]).delete(where[1]), False)
        assert self.store.bucket(where[0]).head(where[1]) is None

    def batch(self) -> None:
        wheres = {self.where() for _ in range(self.rng.randrange(1, 6))}
        changes = [
            (where, None if self.rng.random() < 0.2 else self.history.value(self.filling()[:400]))
            for where in sorted(wheres)
        ]
        self.history.begin(*changes, batch=True)
        with self.store.batch() as made:
            for (bucket, key), value in changes:
                if value is None:
                    made.delete(bucket, key)
                else:
                    made.put(bucket, key, value)
        self.wrote(made.last_sqn, False)

    def wrote(self, sqn: int, sync: bool) -> None:
        assert sqn > self.history.highest, f"sqn {sqn} was given twice"
        self.history.done(sqn, durable=sync or self.store._running.options.sync == "always")

    # ------------------------------------------------------------ the whole

    def jump(self) -> None:
        """The clock is set, forward or back. Over a moment at which something had expired, too:
        then it is absent, or there in every way of reading, with its value."""
        self.now = max(self.now + self.rng.choice(JUMPS), 950_000_000_000)
        self.latest = max(self.latest, self.now)
        self.ticks += 0.5

    def roll(self) -> None:
        rolled(self.store)

    def save(self) -> None:
        self.store._running.bookie.call(Bookie.push)
        self.pool.go_on()

    def sync(self) -> None:
        self.store.sync()
        self.history.all_durable()

    def compact(self) -> None:
        self.store.compact()

    def verify(self) -> None:
        report = self.store.verify()
        assert report.ok, report.problems[:3]

    def take_snapshot(self) -> None:
        if len(self.snapshots) > 2:
            self.snapshots.pop(0)[0].close()
        state = {
            where: value
            for where, value in self.history.now().items()
            if self.expiry.get(value, self.latest + 1) > self.latest
        }
        self.snapshots.append((self.store.snapshot(lease_seconds=86400), state))

    def read_snapshots(self) -> None:
        for snapshot, state in self.snapshots:
            found = {
                (name, key): bytes(value)
                for name in snapshot.buckets()
                for key, value in snapshot.bucket(name).items()
            }
            assert {w: v for w, v in found.items() if v not in self.expiry} == {
                w: v for w, v in state.items() if v not in self.expiry
            }, "a snapshot changed"

    def fold(self) -> None:
        with self.store.snapshot() as now:
            items = [tuple(item)[:4] for item in now.items_by_sqn()]
        assert [item[0] for item in items] == sorted(item[0] for item in items)
        found = {(bucket, key): bytes(value) for _, bucket, key, value in items}
        self.same(found, self.history.now())

    def backup(self) -> None:
        self.store.backup("/backup")
        self.history.all_durable()
        copy = self.disk.after_crash("nothing")
        with one_thread("backup"):
            store = opened(copy, "/backup", clock_ms=lambda: self.now, create=False)
            try:
                self.compare(store, self.history.now())
            finally:
                forget(store)
        self.restore()

    def restore(self) -> None:
        """A store that is made of the backup is the state that the backup is of."""
        copy = self.disk.after_crash("nothing")
        with one_thread("restore"):
            restore_on(copy, "/backup", "/restored", sqn=None, time_ms=None, copy=False)
            store = opened(copy, "/restored", clock_ms=lambda: self.now, create=False)
            try:
                self.compare(store, self.history.now())
            finally:
                forget(store)

    # ------------------------------------------------------------ comparing

    def compare(self, store: octavo.Store, state: State) -> None:
        found = read_all(store)
        self.same(found.state, state)
        wrong = self.history._wrong_entries(found)
        assert not wrong, wrong

    def same(self, found: State, state: State) -> None:
        for where in found.keys() | state.keys():
            value, expected = found.get(where), state.get(where)
            ends = self.expiry.get(expected or b"")
            if ends is not None and value is None:
                assert ends <= self.latest, f"{where} is gone before its time"
                continue
            if where in self.history.versions or value not in self.hidden.get(where, ()):
                told = f"{where}: {value!r} is found, {expected!r} was written"
                assert value == expected, told
            ends = self.expiry.get(value or b"")
            assert ends is None or ends > self.now, f"{where} has expired and is there"


RULES: tuple[Callable[[LongMachine], None], ...] = (
    LongMachine.put, LongMachine.put_with_index, LongMachine.put_that_expires,
    LongMachine.put_many, LongMachine.delete, LongMachine.batch, LongMachine.jump,
    LongMachine.roll, LongMachine.save, LongMachine.sync, LongMachine.compact, LongMachine.verify,
    LongMachine.take_snapshot, LongMachine.read_snapshots, LongMachine.fold, LongMachine.backup,
    LongMachine.reopen, LongMachine.kill, LongMachine.cut_the_power, *MORE,
)  # fmt: skip
WEIGHTS = (300, 100, 60, 20, 90, 70, 25, 6, 6, 10, 3, 3, 15, 15, 15, 3, 5, 5, 5, *MORE_WEIGHTS)

__all__ = ["LongMachine", "look"]
