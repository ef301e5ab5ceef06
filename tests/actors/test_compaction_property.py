"""Random lives of a store with compactions in it, against a dict: nothing is lost, and nothing
that was deleted or expired comes back, whatever is rebuilt."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from whole_store import SEED, Clock, flush, killed, opened

import octavo
from octavo.actors.inker_clerk import InkerClerk

OPTIONS = {"roll_size_bytes": 1 << 20, "roll_count": 256}
STRATEGIES = ({}, {"standard": "retain"})


class Life:
    """A store, what it must hold, and what may happen to it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path / "s0"
        self.rng = random.Random(seed)
        self.clock = Clock(1_000_000.0)
        self.strategies = STRATEGIES[seed % len(STRATEGIES)]
        self.model: dict[bytes, tuple[bytes, float]] = {}  # value, expiry ms
        self.snapshots: list[tuple[octavo.Snapshot, dict[bytes, bytes]]] = []
        self.images = 0
        self.open()

    def open(self) -> None:
        self.store = opened(
            self.path,
            clock_ms=lambda: int(self.clock.now),
            strategies=self.strategies,
            **OPTIONS,
        )

    def live(self) -> dict[bytes, bytes]:
        now = int(self.clock.now)
        return {key: value for key, (value, ends) in self.model.items() if ends > now}

    def check(self) -> None:
        live = self.live()
        assert dict(self.store.items()) == live
        for key in [b"k%d" % i for i in range(60)]:
            assert self.store.get(key) == live.get(key)
        for snap, seen in self.snapshots:
            assert dict(snap.items()) == seen
        self.store._inker.manifest.check()

    # ------------------------------------------------------------ what may happen

    def write(self) -> None:
        for _ in range(self.rng.randrange(1, 300)):
            key = b"k%d" % self.rng.randrange(60)
            kind = self.rng.random()
            if kind < 0.6:
                value = self.rng.randbytes(self.rng.choice((0, 5, 300)))
                self.store.put(key, value)
                self.model[key] = value, float("inf")
            elif kind < 0.75:
                seconds = self.rng.choice((1, 50, 5000))
                self.store.put(key, b"soon", ttl=seconds)
                self.model[key] = b"soon", int(self.clock.now) + seconds * 1000
            elif kind < 0.97:
                self.store.delete(key)
                self.model.pop(key, None)
            else:
                with self.store.batch() as batch:
                    for part in range(4):
                        other = b"k%d" % self.rng.randrange(60)
                        batch.put(b"", other, b"batch%d" % part)
                        self.model[other] = b"batch%d" % part, float("inf")

    def pass_time(self) -> None:
        self.clock.now += self.rng.choice((1, 2_000, 60_000, 10_000_000))

    def save(self) -> None:
        flush(self.store)

    def compact(self) -> None:
        done = self.store.compact()
        assert not done.skipped

    def compact_some(self) -> None:
        """Any run of files, as the scheduled compaction might choose it."""
        clerk = self.store._running.inker_clerk
        files = clerk.actor.eligible()
        if files:
            at = self.rng.randrange(len(files))
            clerk.call(InkerClerk.rewrite, files[at : at + self.rng.randrange(1, 5)])

    def snapshot(self) -> None:
        if len(self.snapshots) < 3:
            self.snapshots.append((self.store.snapshot(), self.live()))
        else:
            self.snapshots.pop(self.rng.randrange(3))[0].close()

    def reopen(self) -> None:
        for snap, _ in self.snapshots:
            snap.close()
        self.snapshots.clear()
        self.store.close()
        self.open()

    def kill(self) -> None:
        self.images += 1
        image = killed(self.store, self.path.parent / f"s{self.images}")
        self.snapshots.clear()
        self.store.close()
        self.path = image
        self.open()

    def lose_ledger(self) -> None:
        self.snapshots.clear()
        self.store.close()
        shutil.rmtree(self.path / "ledger")
        self.open()

    def lose_manifest(self) -> None:
        self.snapshots.clear()
        self.store.close()
        shutil.rmtree(self.path / "journal" / "manifest")
        self.open()


CHANCES = {
    Life.write: 40, Life.pass_time: 6, Life.save: 10, Life.compact: 8, Life.compact_some: 14,
    Life.snapshot: 8, Life.reopen: 3, Life.kill: 3, Life.lose_ledger: 4, Life.lose_manifest: 2,
}  # fmt: skip


@pytest.mark.parametrize("number", range(16))
def test_a_life_with_compactions(tmp_path: Path, number: int) -> None:
    seed = SEED + number
    print(f"OCTAVO_SEED={seed}")
    life = Life(tmp_path, seed)
    steps = []
    try:
        for _ in range(60):
            step = life.rng.choices(list(CHANCES), list(CHANCES.values()))[0]
            steps.append(step.__name__)
            step(life)
            life.check()
        life.lose_ledger()
        life.check()
        assert life.store.verify().ok
    except BaseException:
        print(" ".join(steps))
        raise
    finally:
        life.store.close()
