"""A head-only store against a dict: names of any bytes, expiry, conditions, batches, snapshots over
trims, ends, backups, other readers, repairs, feeds, consumers, and scans that stay open, in any
order, by a clock that is set back now and then."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from whole_store import WallClock, flush, killed, opened, rolled

import octavo
from octavo.actors.opening import startup

Where = tuple[bytes, bytes, bytes]
Held = tuple[bytes, int, int | None]
"""Value, sqn, expiry."""
Row = tuple[bytes, bytes, bytes, int, int | None]

PIECES = [b"\0", b"\xff", b"a", b"b", b"\x01", b"\0\0", b"\0\xff", b"\xfe"]
BUCKETS = [b"", b"b", b"\0", b"b\0", b"\xff"]


def rows_of(found: Iterator[octavo.HeadRow]) -> list[Row]:
    return [(row.key, row.sub_key, row.value, row.sqn, row.expires_at) for row in found]


def rows_in(model: dict[Where, Held], name: bytes, now: int) -> list[Row]:
    """All that a bucket has at a moment, in order."""
    live = [(w, h) for w, h in model.items() if w[0] == name and (h[2] is None or h[2] > now)]
    return sorted((key, sub_key, *held) for (_, key, sub_key), held in live)


class Machine:
    """One run in ``home``; ``run(steps)`` raises AssertionError where store and dict differ."""

    def __init__(self, home: Path, seed: object) -> None:
        self.rng = random.Random(seed)  # type: ignore[arg-type]
        self.home = home
        self.clock = WallClock(1_000_000)
        self.lookup = self.rng.random() < 0.8
        self.store = self.opened("s")
        self.model: dict[Where, Held] = {}
        self.keys = [self.word(1, 3) for _ in range(12)]
        self.sub_keys = [b"", *(self.word(0, 3) for _ in range(5))]
        self.snapshots: list[tuple[octavo.Snapshot, dict[Where, Held], int, int]] = []
        self.scans: list[tuple[Iterator[octavo.HeadRow], list[Row]]] = []
        self.backup: dict[Where, Held] | None = None
        self.latest = self.clock()
        """The latest moment of all: what expired by then may be gone for good."""
        self.events: dict[int, tuple[Where, Held | None]] = {}
        """By sqn: what became of a key."""
        self.backed_up: dict[int, tuple[Where, Held | None]] = {}
        self.reader: tuple[octavo.ReadOnlyStore, dict[Where, Held]] | None = None
        self.of_backup: tuple[octavo.ReadOnlyStore, dict[Where, Held]] | None = None
        self.done: dict[str, int] = {}

    def run(self, steps: int) -> None:
        try:
            for step in self.rng.choices(STEPS, WEIGHTS, k=steps):
                self.done[step.__name__] = self.done.get(step.__name__, 0) + 1
                step(self)
            self.check(self.store, self.model, self.clock())
            self.let_go()
        finally:
            self.store.close()

    def opened(self, name: str) -> octavo.Store:
        rng = self.rng
        return opened(
            self.home / name, mode="head_only", lookup=self.lookup, clock_ms=self.clock,
            max_open_files=rng.choice((8, None)), read_cache_bytes=rng.choice((0, 1 << 20)),
            sync=rng.choice(("none", "none", "always")),
        )  # fmt: skip

    def word(self, least: int, most: int) -> bytes:
        return b"".join(self.rng.choices(PIECES, k=self.rng.randrange(least, most + 1)))

    def where(self) -> Where:
        return tuple(map(self.rng.choice, (BUCKETS, self.keys, self.sub_keys)))  # type: ignore[return-value]

    def value(self) -> bytes:
        size = self.rng.choice((0,) * 30 + (300, 5000))
        return self.word(0, 4) + bytes(size)

    # ------------------------------------------------------------ steps

    def batch(self) -> None:
        done: list[tuple[Where, bytes | None, int | None]] = []
        batch, rng, failing = self.store.head_batch(), self.rng, False
        for _ in range(rng.choice([1, 3, 20])):
            bucket, key, sub_key = where = self.where()
            wanted = None
            if self.lookup and rng.random() < 0.1 and not self.in_doubt(self.model):
                wanted = rng.choice([0, self.current(where), self.current(where)])
                failing = failing or wanted != self.current(where)
            if rng.random() < 0.3:
                batch.delete(bucket, key, sub_key=sub_key, if_sqn=wanted)
                done.append((where, None, None))
                continue
            value, ttl = self.value(), rng.choice([None, None, 5, 50])
            ends = None if ttl is None else self.latest + ttl * 1000
            batch.put(bucket, key, value, sub_key=sub_key, expires_at=ends, if_sqn=wanted)
            done.append((where, value, ends))
        try:
            last = batch.commit()
        except octavo.Conflict:
            assert failing
            return
        assert not failing
        for sqn, (where, put, expiry) in enumerate(done, last - len(done) + 1):
            self.wrote(where, sqn, None if put is None else (put, sqn, expiry))

    def one(self) -> None:
        where = self.where()
        bucket = self.store.head_bucket(where[0])
        current, wanted = self.current(where), None
        if self.lookup and not self.in_doubt(self.model):
            wanted = self.rng.choice([None, 0, current, 77])
        try:
            if self.rng.random() < 0.3:
                sqn = bucket.delete(where[1], sub_key=where[2], if_sqn=wanted)
                self.wrote(where, sqn, None)
            elif self.rng.random() < 0.2:
                now, value = self.clock(), self.value()
                sqn = bucket.put(where[1], value, sub_key=where[2], if_sqn=wanted, ttl=5)
                (ends,) = {r.expires_at for r in bucket.sub_keys(where[1]) if r.sqn == sqn}
                assert ends is not None
                assert now + 5000 <= ends <= self.latest + 5000
                self.wrote(where, sqn, (value, sqn, ends))
            else:
                value = self.value()
                sqn = bucket.put(where[1], value, sub_key=where[2], if_sqn=wanted)
                self.wrote(where, sqn, (value, sqn, None))
            assert wanted in (None, current)
        except octavo.Conflict:
            assert wanted not in (None, current)

    def current(self, where: Where) -> int:
        held = self.model.get(where)
        return 0 if held is None or (held[2] or self.latest + 1) <= self.latest else held[1]

    def wrote(self, where: Where, sqn: int, held: Held | None) -> None:
        self.events[sqn] = where, held
        if held is None:
            self.model.pop(where, None)
        else:
            self.model[where] = held

    def in_doubt(
        self, model: dict[Where, Held], now: int | None = None, latest: int | None = None
    ) -> set[Where]:
        """What had expired, and lives again by a clock that was set back, if it was not dropped."""
        now, latest = now or self.clock(), latest or self.latest
        return {where for where, (_, _, ends) in model.items() if ends and now < ends <= latest}

    def later(self) -> None:
        self.clock.now += self.rng.choice([1000, 20_000])
        self.latest = max(self.latest, self.clock())

    def earlier(self) -> None:
        self.clock.now -= self.rng.choice([1, 3000, 30_000])

    def snapshot(self) -> None:
        made = self.store.snapshot()
        self.snapshots.append((made, dict(self.model), self.clock(), self.latest))

    def look_back(self, most: int = 1) -> None:
        for _ in range(min(most, len(self.snapshots))):
            snapshot, *of = self.snapshots.pop(self.rng.randrange(len(self.snapshots)))
            self.check(snapshot, *of)
            snapshot.close()

    def scan(self) -> None:
        """Rows that stay those of now, whatever comes before the last of them is given."""
        if self.in_doubt(self.model):
            return
        name, reverse = self.rng.choice(BUCKETS), self.rng.random() < 0.5
        given = self.store.head_bucket(name).rows(reverse=reverse)
        wanted = rows_in(self.model, name, self.clock())
        self.scans.append((given, wanted[::-1] if reverse else wanted))

    def go_on(self) -> None:
        for given, wanted in self.scans:
            few = self.rng.choice([1, 5, 40])
            assert rows_of(islice(given, few)) == wanted[:few]
            del wanted[:few]
        self.scans = [each for each in self.scans if each[1]]

    def trim(self) -> None:
        self.store.trim()

    def flush(self) -> None:
        flush(self.store)

    def roll(self) -> None:
        rolled(self.store)

    def let_go(self) -> None:
        self.look_back(1 << 10)
        self.scans.clear()
        if self.reader is not None:
            self.reader[0].close()
            self.reader = None
        if self.of_backup is not None:
            self.of_backup[0].close()
            self.of_backup = None

    def end(self) -> None:
        self.let_go()
        if self.rng.random() < 0.5:
            self.store.close()
        else:
            left = killed(self.store, self.home / "killed")
            self.store.close()
            shutil.rmtree(self.home / "s")
            left.rename(self.home / "s")
        self.store = self.opened("s")

    def back_up(self) -> None:
        self.store.backup(self.home / "b")
        self.backup, self.backed_up = dict(self.model), dict(self.events)

    def restore(self) -> None:
        if self.backup is None:
            return
        shutil.rmtree(self.home / "r", ignore_errors=True)
        octavo.restore(self.home / "b", self.home / "r")
        for name in ("r", "b"):
            with self.opened(name) as other:
                self.check(other, self.backup, self.clock())
                assert other.verify().ok
                if not self.in_doubt({**self.backup, **self.model}):
                    self.compared(other)

    def compared(self, other: octavo.Store) -> None:
        """What the store has changed since another one was it."""
        now = self.clock()
        live: list[dict[Where, int]] = [
            {where: held[1] for where, held in model.items() if held[2] is None or held[2] > now}
            for model in (self.model, self.backup or {})
        ]
        differ = {where for where in live[0].keys() | live[1].keys()
                  if live[0].get(where) != live[1].get(where)}  # fmt: skip
        found = list(octavo.compare(self.store, other, by="sqn"))
        assert {(each.bucket, each.key, each.sub_key) for each in found} == differ
        assert len(found) == len(differ)

    def beside(self) -> None:
        """By the wall clock, to which all expiries here are over."""
        self.store.sync()
        with octavo.open(self.home / "s", read_only=True) as other:
            lasting = {where: held for where, held in self.model.items() if held[2] is None}
            self.check(other, lasting, 0)
            assert other.verify().ok
        if self.reader is None:
            self.reader = octavo.open(self.home / "s", read_only=True), lasting
            return
        reader, before = self.reader
        self.reader = reader.newest(), lasting
        self.check(reader, before, 0)
        reader.close()
        self.check(self.reader[0], lasting, 0)

    def beside_the_backup(self) -> None:
        """Another process reads it, which its store brings up to date, or others open, meanwhile;
        by the wall clock, as above."""
        if self.backup is None:
            return
        lasting = {where: held for where, held in self.backup.items() if held[2] is None}
        if self.of_backup is None:
            reader = octavo.open(self.home / "b", read_only=True)
        else:
            before, seen = self.of_backup
            self.check(before, seen, 0)
            reader = before.newest()
            before.close()
        self.of_backup = reader, lasting
        self.check(reader, lasting, 0)

    def publish(self) -> None:
        with self.store.snapshot() as snapshot:
            made = snapshot.publish("kept", lease_seconds=60, count=True)
            assert made.keys == sum(len(snapshot.head_bucket(name)) for name in BUCKETS)
        made.renew(600)
        assert [each.id for each in self.store.published("kept")] == [made.id]
        made.release()

    def consume(self) -> None:
        """A consumer misses nothing behind its position, whatever is trimmed."""
        mail = self.store.consumer("mail")
        position = mail.position
        told = [(c.sqn, (c.bucket, c.key, c.sub_key), c.value) for c in mail.changes()]
        assert told == [
            (sqn, where, held and held[0])
            for sqn, (where, held) in sorted(self.events.items())
            if sqn > position
        ]
        if self.rng.random() < 0.3:
            mail.drop()
        elif told:
            mail.acknowledge(self.rng.choice(told)[0])

    def repair(self) -> None:
        """Of a store that is whole nothing changes."""
        self.let_go()
        self.store.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(startup, "start", partial(startup.start, clock_ms=self.clock))
            done = octavo.repair(self.home / "s")
        assert done.ok, (done.files, done.verified.problems)
        self.store = self.opened("s")

    def promote(self) -> None:
        """The store is lost; its backup takes its place, or goes on elsewhere."""
        if self.backup is None:
            return
        self.let_go()
        self.store.close()
        shutil.rmtree(self.home / "s")
        if self.rng.random() < 0.5:
            (self.home / "b").rename(self.home / "s")
        else:
            octavo.restore(self.home / "b", self.home / "s")
            shutil.rmtree(self.home / "b")
        self.model, self.backup = self.backup, None
        self.events = self.backed_up
        self.store = self.opened("s")

    def follow(self) -> None:
        """What the feed tells since a trim is what there is since then, the newest of each."""
        told = list(self.store.changes(0, compacted=True))
        assert [change.sqn for change in told] == sorted({change.sqn for change in told})
        newest = {(c.bucket, c.key, c.sub_key): c for c in told}
        for where, change in newest.items():
            held = self.model.get(where)
            assert held is None or change.kind == "put"
            if held is not None:
                assert (change.value, change.sqn) == held[:2], where

    def verify(self) -> None:
        report = self.store.verify()
        assert report.ok, report.problems

    # ------------------------------------------------------------ what is there

    def check(self, found: Any, model: dict[Where, Held], now: int, latest: int = 0) -> None:
        doubtful = self.in_doubt(model, now, latest) if now else set()
        if doubtful and isinstance(found, octavo.Store):
            with found.snapshot() as snapshot:  # a merge may drop some meanwhile
                self.check(snapshot, model, now)
            return
        there = {
            (name, row.key, row.sub_key)
            for name in BUCKETS
            for row in found.head_bucket(name).rows()
        }
        live = {
            where: held
            for where, held in model.items()
            if (held[2] is None or held[2] > now) and (where not in doubtful or where in there)
        }
        assert list(found.buckets()) == sorted({bucket for bucket, _, _ in live})
        for name in BUCKETS:
            bucket = found.head_bucket(name)
            wanted = rows_in(live, name, now)
            assert rows_of(bucket.rows()) == wanted
            assert (len(bucket), bool(bucket)) == (len(wanted), bool(wanted))
            self.check_range(bucket, wanted)
            key = self.rng.choice(self.keys)
            of_key = [row for row in wanted if row[0] == key]
            assert rows_of(bucket.sub_keys(key)) == of_key
            assert rows_of(bucket.sub_keys(key, reverse=True)) == of_key[::-1]
            if self.lookup:
                for sub_key in self.sub_keys:
                    values = [row[2] for row in of_key if row[1] == sub_key]
                    assert bucket.get(key, sub_key) == (values[0] if values else None)
                    head = bucket.head(key, sub_key)
                    rows = [row for row in of_key if row[1] == sub_key]
                    assert rows_of(iter([head] if head else [])) == rows

    def check_range(self, bucket: Any, wanted: list[Row]) -> None:
        chance = self.rng.random
        start = self.word(0, 3) if chance() < 0.5 else None
        end = self.word(0, 3) if chance() < 0.5 else None
        prefix = self.word(0, 2) if chance() < 0.5 else None
        reverse, limit = chance() < 0.5, self.rng.choice([None, 0, 1, 3, 16, 17, 40])
        inside = [
            row
            for row in wanted
            if row[0] >= (start or b"")
            and (end is None or row[0] < end)
            and row[0].startswith(prefix or b"")
        ]
        given = bucket.rows(start, end, prefix=prefix, reverse=reverse, limit=limit)
        assert rows_of(given) == (inside[::-1] if reverse else inside)[:limit]


STEPS: tuple[Callable[[Machine], None], ...] = (
    Machine.batch, Machine.one, Machine.later, Machine.snapshot, Machine.look_back, Machine.trim,
    Machine.flush, Machine.roll, Machine.end, Machine.back_up, Machine.restore, Machine.beside,
    Machine.verify, Machine.scan, Machine.go_on, Machine.repair, Machine.promote, Machine.follow,
    Machine.earlier, Machine.publish, Machine.consume, Machine.beside_the_backup,
)  # fmt: skip
WEIGHTS = (45, 15, 5, 5, 4, 4, 3, 3, 4, 3, 2, 3, 3, 8, 8, 2, 1, 3, 2, 2, 3, 3)
