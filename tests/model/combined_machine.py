"""A store against the log of all its events: what other machines never do at once, over sizes at
which its deepest ways are taken after a few hundred rows.

On a simulated disk and one thread, so that a seed says everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from combined_ends import ENDS, HOLDS, dropped
from combined_kept import KEPT, Brief, named_as_before, remove
from combined_more import BACKUPS, MORE, refused
from event_log import NO_ENTRIES, Entries, Event, EventLog, State, Where, in_bucket, live, rank
from every_read import KINDS, EveryRead, shape, slowly
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import MODES, SimDisk
from small_sizes import small_sizes
from spark_reads import Published, SparkReads, feed
from staged_rows import StagedRow, operations
from whole_store import rolled

import octavo
from octavo import IndexEdit, Tag, read_only
from octavo.actors.bookie import Bookie
from octavo.actors.compacting import joining
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.keeping.ingest import ingest
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.reading import guide
from octavo.files.handover.staged_writer import StagedWriter
from octavo.pipeline import offline, offline_journal

BUCKETS = (b"", b"b", b"b\0", b"b\0\0", b"\xff", "é".encode())
ODD_KEYS = (
    b"\0", b"\0\0", b"\xff", b"\xff\xff", b"\xff" * 9, b"a", b"a\0", b"a\0\0", b"aa", b"a\xff",
    "é".encode(), "e\u0301".encode(), b"k" * 255, b"k" * 256, b"k" * 257, b"k" * 65_530,
    b"k" * 65_529 + b"l",
)  # fmt: skip
FIELDS = (b"f", b"f\0", b"\xff")
TERMS = (0, -1, 1, 255, 256, -(1 << 70), b"", b"\0", b"a\0\xff", b"\xff", "", "a", "é")
LEASE = 3e7


def sized(key: bytes, value: bytes) -> dict[str, Any]:
    """Index entries of the type "sized"."""
    return {"f": [len(value), value[:1]]}


TAGS = {"sized": Tag(index=sized, metadata=lambda key, value: value[:2]), "plain": Tag()}
KINDS_OF_OBJECTS = ("standard", "sized", "plain")


class CombinedMachine:
    """One run; ``run(steps)`` raises AssertionError where the store and its log differ."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(f"combined {seed}")
        self.disk = SimDisk()
        self.path = "/store"
        self.now = 1_800_000_000_000
        self.ticks = 0.0
        self.log = EventLog([], {})
        self.number = 0
        self.step = 0
        self.jobs = 0
        self.snapshots: list[tuple[octavo.Snapshot, State, int]] = []
        self.published: list[tuple[str, Published]] = []
        self.pins: list[tuple[Any, State, int]] = []
        self.brief: list[Brief] = []
        self.named: dict[str, tuple[octavo.PublishedSnapshot, State, int]] = {}
        self.scans: list[Iterator[None]] = []
        self.consumers: dict[str, int] = {}
        self.committed: list[tuple[str, list[str], dict[str, Any], int, int]] = []
        """Job, attempts, its stream and batch, first and last sqn."""
        self.backups: dict[str, EventLog] = {}
        self.keys = rng.choice((4, 40, 300))
        self.large = rng.choice((0.001, 0.001, 0.02))
        self.odd = rng.random() * rng.choice((0, 0.2, 1))
        self.kinds = rng.choice((("standard",), KINDS_OF_OBJECTS))
        self.strategies = self.choose_strategies()
        self.done: dict[str, int] = {}

    def choose_strategies(self) -> dict[str, str]:
        return {
            kind: self.rng.choice(("recovr", "retain", *(["recalc"] * (kind == "sized"))))
            for kind in self.kinds
        }

    def run(self, steps: int) -> None:
        with ExitStack() as world:
            self.pool: HeldPool = world.enter_context(one_thread(f"combined {self.seed}"))
            self.sizes = world.enter_context(small_sizes(self.rng))
            self.stand_in(world.enter_context(pytest.MonkeyPatch.context()))
            rules, weights = self.rules()
            self.open()
            name = "open"
            try:
                for self.step in range(steps):
                    rule = self.rng.choices(rules, weights)[0]
                    name = rule.__name__
                    self.done[name] = self.done.get(name, 0) + 1
                    rule(self)
                    self.between()
                name = "end"
                self.check(self.store).everything()
                self.verify()
                self.leave()
                self.store.close()
            except BaseException as error:
                error.add_note(f"seed {self.seed}, step {self.step}, {name}")
                raise
            finally:
                forget(self.store)

    def stand_in(self, patch: pytest.MonkeyPatch) -> None:
        """What is not on this thread, or goes by another clock."""
        patch.setattr(guide, "POOL", self.pool)
        patch.setattr(read_only, "wall_clock_ms", lambda: self.now)
        for name, size in (("STRETCH_SQNS", 300), ("RANGE_ROWS", 200)):
            patch.setattr(offline, name, size)
        patch.setattr(offline_journal, "RUN_BYTES", 96 << 10)

    def rules(self) -> tuple[list[Callable[[CombinedMachine], None]], list[float]]:
        """Each with a weight of this run: what comes seldom in one comes often in another."""
        chosen = [(rule, weight * self.rng.choice((0.2, 1, 1, 3))) for rule, weight in RULES]
        return [rule for rule, _ in chosen], [weight for _, weight in chosen]

    def between(self) -> None:
        rng = self.rng
        self.now += rng.choice((0, 0, 1, 7))
        self.ticks += 0.001
        if rng.random() < 0.3:
            self.pool.go_on(rng.randrange(1, 8))
        dropped(self)
        self.check(self.store).some(rng.choice((0, 1, 1, 3)))
        for scan in self.scans[:]:
            for _ in range(rng.choice((0, 0, 1, 5, 200))):
                if next(scan, self) is self:
                    self.scans.remove(scan)
                    break

    def check(self, source: Any, log: EventLog | None = None) -> EveryRead:
        log = log or self.log
        return EveryRead(source, log.state, self.now, self.rng, self.kinds)

    # ------------------------------------------------------------ opening, ending

    def opened(self, disk: SimDisk, path: str, **given: object) -> octavo.Store:
        rng = self.rng
        return opened(
            disk, path, clock_ms=lambda: self.now, monotonic=lambda: self.ticks,
            push_rows=rng.choice((64, 65, 200)), roll_count=rng.choice((256, 300)),
            roll_size_bytes=1 << 20,
            max_open_files=rng.choice((8, 64)), compression=rng.choice(("lz4", "none")),
            read_cache_bytes=rng.choice((0, 4096, 1 << 20)),
            compact_run_length=rng.choice((1, 2, 8)), tags=TAGS, strategies=self.strategies,
            sync=rng.choice(("none", "none", "always")),
            compact_single_percent=rng.choice((0, 30, 100)),
            compact_run_percent=rng.choice((0, 70, 100)),
            compact_score_one_in=rng.choice((1, 3)),
            waste_retention_seconds=rng.choice((0.0, 0.0, 100.0)),
            consumer_hold_bytes=rng.choice(HOLDS),
            **given,
        )  # fmt: skip

    def open(self) -> None:
        if self.rng.random() < 0.3:
            self.strategies = self.choose_strategies()
        self.store = self.opened(self.disk, self.path)

    def leave(self) -> None:
        """What hangs on the open store ends."""
        self.scans.clear()
        for brief in self.brief:
            brief.snapshot.close()
        self.brief.clear()
        for snapshot, _, _ in self.snapshots:
            snapshot.close()
        for pin, _, _ in self.pins:
            pin.close()
        self.snapshots.clear()
        self.pins.clear()
        self.store.snapshot().close()
        assert self.store.stats()["snapshots"] == 0, "what is closed holds a lease"

    def reopen(self) -> None:
        self.leave()
        self.store.close()
        self.open()

    def work_on_it_closed(self) -> None:
        """Tasks compact, rebuild or merge it, which nobody has open."""
        self.leave()
        self.store.close()
        where = (lambda: self.disk, self.path, offline.Run())
        work = self.rng.choice(("compact", "rebuild", "merge"))
        if work == "compact" or "recalc" in self.strategies.values():  # which refuses the others
            offline_journal.compacted(*where)
        elif work == "merge":
            offline._merge(*where)
        else:
            offline._rebuild(*where, merge=self.rng.random() < 0.5)
        self.open()
        self.check(self.store).everything()

    def lose_the_ledger(self) -> None:
        self.leave()
        self.store.close()
        remove(self.disk, f"{self.path}/ledger")
        self.open()
        self.check(self.store).everything()

    def kill(self) -> None:
        self.lose(self.disk.after_kill())

    def cut_the_power(self) -> None:
        """Behind a sync: nothing is lost, whatever else was going on."""
        self.store.sync()
        self.lose(self.disk.after_crash(self.rng.choice(MODES), self.rng.randrange(1 << 30)))

    def lose(self, disk: SimDisk) -> None:
        for made in (*self.snapshots, *self.pins):
            made[0]._shared._closed = True
        self.scans.clear()
        self.brief.clear()
        self.snapshots.clear()
        self.pins.clear()
        forget(self.store)
        self.pool.work.clear()
        self.disk = disk
        self.open()
        named_as_before(self)
        self.check(self.store).everything()

    # ------------------------------------------------------------ choosing

    def key(self) -> bytes:
        if self.rng.random() < self.odd:
            return self.rng.choice(ODD_KEYS)
        return b"k%04d" % self.rng.randrange(self.keys)

    def where(self) -> Where:
        rng = self.rng
        return rng.choice(self.kinds), rng.choice(BUCKETS[: rng.choice((1, 2, 6))]), self.key()

    def value(self) -> bytes:
        rng = self.rng
        self.number += 1
        size = rng.choice((0, 0, 1, 5, 30, 200, 255, 256, 257, 2047, 2048, 2049, 4096))
        if rng.random() < self.large:
            size = (1 << 20) + rng.randrange(-9, 9)
        half = rng.choice((0, size // 2, size))
        return (b"%d:" % self.number + rng.randbytes(half))[:size] + bytes(size - half)

    def index(self) -> dict[bytes, list[Any]]:
        rng = self.rng
        return {
            field: rng.sample(TERMS, rng.randrange(1, 4))
            for field in rng.sample(FIELDS, rng.choice((0, 1, 1, 2)))
        }

    def options(self, where: Where, state: State) -> tuple[dict[str, Any], bytes, int, Entries]:
        """Arguments of a put, and what comes of them: metadata, expiry and entries."""
        rng = self.rng
        given: dict[str, Any] = {}
        metadata, expiry, entries = b"", 0, NO_ENTRIES
        if rng.random() < 0.4 and where[0] != "sized":
            given["metadata"] = metadata = rng.choice((b"m", b"meta", bytes(300), rng.randbytes(9)))
        if rng.random() < 0.3:
            expiry = rng.choice((5, self.now, self.now + 1, self.now + 40, self.now + 9_000_000))
            given["expires_at"] = expiry
        if rng.random() < 0.5 and where[0] != "sized":
            given["index"] = made = self.index()
            entries = whole(made)
            if rng.random() < 0.3:
                remove = {field: rng.choice((None, [rng.choice(TERMS)])) for field in FIELDS[:2]}
                given["index"] = IndexEdit(add=made, remove=remove)
                before = state.get(where)
                if before is not None and before.lives(self.now):
                    entries |= edited(before.entries, remove)
        return given, metadata, expiry, entries

    def event(
        self, where: Where, value: bytes | None, metadata: bytes = b"", expiry: int = 0,
        entries: Entries = NO_ENTRIES,
    ) -> Event:  # fmt: skip
        """One that has no number yet."""
        if where[0] == "sized" and value is not None:
            entries = frozenset({(b"f", len(value)), (b"f", value[:1])})
            metadata = value[:2]
        return Event(0, where, value, metadata, expiry, entries, self.now, None)

    def wrote(self, last: int, *events: Event, batch: bool = False) -> None:
        for place, event in enumerate(events):
            sqn = last - len(events) + 1 + place
            told = (place, len(events)) if batch and len(events) > 1 else None
            self.log.add(event._replace(sqn=sqn, batch=told))
        assert last == self.store.last_sqn

    def live_sqn(self, where: Where) -> int:
        event = self.log.state.get(where)
        return event.sqn if event is not None and event.lives(self.now) else 0

    # ------------------------------------------------------------ writing

    def put(self) -> None:
        where, value = self.where(), self.value()
        sqn = self.store.bucket(where[1], tag=where[0]).put(where[2], value)
        self.wrote(sqn, self.event(where, value))

    def put_with_options(self) -> None:
        where, value = self.where(), self.value()
        given, *rest = self.options(where, self.log.state)
        if self.rng.random() < 0.3:
            given["if_sqn"] = self.live_sqn(where)
        sqn = self.store.bucket(where[1], tag=where[0]).put(where[2], value, **given)
        self.wrote(sqn, self.event(where, value, *rest))

    def conflict(self) -> None:
        where = self.where()
        bucket = self.store.bucket(where[1], tag=where[0])
        known = self.log.state.get(where)
        wrong = {0, 1 << 60, known.sqn if known else 1} - {self.live_sqn(where)}
        expected = self.rng.choice(sorted(wrong))
        deletes = self.rng.random() < 0.5
        write = bucket.delete if deletes else partial(bucket.put, value=b"never")
        with pytest.raises(octavo.Conflict) as told:
            write(where[2], if_sqn=expected)
        assert (told.value.expected, told.value.found) == (expected, self.live_sqn(where))

    def delete(self) -> None:
        where = self.where()
        given = {"if_sqn": self.live_sqn(where)} if self.rng.random() < 0.3 else {}
        sqn = self.store.bucket(where[1], tag=where[0]).delete(where[2], **given)
        self.wrote(sqn, self.event(where, None))

    def put_many(self) -> None:
        kind, name, _ = self.where()
        count = self.rng.choice((1, 5, 40, 90))
        first = self.rng.randrange(self.keys)
        if self.rng.random() < 0.5:
            keys = [self.key() for _ in range(count)]
        else:
            keys = [b"k%04d" % number for number in range(first, first + count)]
        pairs = [(key, self.value()[:300]) for key in keys]
        last = self.store.bucket(name, tag=kind).put_many(pairs)
        self.wrote(last, *(self.event((kind, name, key), value) for key, value in pairs))

    def delete_range(self) -> None:
        """From either end, as from a queue, or a stretch of keys."""
        kind, name, _ = self.where()
        bucket = self.store.bucket(name, tag=kind)
        rows = in_bucket(live(self.log.state, self.now), kind, name)
        reverse = self.rng.random() < 0.4
        count = self.rng.choice((1, 3, 20, 100))
        if self.rng.random() < 0.5:
            found = list(bucket.keys(reverse=reverse, limit=count))
            assert found == [key for key, _ in (rows[::-1] if reverse else rows)][:count]
            if found:
                last = bucket.delete_many(found)
                self.wrote(last, *(self.event((kind, name, key), None) for key in found))
            return
        for _ in range(count):
            found = list(bucket.keys(reverse=reverse, limit=1))
            assert found == [key for key, _ in (rows[-1:] if reverse else rows[:1])]
            if not found:
                break
            rows.pop(-1 if reverse else 0)
            self.wrote(bucket.delete(found[0]), self.event((kind, name, found[0]), None))

    def pop_from_index(self) -> None:
        """Take jobs by their terms, and put some back with others."""
        kind, name, _ = self.where()
        field, reverse = self.rng.choice(FIELDS), self.rng.random() < 0.4
        bucket = self.store.bucket(name, tag=kind)
        for _ in range(self.rng.choice((1, 5, 30))):
            pairs = sorted(
                (
                    (term, key)
                    for key, event in in_bucket(live(self.log.state, self.now), kind, name)
                    for of, term in event.entries
                    if of == field
                ),
                key=lambda pair: (rank(pair[0]), pair[1]),
            )
            found = list(bucket.index(field).range(reverse=reverse, limit=1))
            assert found == (pairs[-1:] if reverse else pairs[:1])
            if not found:
                break
            where = (kind, name, found[0][1])
            if self.rng.random() < 0.3 and kind != "sized":
                index = self.index()
                sqn = bucket.put(where[2], b"again", index=index)
                self.wrote(sqn, self.event(where, b"again", entries=whole(index)))
            else:
                self.wrote(bucket.delete(where[2]), self.event(where, None))

    def batch(self) -> None:
        rng = self.rng
        places = [self.where() for _ in range(rng.choice((1, 2, 5, 30)))]
        places = [rng.choice(places) for _ in places] if rng.random() < 0.5 else places
        state, events, failing = dict(self.log.state), [], False
        batch = self.store.batch()
        for where in places:
            condition: dict[str, Any] = {}
            if rng.random() < 0.2:
                wrong = rng.random() < 0.1
                condition["if_sqn"] = (1 << 50) if wrong else self.live_sqn(where)
                failing |= wrong
            if rng.random() < 0.3:
                batch.delete(where[1], where[2], tag=where[0], **condition)
                event = self.event(where, None)
            else:
                value = self.value()[:300]
                given, *rest = self.options(where, state) if rng.random() < 0.5 else ({},)
                batch.put(where[1], where[2], value, tag=where[0], **given, **condition)
                event = self.event(where, value, *rest)
            events.append(event)
            state[where] = event
        try:
            last = batch.commit()
        except octavo.Conflict:
            assert failing
            return
        assert not failing
        self.wrote(last, *events, batch=True)

    def take_files_in(self) -> None:
        """A bulk load, of some attempts, of plain rows or of every kind."""
        rng = self.rng
        self.jobs += 1
        job, attempts, events = f"job{self.jobs}", [], []
        staged = self.now - rng.choice((0, 5, 100_000))
        plain = rng.random() < 0.4
        for part in range(rng.choice((1, 1, 2, 3))):
            writer = StagedWriter(
                self.disk, self.path, job, f"a{part}", now_ms=staged,
                file_records=rng.choice((3, 50, 1000)),
            )  # fmt: skip
            for _ in range(rng.choice((1, 2))):
                rows = []
                for _ in range(rng.choice((1, 5, 60))):
                    _, name, key = self.where()
                    row = StagedRow(name if not plain else b"b", key, self.value()[:300])
                    if not plain:
                        gone = rng.random() < 0.2
                        row = row._replace(
                            value=None if gone else row.value,
                            expiry_ms=0 if gone else rng.choice((0, 0, 5, self.now + 30)),
                            metadata=b"" if gone else rng.choice((b"", b"m")),
                        )
                    rows.append(row)
                writer.add(operations(rows))
                events += [
                    Event(
                        0, ("standard", row.bucket, row.key), row.value, row.metadata,
                        row.expiry_ms, NO_ENTRIES, staged, None,
                    )
                    for row in rows
                ]  # fmt: skip
            writer.finish()
            attempts.append(f"a{part}")
        how: dict[str, Any] = {}
        if rng.random() < 0.4:
            how = {"stream": "s", "batch": self.jobs}
        found = ingest(self.store._running, job, attempts, **how)
        assert found.last_sqn - found.first_sqn + 1 == len(events)
        self.committed.append((job, attempts, how, found.first_sqn, found.last_sqn))
        self.wrote(found.last_sqn, *events)

    # ------------------------------------------------------------ upkeep

    def roll(self) -> None:
        rolled(self.store)

    def save(self) -> None:
        self.store._running.bookie.call(Bookie.push)
        self.pool.go_on(self.rng.choice((0, 1, 100_000)))

    def rest(self) -> None:
        self.pool.go_on()

    def sync(self) -> None:
        self.store.sync()

    def let_time_pass(self) -> None:
        self.now += self.rng.choice((50, 1000, 3_700_000))

    def compact(self) -> None:
        self.store.compact()

    def put_together(self) -> None:
        """Small files of the journal, as commits and rolls leave them."""
        for _ in range(self.rng.choice((0, 4, 12))):
            self.put()
            self.roll()
        self.pool.go_on()
        clerk = self.store._running.inker_clerk
        while clerk.call(InkerClerk.unasked, joining.join):
            pass

    def verify(self) -> None:
        report = self.store.verify()
        assert report.ok, report.problems[:3]

    # ------------------------------------------------------------ what stays as it was

    def take_snapshot(self) -> None:
        if len(self.snapshots) > 3:
            self.snapshots.pop(self.rng.randrange(4))[0].close()
        made = self.store.snapshot(lease_seconds=LEASE)
        self.snapshots.append((made, dict(self.log.state), self.now))

    def read_snapshots(self) -> None:
        for made, state, now in self.snapshots:
            EveryRead(made, state, now, self.rng, self.kinds).some(4)
            by = self.rng.choice((None, None, "sqn", "value"))
            found = octavo.compare(made, self.store, by=by)  # type: ignore[arg-type]
            differ = {(d.tag, d.bucket, d.key) for d in found}
            assert differ == self.differing(live(state, now), by == "value")

    def differing(self, before: State, by_value: bool) -> set[Where]:
        after = live(self.log.state, self.now)

        def version(event: Event | None) -> Any:
            if event is None or not by_value:
                return event and event.sqn
            return event.value, event.metadata, event.expiry

        return {
            where
            for where in before.keys() | after.keys()
            if version(before.get(where)) != version(after.get(where))
        }

    def begin_scan(self) -> None:
        """One that goes on beside all that follows."""
        reads = self.check(self.store)
        tag, name, bucket, rows = reads.chosen()
        given, wanted = reads.bounds(tag, name, rows)
        if self.rng.random() < 0.5:
            given["reverse"], wanted = True, wanted[::-1]
        kind = self.rng.choice(KINDS)
        if len(self.scans) < 6:
            scan = getattr(bucket, kind)(**given)
            self.scans.append(slowly(scan, shape(kind, wanted)))

    # ------------------------------------------------------------ feeds

    def changes(self) -> None:
        log, rng = self.log, self.rng
        since = rng.choice((0, log.highest, rng.randrange(log.highest + 1)))
        horizon = self.store._inker.manifest.horizon
        try:
            log.told(self.store.changes(since), since, horizon)
        except octavo.HistoryCompacted:
            assert since < horizon
        log.told(self.store.changes(horizon), horizon, horizon)
        log.what_is_left(self.store.changes(0, compacted=True), self.now)

    def consume(self) -> None:
        """Durable consumers see all behind their positions, whatever was compacted."""
        rng = self.rng
        assert self.store.consumers() == self.consumers
        name = rng.choice(("mail", "search"))
        if name not in self.consumers:
            self.consumers[name] = self.store.last_sqn
            self.store.consumer(name)
            return
        consumer = self.store.consumer(name)
        horizon = self.store._inker.manifest.horizon
        self.log.told(consumer.changes(), self.consumers[name], horizon)
        if rng.random() < 0.1:
            consumer.drop()
            del self.consumers[name]
        else:
            upto = rng.randrange(self.consumers[name], self.store.last_sqn + 1)
            consumer.acknowledge(upto)
            self.consumers[name] = upto

    # ------------------------------------------------------------ other processes

    def pin(self) -> None:
        """Another process reads the store as it is now."""
        if len(self.pins) > 2:
            self.pins.pop(0)[0].close()
        read_only._dropped.clear()  # of processes that were lost, on disks that are no more
        older = self.pins[-1][0] if self.pins and self.rng.random() < 0.6 else None
        if older is not None and older._disk is self.disk and older.path == self.path:
            made = older.newest()
        else:
            made = read_only.opened(self.disk, self.path, {})
        # After a kill the owner goes on above numbers that nobody has.
        assert made.last_sqn in (self.store.last_sqn, self.log.highest)
        self.pins.append((made, dict(self.log.state), self.now))
        horizon = self.store._inker.manifest.horizon
        self.log.told(made.changes(horizon), horizon, horizon)

    def read_pins(self) -> None:
        for pin in self.pins[:]:
            made, state, now = pin
            ends = made._found.expires_at  # leases of an hour, which only reads renew
            try:
                EveryRead(made, state, now, self.rng, self.kinds).some(4)
            except octavo.SnapshotExpired:
                assert self.now >= ends, "a lease ended before its time"
                made.close()
                self.pins.remove(pin)

    def publish(self) -> None:
        """For tasks of Spark, which read it and what changed between two."""
        if len(self.published) > 2:
            (old,) = self.store.published(self.published.pop(self.rng.randrange(3))[0])
            old.release()
        counted = self.rng.random() < 0.5
        if self.snapshots and self.rng.random() < 0.4:  # of long ago
            snap, state, now = self.rng.choice(self.snapshots)
            made = snap.publish(lease_seconds=LEASE, count=counted)
        else:
            state, now = dict(self.log.state), self.now
            with self.store.snapshot() as snap:
                made = snap.publish(lease_seconds=LEASE, count=counted)
        if counted:
            self.counted(made, live(state, now))
        made.renew(LEASE)
        self.published.append((made.id, (made.path, state, now)))

    def counted(self, made: octavo.PublishedSnapshot, rows: State) -> None:
        for kind in self.kinds:
            values = [event.value or b"" for (of, _, _), event in rows.items() if of == kind]
            told = made.counts.get(kind)
            assert ((told.keys, told.bytes) if told else (0, 0)) == (
                len(values), sum(map(len, values)),
            )  # fmt: skip
        assert made.keys == len(rows)

    def read_published(self) -> None:
        kind = self.rng.choice(self.kinds)
        number = self.store._running.identity.tags.number(kind)
        reads = SparkReads(self.disk, self.now, self.rng, kind, number)
        states = [published for _, published in self.published]
        for published in states[-2:]:
            reads.snapshot(published)
        if len(states) > 1:
            reads.changes(*sorted(self.rng.sample(states, 2), key=age))
        feed(self.disk, self.path, self.log, self.rng)

    # ------------------------------------------------------------ backups

    def backup(self) -> None:
        path = self.rng.choice(BACKUPS)
        if path == self.path:
            return
        done = self.store.backup(path, ledger=self.rng.random() < 0.8, copy=self.rng.random() < 0.2)
        assert done.sqn == self.store.last_sqn
        self.backups[path] = self.log.upto(done.sqn)
        self.read_backup(path)

    def read_backup(self, path: str) -> None:
        """A copy of it, and where that is restored, whole or to some point."""
        log, copy = self.backups[path], self.disk.after_crash("nothing")
        with one_thread("backup"):
            store = self.opened(copy, path, create=False)
            try:
                check = self.check(store, log)
                check.everything()
                check.some(5)
                horizon = store._inker.manifest.horizon
                log.told(store.changes(horizon), horizon, horizon)
                log.what_is_left(store.changes(0, compacted=True), self.now)
                if path in self.backups and log.highest == self.log.highest:
                    with store.snapshot() as mine, self.store.snapshot() as other:
                        for by in ("sqn", "head", "value"):
                            tree = mine.merkle(256, by=by)  # type: ignore[arg-type]
                            assert not tree.differences(other.merkle(256, by=by))  # type: ignore[arg-type]
                if self.rng.random() < 0.3:
                    assert store.verify().ok
            finally:
                forget(store)
        self.restore(path)

    def restore(self, path: str) -> None:
        log, copy, rng = self.backups[path], self.disk.after_crash("nothing"), self.rng
        upto = log.events[-1].sqn if log.events else 0
        how: dict[str, int | None] = {"sqn": None, "time_ms": None}
        kind = rng.randrange(3)
        if kind == 1:
            how["sqn"] = upto = rng.randrange(max(0, log.highest - 40), log.highest + 1)
        elif kind == 2:
            moment = self.now - rng.choice((0, 1, 5, 30, 200))
            later = [event.sqn for event in log.events if event.time > moment]
            how["time_ms"] = moment
            upto = later[0] - 1 if later else log.highest
        with one_thread("restore"):
            try:
                restore_on(copy, path, "/restored", **how, copy=False)  # type: ignore[arg-type]
            except octavo.HistoryCompacted:
                assert kind
                return
            except octavo.Misuse:
                within = [e.batch for e in log.events if e.sqn == upto and e.batch]
                if not within or within[0][0] + 1 == within[0][1]:
                    raise
                return
            store = self.opened(copy, "/restored", create=False)
            try:
                restored = log.upto(upto)
                check = self.check(store, restored)
                check.everything()
                check.some(5)
                assert store.put(b"after", b"x") > log.highest
                assert store.verify().ok
            finally:
                forget(store)

    def write_to_backup(self) -> None:
        """It is opened and goes its own way, until it is brought up to date."""
        path = self.rng.choice(sorted(self.backups) or [self.path])
        if path == self.path:
            return
        store = self.opened(self.disk, path, create=False)
        for _ in range(self.rng.choice((0, 1, 100))):
            store.put(self.key(), b"own way")
        if self.rng.random() < 0.5:
            store._running.bookie.call(Bookie.push)
            self.pool.go_on()
            store.compact()
        store.close()
        self.backups.pop(path)

    def promote(self) -> None:
        """The store is lost, and a backup takes its place."""
        path = self.rng.choice(sorted(self.backups) or [self.path])
        if path == self.path:
            return
        self.leave()
        self.store.close()
        self.log = self.backups.pop(path)
        remove(self.disk, self.path)
        self.path = path
        self.forget_others()
        self.open()
        self.check(self.store).everything()
        refused(self)

    def forget_others(self) -> None:
        """What the store that was had, and the one in its place has not."""
        self.consumers.clear()
        self.published.clear()
        self.named.clear()
        self.committed = [each for each in self.committed if each[-1] <= self.log.highest]


def age(made: Published) -> tuple[int, int]:
    _, state, now = made
    return max([event.sqn for event in state.values()], default=0), now


def whole(index: dict[bytes, list[Any]]) -> Entries:
    return frozenset((field, term) for field, terms in index.items() for term in terms)


def edited(before: Entries, remove: dict[bytes, list[Any] | None]) -> Entries:
    """What an edit leaves of the entries that were there."""
    return frozenset(
        (field, term)
        for field, term in before
        if field not in remove
        or (
            (gone := remove[field]) is not None
            and not any(type(term) is type(one) and term == one for one in gone)
        )
    )


RULES: tuple[tuple[Callable[[CombinedMachine], None], float], ...] = (
    (CombinedMachine.put, 20), (CombinedMachine.put_with_options, 20),
    (CombinedMachine.conflict, 4), (CombinedMachine.delete, 10), (CombinedMachine.put_many, 8),
    (CombinedMachine.delete_range, 5), (CombinedMachine.pop_from_index, 5),
    (CombinedMachine.batch, 10), (CombinedMachine.take_files_in, 2), (CombinedMachine.roll, 2),
    (CombinedMachine.save, 3), (CombinedMachine.rest, 2), (CombinedMachine.sync, 1),
    (CombinedMachine.let_time_pass, 2), (CombinedMachine.compact, 2), (CombinedMachine.verify, 0.5),
    (CombinedMachine.take_snapshot, 2), (CombinedMachine.read_snapshots, 3),
    (CombinedMachine.begin_scan, 4), (CombinedMachine.changes, 2), (CombinedMachine.consume, 2),
    (CombinedMachine.publish, 1.5), (CombinedMachine.read_published, 2),
    (CombinedMachine.pin, 1), (CombinedMachine.read_pins, 2), (CombinedMachine.backup, 1),
    (CombinedMachine.write_to_backup, 0.3), (CombinedMachine.promote, 0.2),
    (CombinedMachine.reopen, 1), (CombinedMachine.lose_the_ledger, 0.6),
    (CombinedMachine.kill, 1), (CombinedMachine.cut_the_power, 0.5),
    (CombinedMachine.work_on_it_closed, 0.6), (CombinedMachine.put_together, 3),
    *MORE, *KEPT, *ENDS,
)  # fmt: skip
