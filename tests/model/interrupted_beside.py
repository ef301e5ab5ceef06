"""A store under Ctrl-C, as interrupted.py has it, beside a thread that goes on all the time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interrupted import Interrupted

import octavo

NAME = b"beside"
OTHERS = 40
DEADLINE_SECONDS = 300.0


class InterruptedBeside(Interrupted):
    """The thread has a bucket of its own: what it was answered is there, whatever was cut off."""

    def __init__(self, home: Path, seed: object, *, by_steps: bool = False) -> None:
        super().__init__(home, seed, by_steps=by_steps)
        self.still = threading.Lock()
        """The thread has it during each of its calls."""
        self.others: dict[bytes, set[bytes | None]] = {}
        """What it wrote: one value, or two where it was not told which."""
        self.failures: list[BaseException] = []
        self.done = 0
        self.ends = threading.Event()
        self.went_on = threading.Condition()
        self.thread = threading.Thread(target=self.go_on, args=(f"beside {seed}",), daemon=True)
        self.thread.start()

    def go_on(self, luck: str) -> None:
        rng = random.Random(luck)
        try:
            while not self.ends.is_set():
                with self.still:
                    store = self.store
                    if not store.closed:
                        self.one_call(store, rng)
                with self.went_on:
                    self.done += 1
                    self.went_on.notify_all()
                self.ends.wait(rng.choice((0, 0, 0, 0.001)))
        except BaseException as error:  # noqa: BLE001 (raised by the next look)
            self.failures.append(error)

    def one_call(self, store: octavo.Store, rng: random.Random) -> None:
        bucket, key = store.bucket(NAME), b"%d" % rng.randrange(OTHERS)
        value = b"%d " % self.done + bytes(rng.choice((0, 10, 3000)))
        what = rng.randrange(6)
        wrote: bytes | None = value
        try:
            if what == 0:
                wrote = None
                bucket.delete(key)
            elif what == 1:
                bucket.put(key, value, index={"g": 1}, sync=True)
            elif what < 4:
                bucket.put(key, value)
            else:
                found = dict(bucket.items(limit=rng.choice((1, 5, OTHERS, 1000))))
                assert all(value in self.others[key] for key, value in found.items()), found
                assert bucket.get(key) in self.others.get(key, {None})
                return
        except octavo.Closed:
            if what < 4:
                self.others.setdefault(key, {None}).add(wrote)
            return
        self.others[key] = {wrote}

    # ------------------------------------------------------------ the other one

    def compare(self) -> None:
        with self.went_on:
            before = self.done
            assert self.failures or self.went_on.wait_for(
                lambda: self.done > before + 1 or self.failures, DEADLINE_SECONDS
            ), "the other thread waits for ever"
        if self.failures:
            raise self.failures[0]
        with self.still:
            super().compare()
            found = dict(self.store.bucket(NAME).items())
            for key, may in self.others.items():
                assert found.get(key) in may, f"{key!r} is {found.get(key)!r}, and not of {may}"
                self.others[key] = {found.get(key)}

    def counted(self) -> int:
        return len(self.known) + len(self.store.bucket(NAME))

    def run(self, rounds: int) -> None:
        try:
            super().run(rounds)
        finally:
            self.ends.set()
            self.thread.join()

    def some_call(self) -> None:
        call: Callable[[Any], None] = self.drawn()
        if call in STILL:
            with self.still:
                call(self)
        else:
            call(self)


STILL = (
    Interrupted.follow, Interrupted.fold, Interrupted.drop, Interrupted.lease, Interrupted.mend,
)  # fmt: skip
"""Calls that are told of whatever is written."""
