"""A workload on one thread, with a power cut at every operation it asks of the disk.

The workload is run once. Before each operation that changes something, images are made of what a
power cut at this moment may leave, each is opened and read, and what was found is held against
the history so far. An image that was met before is not opened again: what it holds is known, and
only the history is another one.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from history import Found, History
from look import NOW_MS, clock_ms, look
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import MODES, SimCrash, SimDisk
from xxhash import xxh3_128_digest

import octavo

CHOICES = {"nothing": 1, "all": 1, "random_subset": 7, "torn": 7, "names_reordered": 7}
"""How many images are made of each kind at a crash point."""
VERIFY_ONE_IN = 8
REST_ONE_IN = 4
COLLECT_EVERY = 100
DEEP = 3


@dataclass
class Counts:
    points: int = 0
    images: int = 0
    opened: int = 0
    """Images that were not met before."""
    deep: int = 0
    """Images that a crash in a recovery left."""

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Machine:
    """What a workload works with."""

    disk: SimDisk
    pool: HeldPool
    rng: random.Random
    history: History
    options: dict[str, Any] = field(default_factory=dict)
    store: octavo.Store | None = None
    """The one that was opened last."""
    raised: Exception | None = None
    """What ended the workload before its end."""
    loading: bool = False
    """It takes in what other processes staged: that may fail, and the store go on."""

    def opened(self, path: str = "/store", **given: Any) -> octavo.Store:
        options = {"sync": "always", **self.options, **given}
        self.store = opened(self.disk, path, clock_ms=clock_ms, **options)
        return self.store

    def breathe(self) -> None:
        """Let some of the background work be done, or none."""
        if self.rng.random() < 0.3:
            self.pool.go_on(self.rng.randrange(1, 6))


Workload = Callable[[Machine], None]
Judge = Callable[[SimDisk, bytes, History], str]
"""Looks at an image, of this digest, apart from the store: what is wrong with it, or nothing."""


def digest(disk: SimDisk) -> bytes:
    """Of all names and bytes."""
    parts: list[bytes] = []
    for path, content in disk.files().items():
        parts += (path.encode(), b"\0%d\0" % len(content), content)
    return xxh3_128_digest(b"".join(parts))


class PowerCuts:
    """One run of one workload.

    ``mends``: what is done to an image before it is opened, and is a recovery like opening it.
    ``deep_one_in``: after so many images the recovery of one is cut off as well, three times over.
    """

    def __init__(
        self,
        name: str,
        workload: Workload,
        seed: int,
        *,
        judges: tuple[Judge, ...] = (),
        setup: Workload | None = None,
        modes: tuple[str, ...] = MODES,
        deep_one_in: int = 18,
        path: str = "/store",
        mends: Callable[[SimDisk], object] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.workload = workload
        self.setup = setup
        self.seed = seed
        self.judges = judges
        self.modes = modes
        self.deep_one_in = deep_one_in
        self.path = path
        self.mends = mends
        self.options = options
        self.counts = Counts()
        self.known: dict[bytes, Found] = {}
        self.recovery_ops = 40
        """About as many operations as the last whole recovery took."""
        self.rng = random.Random(f"{name} {seed} cuts")

    def run(self) -> Counts:
        disk = SimDisk()
        history = History()
        with one_thread(f"{self.name} {self.seed}") as pool:
            rng = random.Random(f"{self.name} {self.seed}")
            machine = Machine(disk, pool, rng, history, self.options)
            if self.setup is not None:
                self.setup(machine)
            disk.before = lambda operation: self._cut(disk, history, operation)
            try:
                self.workload(machine)
                disk.before = None
                self._cut(disk, history, "the end")
            finally:
                disk.before = None
        return self.counts

    def _cut(self, disk: SimDisk, history: History, operation: str) -> None:
        self.counts.points += 1
        point = self.counts.points
        for mode in self.modes:
            for choice in range(CHOICES[mode]):
                where = f"point {point} ({operation}), {mode} {choice}"
                image = disk.after_crash(mode, self.seed * 1000 + point * 10 + choice)
                self._look(image, history, where)
                if self.deep_one_in and self.rng.randrange(self.deep_one_in) == 0:
                    again = disk.after_crash(mode, self.seed * 1000 + point * 10 + choice)
                    self._recover_and_cut(again, history, where, DEEP)

    def _look(self, image: SimDisk, history: History, where: str) -> None:
        self.counts.images += 1
        key = digest(image)
        found = self.known.get(key)
        if found is None:
            self.counts.opened += 1
            if self.counts.opened % COLLECT_EVERY == 0:
                gc.collect()  # stores that lost power are cycles, and large
            spare = image.after_crash("all") if self.judges else image
            if self.mends is not None:
                with one_thread("mending"):  # what it leaves to be done goes with it
                    self.mends(image)
            found = self.known[key] = look(
                image,
                self.path,
                rests=key[0] % REST_ONE_IN == 0,
                verifies=key[1] % VERIFY_ONE_IN == 0,
                **self.options,
            )
        else:
            spare = image
        wrong = history.wrong(found)
        if wrong:
            self._fail(where, wrong)
        for judge in self.judges:
            wrong = judge(spare, key, history)
            if wrong:
                self._fail(where, wrong)

    def _recover_and_cut(self, image: SimDisk, history: History, where: str, depth: int) -> None:
        """Open an image and cut the power at some operation of that, ``depth`` times over."""
        for level in range(1, depth + 1):
            at = self.rng.randint(1, self.recovery_ops)
            total = self._recovered(image, image.ops + at)
            if not image.crashed:
                self.recovery_ops = total
                return
            mode, choice = self.rng.choice(self.modes), self.rng.randrange(1 << 30)
            self.counts.deep += 1
            deeper = f"{where}, recovery {level} cut at {at}, {mode} {choice}"
            self._look(image.after_crash(mode, choice), history, deeper)
            image = image.after_crash(mode, choice)
            self.recovery_ops += 2  # or those that take longer would never be cut at their ends

    def _recovered(self, disk: SimDisk, at: int) -> int:
        """Open and close a store, until operation ``at``; how many operations that were."""
        before = disk.ops
        disk.crash_at(at)
        with one_thread("recovery") as pool:
            try:
                if self.mends is not None:
                    self.mends(disk)
                options = {"sync": "always", **self.options}
                store = opened(disk, self.path, clock_ms=clock_ms, **options)
                try:
                    pool.go_on()
                    store.close()
                finally:
                    forget(store)
            except SimCrash:
                pass
            except octavo.OctavoError:
                if not disk.crashed:
                    raise
        return disk.ops - before

    def _fail(self, where: str, wrong: str) -> None:
        raise AssertionError(f"{self.name}, seed {self.seed}: {where}: {wrong}")


__all__ = ["CHOICES", "NOW_MS", "Counts", "Machine", "PowerCuts", "sys"]
