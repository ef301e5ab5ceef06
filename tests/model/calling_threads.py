"""Threads that call one store on few keys and note every answer: see histories.py."""

from __future__ import annotations

import itertools
import random
import threading

from histories import Call

import octavo

KEYS = 6
CALLS = 350
THREADS = 6
OPTIONS = {"push_rows": 64, "push_bytes": 64 << 10, "roll_count": 256, "worker": False}


class Threads:
    """Threads that call a store and note what it answered."""

    def __init__(self, store: octavo.Store, seed: str, calls: int = CALLS) -> None:
        self.store = store
        self.seed = seed
        self.unanswered: dict[int, tuple[bytes, bytes]] = {}
        """By thread: what it was about to write; of the last call nobody knows."""
        self.calls = calls
        self.clock = itertools.count(1)
        self.noted: list[list[Call]] = [[] for _ in range(THREADS)]
        self.failures: list[BaseException] = []

    def call(self, number: int, rng: random.Random) -> Call | None:
        store, clock = self.store, self.clock
        key = b"k%d" % rng.randrange(KEYS)
        value = b"%d-%d" % (number, next(clock))
        self.unanswered[number] = key, value
        what = rng.random()
        began = next(clock)
        if what < 0.45:
            found = store.get(key)
            return Call(key, "get", began, next(clock), found)
        condition = None
        if what > 0.7:
            head = store.head(key)
            condition = head.sqn if head is not None else 0
            began = next(clock)
        try:
            if what < 0.6 or what > 0.8:
                sqn = store.put(key, value, if_sqn=condition)
                return Call(key, "put", began, next(clock), value, sqn, condition)
            sqn = store.delete(key, if_sqn=condition)
            return Call(key, "delete", began, next(clock), None, sqn, condition)
        except octavo.Conflict:
            return None

    def work(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        try:
            for _ in range(self.calls):
                made = self.call(number, rng)
                if made is not None:
                    self.noted[number].append(made)
        except octavo.Closed:
            return
        except BaseException as error:  # noqa: BLE001 (the test raises it)
            self.failures.append(error)

    def run(self, beside: list[object]) -> list[Call]:
        threads = [threading.Thread(target=self.work, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for each in beside:
            each()  # type: ignore[operator]
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        return [call for calls in self.noted for call in calls]
