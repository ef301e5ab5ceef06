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
        """By thread: what it is about to write; of the call that met the end nobody knows."""
        self.newest: dict[bytes, bytes] = {}
        """Of some keys: a name that one was put with lately."""
        self.calls = calls
        self.clock = itertools.count(1)
        self.noted: list[list[Call]] = [[] for _ in range(THREADS)]
        self.failures: list[BaseException] = []

    def call(self, number: int, rng: random.Random) -> list[Call]:
        if rng.random() < 0.5:
            return self.read(rng)
        try:
            noted = self.write(number, rng)
        except octavo.Conflict:
            noted = []
        self.unanswered.pop(number, None)
        return noted

    # ------------------------------------------------------------ reads

    def read(self, rng: random.Random) -> list[Call]:
        store, key = self.store, b"k%d" % rng.randrange(KEYS)
        what = rng.choices(READS, (60, 8, 6, 4, 4, 4, 1, 8, 8, 8))[0]
        began = next(self.clock)
        if what == "get":
            return self.told(began, {key: store.get(key)})
        if what == "head":
            head = store.head(key)
            return [Call(key, "head", began, next(self.clock), None, head.sqn if head else 0)]
        if what == "get_many":
            return self.told(began, dict(zip(ALL, store.get_many(ALL), strict=True)))
        if what == "items":
            return self.told(began, {**NONE, **dict(store.items())}, moment=began)
        if what == "snapshot":
            with store.snapshot() as snap:
                ended = next(self.clock)
                return self.told(began, {each: snap.get(each) for each in ALL}, ended, began)
        if what == "index":
            return self.entries(began, 0, reverse=False, having=None)
        if what == "few items":
            return self.few_items(began, rng.randrange(1, KEYS + 2), reverse=rng.random() < 0.5)
        if what == "few keys":
            given = rng.choice(({"prefix": b"k"}, {"start": b"k", "end": b"l"}, {"limit": KEYS}))
            there = set(store.keys(**given, reverse=rng.random() < 0.5))  # type: ignore[arg-type]
            ended = next(self.clock)
            told = {each: b"" if each in there else None for each in ALL}
            return [Call(each, "key", began, ended, v, moment=began) for each, v in told.items()]
        if what == "few entries":
            known = rng.choice((None, None, self.newest.get(key)))
            limit = rng.randrange(1, KEYS + 2)
            return self.entries(began, limit, reverse=rng.random() < 0.5, having=known)
        with octavo.open(store.path, read_only=True) as reader:
            ended = next(self.clock)
            return self.told(began, {each: reader.get(each) for each in ALL}, ended, began)

    def told(
        self, began: int, found: dict[bytes, bytes | None], ended: int = 0, moment: int = 0
    ) -> list[Call]:
        ended = ended or next(self.clock)
        return [
            Call(key, "get", began, ended, name_of(value), moment=moment)
            for key, value in found.items()
        ]

    def few_items(self, began: int, limit: int, *, reverse: bool) -> list[Call]:
        """The first keys, or last ones; of those behind them nothing is told."""
        found = dict(self.store.items(limit=limit, reverse=reverse))
        keys = ALL
        if len(found) == limit:
            last = list(found)[-1]
            keys = [key for key in ALL if (key >= last if reverse else key <= last)]
        return self.told(began, {key: found.get(key) for key in keys}, moment=began)

    def entries(self, began: int, limit: int, *, reverse: bool, having: bytes | None) -> list[Call]:
        """All entries, the first or last ones, or those of one term."""
        index = self.store.index(FIELD)
        if having is not None:
            some = list(index.having(having))
            ended = next(self.clock)
            return [Call(each, "entry", began, ended, having, moment=began) for each in some]
        pairs = list(index.range(reverse=reverse, limit=limit or None))
        ended = next(self.clock)
        if pairs != sorted(pairs, reverse=reverse):
            raise AssertionError(f"not in order: {pairs}")
        kind, bound = "entry", None
        if pairs and len(pairs) == limit:
            kind, bound = "before" if reverse else "behind", pairs[-1][0]
        terms = {each: term for term, each in pairs}
        return [
            Call(each, "entry", began, ended, terms[each], moment=began)  # type: ignore[arg-type]
            if each in terms
            else Call(each, kind, began, ended, bound, moment=began)  # type: ignore[arg-type]
            for each in ALL
        ]

    # ------------------------------------------------------------ writes

    def write(self, number: int, rng: random.Random) -> list[Call]:
        store, clock = self.store, self.clock
        key, name = b"k%d" % rng.randrange(KEYS), b"%d-%d" % (number, next(clock))
        self.unanswered[number] = {key: name}
        luck = rng.random()
        if luck < 0.15:
            return self.batch(number, rng)
        if luck < 0.25:
            return self.take(number, rng)
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
        self.newest[key] = name
        return [Call(key, "put", began, next(clock), name, sqn, condition, bool(given))]

    def take(self, number: int, rng: random.Random) -> list[Call]:
        """The first or last key, as from a queue."""
        store, reverse = self.store, rng.random() < 0.5
        if rng.random() < 0.5:
            key = next(store.index(FIELD).keys(limit=1, reverse=reverse), None)
        else:
            key = next(store.keys(limit=1, reverse=reverse), None)
        head = None if key is None else store.head(key)
        if key is None or head is None:
            return []
        self.unanswered[number] = {key: b""}
        began = next(self.clock)
        sqn = store.delete(key, if_sqn=head.sqn)
        return [Call(key, "delete", began, next(self.clock), None, sqn, head.sqn)]

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
            Call(key, "put", began, ended, name, sqn, indexed=True)
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


READS = (
    "get", "head", "get_many", "items", "snapshot", "index", "reader", "few items", "few keys",
    "few entries",
)  # fmt: skip
ALL = [b"k%d" % number for number in range(KEYS)]
NONE: dict[bytes, bytes | None] = dict.fromkeys(ALL)
