"""Readers of snapshots beside everything that takes their files away, with leases that end in the
middle: a reader is given what was there at its moment, or SnapshotExpired; never anything else.

On a simulated disk and one thread, so that a seed says everything. A step is one of a reader (of
the store's own snapshots, or of a published one, as another process reads it) or of the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from one_thread import HeldPool, forget, one_thread, opened
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.published_reader import PublishedReader
from octavo.manifest import published
from octavo.snapshot import SnapshotBucket

KEYS = 160
LEASE_SECONDS = 100
MOST_READERS = 8
HOUR_MS = 3_600_000
State = dict[bytes, bytes]


class Race:
    """One run of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"leases {seed}")
        self.disk = SimDisk()
        self.ticks = 0.0
        self.now_ms = 1_800_000_000_000
        self.state: State = {}
        self.number = 0
        self.readers: list[tuple[Any, State, list[tuple[Iterator[Any], list[Any]]]]] = []
        self.counts = {"reads": 0, "expired": 0, "expired in a scan": 0, "published": 0}

    def run(self, steps: int) -> dict[str, int]:
        with one_thread(f"leases {self.seed}") as pool:
            self.pool: HeldPool = pool
            self.store = opened(
                self.disk, clock_ms=lambda: self.now_ms, monotonic=lambda: self.ticks,
                push_rows=64, roll_count=256, max_open_files=8, read_cache_bytes=4096,
            )  # fmt: skip
            step = 0
            try:
                self.write()
                while self.counts["reads"] < steps:
                    step += 1
                    self.rng.choices(RULES, WEIGHTS)[0](self)
                    pool.go_on(self.rng.randrange(3))
            except BaseException as error:
                error.add_note(f"seed {self.seed}, step {step}")
                raise
            finally:
                self.readers.clear()
                forget(self.store)
        return self.counts

    # ------------------------------------------------------------ the store

    def write(self) -> None:
        for key in self.rng.sample(range(KEYS), self.rng.randrange(1, 60)):
            self.number += 1
            name = b"k%03d" % key
            if self.rng.random() < 0.2:
                self.store.delete(name)
                self.state.pop(name, None)
            else:
                self.state[name] = b"%d %s" % (self.number, bytes(self.rng.randrange(60)))
                self.store.put(name, self.state[name])

    def save(self) -> None:
        self.store._running.bookie.call(Bookie.push)
        self.pool.go_on()

    def compact(self) -> None:
        rolled(self.store)
        self.save()
        self.store.compact()

    def pass_time(self) -> None:
        seconds = self.rng.choice((1, LEASE_SECONDS / 3, LEASE_SECONDS / 2, LEASE_SECONDS))
        self.ticks += seconds
        self.now_ms += int(seconds * 1000)

    def be_late(self) -> None:
        """Every lease ends, also the grace that published ones have; what is over is removed."""
        self.ticks += HOUR_MS / 1000
        self.now_ms += HOUR_MS
        published.sweep(self.disk, self.store.path, self.now_ms)

    # ------------------------------------------------------------ readers

    def take(self) -> None:
        if len(self.readers) == MOST_READERS:
            self.readers.pop(self.rng.randrange(MOST_READERS))
        snapshot = self.store.snapshot(lease_seconds=LEASE_SECONDS)
        self.readers.append((snapshot, dict(self.state), []))

    def publish(self) -> None:
        self.counts["published"] += 1
        if len(self.readers) == MOST_READERS:
            self.readers.pop(self.rng.randrange(MOST_READERS))
        with self.store.snapshot() as now:
            made = now.publish(count=False, lease_seconds=LEASE_SECONDS)
        found = published.read(self.disk, made.path)
        shared: Any = PublishedReader(self.disk, found, lambda: self.now_ms, 8)
        reader = SnapshotBucket(shared, self.store._running.identity, b"")
        self.readers.append((reader, dict(self.state), []))

    def read(self) -> None:
        if not self.readers:
            return
        at = self.rng.randrange(len(self.readers))
        reader, state, scans = self.readers[at]
        self.counts["reads"] += 1
        keys = [b"k%03d" % self.rng.randrange(KEYS) for _ in range(self.rng.randrange(1, 9))]
        what = self.rng.randrange(6)
        try:
            if what == 0:
                assert reader.get(keys[0]) == state.get(keys[0])
            elif what == 1:
                head = reader.head(keys[0])
                assert (head is None) == (keys[0] not in state)
                assert head is None or head.size == len(state[keys[0]])
            elif what == 2:
                assert list(reader.get_many(keys)) == [state.get(key) for key in keys]
            elif what == 3 or not scans:
                reverse = self.rng.random() < 0.3
                expected = sorted(state.items(), reverse=reverse)
                scans.append((reader.items(reverse=reverse), expected))
            else:
                self.go_on(scans)
        except octavo.SnapshotExpired:
            self.counts["expired"] += 1
            self.counts["expired in a scan"] += what > 3
            self.readers.pop(at)

    def go_on(self, scans: list[tuple[Iterator[Any], list[Any]]]) -> None:
        scan, expected = scans[0]
        for _ in range(self.rng.randrange(1, 50)):
            if not expected:
                assert next(scan, None) is None
                scans.pop(0)
                return
            assert next(scan) == expected.pop(0)


RULES: tuple[Callable[[Race], None], ...] = (
    Race.read, Race.write, Race.save, Race.compact, Race.pass_time, Race.be_late, Race.take,
    Race.publish,
)  # fmt: skip
WEIGHTS = (400, 30, 8, 2, 12, 4, 40, 6)
