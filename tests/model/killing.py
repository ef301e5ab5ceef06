"""Rounds of one store's life, each ended by SIGKILL or a power cut, and what must be there then."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lives import CHORES, Life, Nursery
from loop_disk import LoopDisk
from steps import Step, Told, contents, digest_of, step

import octavo

OPTIONS: dict[str, Any] = {
    "push_rows": 64,
    "push_bytes": 64 << 10,
    "roll_count": 256,
    "roll_size_bytes": 1 << 20,
    "compact_every_seconds": None,
    "compact_run_length": 8,
}
MOST_STEPS = 400
CLOSES = 0.12
"""The share of lives that are killed as they close."""
MOVES = 0.1
"""The share of lives behind which the store is restored elsewhere."""


@dataclass
class Ending:
    """When a life ends: after how many steps, or chores begun, and a moment more."""

    steps: int
    chores: int
    more: int
    seconds: float
    closes: bool
    opening: bool


def ending(rng: random.Random, most_steps: int) -> Ending:
    return Ending(
        steps=rng.randrange(1, most_steps),
        chores=rng.randrange(1, 6) if rng.random() < 0.5 else 1 << 30,
        more=rng.randrange(4),
        seconds=rng.choice((0.0, 0.0, rng.uniform(0, 0.002), rng.uniform(0, 0.02))),
        closes=rng.random() < CLOSES,
        opening=rng.random() < 0.1,
    )


@dataclass
class Heard:
    """What a life said, as it said it."""

    chore: str = ""
    """The chore that was going on when it ended."""
    synced: int = 0
    """Steps that were synced for certain."""
    steps: int = 0
    opened: bool = False
    closed: bool = False
    error: str = ""
    backup: int = -1
    counts: dict[str, int] = field(default_factory=dict)


class Rounds:
    """A store at ``path`` that lives again and again.

    ``sync`` is the store's option. With ``disk`` the power is cut after each kill: not before it,
    for then ext4 says yes to a sync or two that its shutdown overtakes, whoever asks.
    """

    def __init__(
        self,
        nursery: Nursery,
        path: Path,
        seed: str,
        *,
        sync: str,
        disk: LoopDisk | None = None,
        workers: float = 0.15,
        most_steps: int = MOST_STEPS,
    ) -> None:
        self.nursery = nursery
        self.path = path
        self.rng = random.Random(f"{seed} rounds")
        self.told = Told(seed)
        self.sync = sync
        self.disk = disk
        self.workers = workers
        self.most_steps = most_steps
        self.round = 0
        self.counts: dict[str, int] = {}
        self._backups: set[int] = set()
        """Digests that the backup may have."""

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def live_and_die(self) -> None:
        """One round. Raises AssertionError where something is not as it must be."""
        self.round += 1
        rng, told = self.rng, self.told
        how = ending(rng, self.most_steps)
        # ext4 says yes to a sync or two that the shutdown overtakes, whoever asks; XFS does not.
        worker = rng.random() < self.workers
        chores = [word for word in CHORES if rng.random() < 0.5]
        told.rebase()
        life = self.nursery.life(
            path=str(self.path),
            seed=told.seed,
            first=told.done + 1,
            last=told.done + how.steps if how.closes else None,
            options={**OPTIONS, "sync": self.sync, "worker": worker},
            chores=chores,
            luck=f"{told.seed} {self.round}",
        )
        heard = self._listen(life, how)
        if heard.error:
            raise AssertionError(f"the life said: {heard.error}")
        if worker:
            self._nobody_is_left()
        if self.disk is not None:
            self.disk.shut_down()
            self.disk.unmount()
            self.disk.mount()
        self.count("cuts" if self.disk is not None else "kills")
        self.count("steps", heard.steps)
        if heard.chore:
            self.count(f"in {heard.chore}")
        for chore, number in heard.counts.items():
            self.count(chore, number)
        self._look(heard)
        if rng.random() < MOVES:
            self._move()

    def _listen(self, life: Life, how: Ending) -> Heard:
        heard = Heard(synced=self.told.done)
        chores, left = 0, -1
        for words in life.lines():
            due = False
            if words[0].isdigit():
                self.told.acknowledge(int(words[0]), int(words[1]))
                heard.steps += 1
                due = heard.steps >= how.steps and not how.closes
                if self.sync == "always" or step(self.told.seed, self.told.done).kind == "sync":
                    heard.synced = self.told.done
            elif words[0] == "c":
                heard.chore = words[1]
                chores += 1
                due = chores == how.chores
            elif words[0] == "C":
                heard.chore = ""
                heard.counts[words[1]] = heard.counts.get(words[1], 0) + 1
                if words[1] == "backup":
                    heard.backup = int(words[2])
            elif words[0] == "e":
                heard.error = heard.error or " ".join(words[1:])
            else:
                heard.opened = heard.opened or words[0] == "open"
                heard.closed = heard.closed or words[0] == "closed"
                due = words[0] == "closing" or (words[0] == "opening" and how.opening)
            if due and left < 0:
                left = how.more if words[0] != "opening" else 0
            if left == 0:
                _spin(how.seconds)
                life.kill()
                left = 1 << 60
            elif left > 0:
                left -= 1
        return heard

    def _move(self) -> None:
        """A store that is restored from this one goes on elsewhere."""
        fresh = self.path.with_name(f"{self.path.name[0]}{self.round}")
        done = octavo.restore(self.path, fresh)
        self.told.sqns[-1] = done.sqn  # none of the numbers that were skipped behind it was given
        self.forget()
        self._backups.clear()
        self.path = fresh
        self.count("restored")

    def _nobody_is_left(self) -> None:
        """A worker process of the one that was killed leaves by itself; wait for that."""
        if not self.path.exists():
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)

    def _look(self, heard: Heard) -> None:
        told = self.told
        self._backup_digests(heard)
        durable = told.done if heard.closed or self.disk is None else heard.synced
        with octavo.open(self.path, **OPTIONS, sync=self.sync, worker=False) as store:
            found, last = contents(store), store.last_sqn
            if durable == told.done:
                told.settle(found, last)
            else:
                told.settle_synced(found, last, durable)
            for each in store.published():
                each.release()  # or the disk fills up with what they hold
            if self.round % 4 == 0:
                report = store.verify()
                if not report.ok:
                    raise AssertionError(f"verify: {report.problems}")
        self._look_at_backup(heard)

    def _backup_digests(self, heard: Heard) -> None:
        told = self.told
        if heard.backup >= 0:
            self._backups = {self._digest_at(heard.backup)}
        if heard.chore == "backup":
            self._backups = {*self._backups, *told.digests[told.base_step :]}
            ahead = Told(told.seed, dict(told.state), told.done, told.digest)
            following = step(told.seed, told.done + 1)
            ahead.apply(Step(following.kind, following.changes))
            self._backups.add(ahead.digest)

    def _digest_at(self, sqn: int) -> int:
        told = self.told
        number = bisect_right(told.sqns, sqn) - 1
        if number < told.done or sqn == told.sqns[-1]:
            return told.digests[number]
        ahead = Told(told.seed, dict(told.state), told.done, told.digest)
        ahead.apply(step(told.seed, told.done + 1))
        return ahead.digest

    def _look_at_backup(self, heard: Heard) -> None:
        where = Path(f"{self.path}.backup")
        if heard.backup >= 0 and not where.exists():
            raise AssertionError("the backup that was made is gone")
        if not where.exists() or not (heard.backup >= 0 or heard.chore == "backup"):
            return
        with octavo.open(where, **OPTIONS, worker=False) as backup:
            found = digest_of(contents(backup))
            if found not in self._backups:
                raise AssertionError("the backup is of no moment that it may be of")
            self._backups = {found}

    def forget(self) -> None:
        """Remove the store, so that the file system does not fill up. For good: a power cut must
        not bring it back, for another one may come to its path."""
        for what in ("", ".backup", ".backup.partial"):
            shutil.rmtree(f"{self.path}{what}", ignore_errors=True)
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
