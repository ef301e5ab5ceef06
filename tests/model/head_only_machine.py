"""A head-only store against a dict: names of any bytes, expiry, conditions, batches, snapshots over
trims, ends, backups, other readers, repairs, feeds, and scans that stay open, in any order."""

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
        self.snapshots: list[tuple[octavo.Snapshot, dict[Where, Held], int]] = []
        self.scans: list[tuple[Iterator[octavo.HeadRow], list[Row]]] = []
        self.backup: dict[Where, Held] | None = None
        self.done: dict[str, int] = {}

    def run(self, steps: int) -> None:
        try:
            for step in self.rng.choices(STEPS, WEIGHTS, k=steps):
                self.done[step.__name__] = self.done.get(step.__name__, 0) + 1
                step(self)
            self.check(self.store, self.model, self.clock())
            self.look_back(1 << 10)
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
        with self.store.head_batch() as batch:
            for _ in range(self.rng.choice([1, 3, 20])):
                bucket, key, sub_key = where = self.where()
                if self.rng.random() < 0.3:
                    batch.delete(bucket, key, sub_key=sub_key)
                    done.append((where, None, None))
                    continue
                value, ttl = self.value(), self.rng.choice([None, None, 5, 50])
                batch.put(bucket, key, value, sub_key=sub_key, ttl=ttl)
                expiry = None if ttl is None else self.clock() + ttl * 1000
                done.append((where, value, expiry))
        for sqn, (where, put, expiry) in enumerate(done, batch.last_sqn - len(done) + 1):
            if put is None:
                self.model.pop(where, None)
            else:
                self.model[where] = put, sqn, expiry

    def one(self) -> None:
        where = self.where()
        bucket = self.store.head_bucket(where[0])
        now, held = self.clock(), self.model.get(where)
        current = 0 if held is None or (held[2] is not None and held[2] <= now) else held[1]
        wanted = self.rng.choice([None, 0, current, 77]) if self.lookup else None
        try:
            if self.rng.random() < 0.3:
                bucket.delete(where[1], sub_key=where[2], if_sqn=wanted)
                self.model.pop(where, None)
            else:
                value = self.value()
                sqn = bucket.put(where[1], value, sub_key=where[2], if_sqn=wanted)
                self.model[where] = value, sqn, None
            assert wanted in (None, current)
        except octavo.Conflict:
            assert wanted not in (None, current)

    def later(self) -> None:
        self.clock.now += self.rng.choice([1000, 20_000])

    def snapshot(self) -> None:
        self.snapshots.append((self.store.snapshot(), dict(self.model), self.clock()))

    def look_back(self, most: int = 1) -> None:
        for _ in range(min(most, len(self.snapshots))):
            snapshot, model, now = self.snapshots.pop(self.rng.randrange(len(self.snapshots)))
            self.check(snapshot, model, now)
            snapshot.close()

    def scan(self) -> None:
        """Rows that stay those of now, whatever comes before the last of them is given."""
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

    def end(self) -> None:
        self.look_back(1 << 10)
        self.scans.clear()
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
        self.backup = dict(self.model)

    def restore(self) -> None:
        if self.backup is None:
            return
        shutil.rmtree(self.home / "r", ignore_errors=True)
        octavo.restore(self.home / "b", self.home / "r")
        for name in ("r", "b"):
            with self.opened(name) as other:
                self.check(other, self.backup, self.clock())
                assert other.verify().ok

    def beside(self) -> None:
        """By the wall clock, to which all expiries here are over."""
        self.store.sync()
        with octavo.open(self.home / "s", read_only=True) as other:
            lasting = {where: held for where, held in self.model.items() if held[2] is None}
            self.check(other, lasting, 0)

    def repair(self) -> None:
        """Of a store that is whole nothing changes."""
        self.look_back(1 << 10)
        self.scans.clear()
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
        self.look_back(1 << 10)
        self.scans.clear()
        self.store.close()
        shutil.rmtree(self.home / "s")
        if self.rng.random() < 0.5:
            (self.home / "b").rename(self.home / "s")
        else:
            octavo.restore(self.home / "b", self.home / "s")
            shutil.rmtree(self.home / "b")
        self.model, self.backup = self.backup, None
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

    def check(self, found: Any, model: dict[Where, Held], now: int) -> None:
        live = {w: h for w, h in model.items() if h[2] is None or h[2] > now}
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
)  # fmt: skip
WEIGHTS = (45, 15, 5, 5, 4, 4, 3, 3, 4, 3, 2, 3, 3, 8, 8, 2, 1, 3)
