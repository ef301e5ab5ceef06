"""Threads that call one store on few keys and note every answer: see histories.py."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

from histories import Call

import octavo

KEYS = 6
CALLS = 350
THREADS = 6
OPTIONS: dict[str, Any] = {
    "push_rows": 64, "push_bytes": 64 << 10, "roll_count": 256, "worker": False,
}  # fmt: skip
FIELD = "f"


def drawn_options(seed: str) -> dict[str, Any]:
    """Those over which a seed's threads call."""
    rng = random.Random(f"options {seed}")
    return {
        **OPTIONS,
        "push_rows": rng.choice((64, 64, 1000)),
        "sync": rng.choice(("none", "none", "always", 0.002)),
        "read_cache_bytes": rng.choice((0, 4096, 64 << 20)),
        "max_open_files": rng.choice((8, None)),
        "compression": rng.choice(("lz4", "none")),
        "compact_every_seconds": rng.choice((None, 0.01)),
        "compact_run_length": rng.choice((1, 8)),
    }


def padded(name: bytes) -> bytes:
    """The value of this name: most are short, some are compressed, some need two reads."""
    luck = random.Random(name)
    size = luck.choice((0, 0, 0, 0, 0, 300, 3000, 20_000))
    return name + b" " + (bytes(size) if luck.random() < 0.5 else luck.randbytes(size))


def name_of(value: bytes | None) -> bytes | None:
    """The name of a value, of which nothing is wrong."""
    if value is None:
        return None
    name = value.partition(b" ")[0]
    assert value == padded(name), f"a part of {name!r} is another"
    return name


class Threads:
    """Threads that call a store and note what it answered, values by their names."""

    def __init__(self, store: octavo.Store, seed: str, calls: int = CALLS) -> None:
        self.store = store
        self.seed = seed
        self.unanswered: dict[int, dict[bytes, bytes]] = {}
        """By thread: what it was about to write; of the last call nobody knows."""
        self.calls = calls
        self.clock = itertools.count(1)
        self.noted: list[list[Call]] = [[] for _ in range(THREADS)]
        self.failures: list[BaseException] = []

    def call(self, number: int, rng: random.Random) -> list[Call]:
        if rng.random() < 0.5:
            return self.read(rng)
        try:
            return self.write(number, rng)
        except octavo.Conflict:
            return []

    # ------------------------------------------------------------ reads

    def read(self, rng: random.Random) -> list[Call]:
        store, key = self.store, b"k%d" % rng.randrange(KEYS)
        what = rng.choices(READS, (60, 8, 6, 4, 4, 4, 1))[0]
        began = next(self.clock)
        if what == "get":
            return self.told(began, {key: store.get(key)})
        if what == "head":
            head = store.head(key)
            return [Call(key, "head", began, next(self.clock), None, head.sqn if head else 0)]
        if what == "get_many":
            return self.told(began, dict(zip(ALL, store.get_many(ALL), strict=True)))
        if what == "items":
            return self.told(began, {**NONE, **dict(store.items())})
        if what == "snapshot":
            with store.snapshot() as snap:
                ended = next(self.clock)
                return self.told(began, {each: snap.get(each) for each in ALL}, ended)
        if what == "index":
            pairs = list(store.index(FIELD).range())
            ended = next(self.clock)
            return [Call(each, "get", began, ended, term) for term, each in pairs]  # type: ignore[arg-type]
        with octavo.open(store.path, read_only=True) as reader:
            ended = next(self.clock)
            return self.told(began, {each: reader.get(each) for each in ALL}, ended)

    def told(self, began: int, found: dict[bytes, bytes | None], ended: int = 0) -> list[Call]:
        ended = ended or next(self.clock)
        return [Call(key, "get", began, ended, name_of(value)) for key, value in found.items()]

    # ------------------------------------------------------------ writes

    def write(self, number: int, rng: random.Random) -> list[Call]:
        store, clock = self.store, self.clock
        key, name = b"k%d" % rng.randrange(KEYS), b"%d-%d" % (number, next(clock))
        self.unanswered[number] = {key: name}
        if rng.random() < 0.15:
            return self.batch(number, rng)
        condition = None
        if rng.random() < 0.4:
            head = store.head(key)
            condition = head.sqn if head is not None else 0
        began = next(clock)
        if rng.random() < 0.3:
            sqn = store.delete(key, if_sqn=condition)
            return [Call(key, "delete", began, next(clock), None, sqn, condition)]
        value, given = padded(name), {}
        if rng.random() < 0.3:
            given = {"index": {FIELD: name}, "metadata": name, "ttl": 1000.0}
        sync = rng.random() < 0.02 or None
        sqn = store.put(key, value, if_sqn=condition, sync=sync, **given)  # type: ignore[arg-type]
        return [Call(key, "put", began, next(clock), name, sqn, condition)]

    def batch(self, number: int, rng: random.Random) -> list[Call]:
        keys = rng.sample(ALL, rng.choice((1, 2, 4)))
        names = {key: b"%d-%d" % (number, next(self.clock)) for key in keys}
        self.unanswered[number] = names
        began = next(self.clock)
        with self.store.batch() as batch:
            for key, name in names.items():
                batch.put(b"", key, padded(name), index={FIELD: name})
        ended = next(self.clock)
        first = batch.last_sqn - len(names) + 1
        return [
            Call(key, "put", began, ended, name, sqn)
            for sqn, (key, name) in enumerate(names.items(), first)
        ]

    # ------------------------------------------------------------ threads

    def work(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        try:
            for _ in range(self.calls):
                self.noted[number] += self.call(number, rng)
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


READS = ("get", "head", "get_many", "items", "snapshot", "index", "reader")
ALL = [b"k%d" % number for number in range(KEYS)]
NONE: dict[bytes, bytes | None] = dict.fromkeys(ALL)
