"""Shapes of work: operations that belong together, and the stores that they are done to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import count as counted
from typing import Any, NamedTuple

from shape_peers import EXPIRY_BYTES, METADATA, Side
from workload import Values, key

_KEY_BYTES_OF_LONG = 180
_LARGE_BYTES = 4096
_MEDIAN_BYTES, _SPREAD, _MOST_BYTES = 500, 2.0, 1 << 20
_HOT = 50
_IN_GROUP = 20
_QUEUED = 1000
_GROUP = 1000

Chance = random.Random


class Shape(NamedTuple):
    """One kind of operation: how many are in a turn, the method of a side, its arguments."""

    name: str
    number: int
    method: str
    arguments: Callable[[Chance], tuple[Any, ...]]
    reads: bool = True
    """Whether what the method gives is to be the same on both sides."""


class Group(NamedTuple):
    """A store on each side, and what is done to it."""

    name: str
    build: Callable[[Side], None]
    shapes: list[Shape]
    peers: tuple[str, ...] = ("rocksdb",)
    front: int = 0
    """Bytes before each value at a peer."""
    reopened: bool = False
    """It is closed and opened again before, and nothing of what is read is cached."""


class Sized:
    """Keys from 0 to below ``count`` and their values; further ones are new."""

    def __init__(self, count: int, value: Callable[[int], bytes]) -> None:
        self.count = count
        self.value = value
        self.fresh = counted(count)

    def old(self, chance: Chance) -> tuple[bytes]:
        """A key that is there."""
        return (key(chance.randrange(self.count)),)

    def pair(self, chance: Chance) -> tuple[bytes, bytes]:
        """A new value of a key that is there."""
        return key(chance.randrange(self.count)), self.value(chance.randrange(1 << 30))

    def hot(self, chance: Chance) -> tuple[bytes, bytes]:
        """The same of one of few keys."""
        return key(chance.randrange(_HOT)), self.value(chance.randrange(1 << 30))

    def new(self, chance: Chance) -> tuple[bytes, bytes]:
        """A key that is not there."""
        return key(next(self.fresh)), self.value(chance.randrange(1 << 30))

    def first_of(self, rows: int) -> Callable[[Chance], tuple[bytes, int]]:
        """(a place with so many keys behind it, if there are so many, that number)."""
        places = int((1 << 64) * max(1 - 1.2 * rows / self.count, 0.001))
        return lambda chance: (b"%016x" % chance.randrange(places), rows)

    def pairs(self, number: int) -> Callable[[Chance], tuple[list[tuple[bytes, bytes]]]]:
        """So many of ``pair``, as one argument."""
        return lambda chance: ([self.pair(chance) for _ in range(number)],)

    def olds(self, number: int) -> Callable[[Chance], tuple[list[bytes]]]:
        """So many of ``old``, as one argument."""
        return lambda chance: ([self.old(chance)[0] for _ in range(number)],)

    def indexed(self, *fields: str) -> Callable[[Chance], tuple[bytes, bytes, dict[str, int]]]:
        """A key that is not there, and a term for each field."""
        terms = self.count // _IN_GROUP
        return lambda chance: (
            *self.new(chance), {field: chance.randrange(terms) for field in fields}
        )  # fmt: skip

    def indexed_together(self, number: int, *fields: str) -> Callable[[Chance], tuple[Any]]:
        """So many of these, as one argument."""
        one = self.indexed(*fields)
        return lambda chance: ([one(chance) for _ in range(number)],)

    def together(self, of: Callable[[int], bytes] = key, size: int = _GROUP) -> Any:
        """The function that builds a store by put_many of ``size`` keys at a time; ``of`` gives
        keys by number."""

        def build(side: Side) -> None:
            for at in range(0, self.count, size):
                numbers = range(at, min(at + size, self.count))
                side.put_many([(of(number), self.value(number)) for number in numbers])

        return build

    def one_by_one(self, method: str) -> Callable[[Side], None]:
        """The function that builds a store by a method that takes key and value."""

        def build(side: Side) -> None:
            put = getattr(side, method)
            for number in range(self.count):
                put(key(number), self.value(number))

        return build


def groups(keys: int, sizes: list[int]) -> Iterator[Group]:
    """All of them, in the order in which they run."""
    for size in sizes:
        count = max(keys * min(300, size) // size, 2000) if size > 100 else keys
        peers = ("rocksdb", "rocksblob") if size >= _LARGE_BYTES else ("rocksdb",)
        yield changed(Sized(count, Values(size).of), size, peers)
        yield from written(count, size, peers)
    yield grouped(max(keys // _IN_GROUP, 1))
    yield long_keys(keys // 3)
    yield queue()
    yield index_query(keys // 4)
    yield mixed(keys // 8)


def changed(of: Sized, size: int, peers: tuple[str, ...]) -> Group:
    """What changes a store, and reads of few keys at once."""
    shapes = [
        *(
            Shape(f"batch of {each}", number, "batch", of.pairs(each), False)
            for each, number in ((1, 2000), (2, 1500), (3, 1200), (10, 500), (100, 60))
        ),
        *(
            Shape(f"put_many of {each}", number, "put_many", of.pairs(each), False)
            for each, number in ((2, 2000), (10, 800), (100, 80))
        ),
        *(
            Shape(f"get_many of {each}", number, "get_many", of.olds(each))
            for each, number in ((5, 1200), (20, 500))
        ),
        Shape("overwrite", 5000, "put", of.pair, False),
        Shape(f"overwrite of {_HOT} keys", 5000, "put", of.hot, False),
        Shape("read, modify, write", 4000, "rewrite", of.pair),
        Shape("delete and put", 3000, "renew", of.pair, False),
        Shape("counter", 4000, "count_up", lambda _: (b"counter",)),
        Shape("put with metadata", 3000, "put_with_metadata", of.new, False),
        Shape("put with ttl", 3000, "put_with_ttl", of.new, False),
        Shape("put with an index entry", 2000, "put_indexed", of.indexed("a"), False),
        Shape("put with two index entries", 2000, "put_indexed", of.indexed("a", "b"), False),
        Shape(
            "batch of 100 with an index entry each",
            60,
            "batch_indexed",
            of.indexed_together(100, "a"),
            False,
        ),
        Shape("put with if_sqn, known", 3000, "put_if_known", _some_of(of), False),
        Shape("head, put with if_sqn", 3000, "put_if", of.pair, False),
    ]
    return Group(f"{size} B", of.together(), shapes, peers)


def _some_of(of: Sized) -> Callable[[Chance], tuple[bytes, bytes]]:
    """Few keys that nothing else is done to."""
    own = [b"own %d" % number for number in range(2000)]
    return lambda chance: (chance.choice(own), of.value(chance.randrange(1 << 30)))


def written(count: int, size: int, peers: tuple[str, ...]) -> Iterator[Group]:
    """Reads of what was written in one way or another, opened again, no cache."""
    of = Sized(count, Values(size).of)

    def batches(side: Side) -> None:
        for at in range(0, count, 10):
            numbers = range(at, min(at + 10, count))
            side.batch([(key(number), of.value(number)) for number in numbers])

    def indexed(side: Side) -> None:
        for number in range(count):
            side.put_indexed(key(number), of.value(number), {"a": number // _IN_GROUP})

    shapes = [
        Shape("get", 3000, "get", of.old),
        Shape("get_many of 100", 40, "get_many", of.olds(100)),
        Shape("items, 20", 150, "items", of.first_of(20)),
        Shape("items, 100", 60, "items", of.first_of(100)),
        Shape("items, 1000", 10, "items", of.first_of(1000)),
        Shape("items, 10000", 2, "items", of.first_of(10_000)),
    ]
    for how, build, front in (
        ("plain puts", of.one_by_one("put"), 0),
        ("batches of 10", batches, 0),
        ("metadata", of.one_by_one("put_with_metadata"), len(METADATA)),
        ("ttl", of.one_by_one("put_with_ttl"), EXPIRY_BYTES),
        ("an index entry", indexed, 0),
    ):
        yield Group(f"{size} B, {how}, reopened", build, shapes, peers, front, reopened=True)


def grouped(users: int) -> Group:
    """Keys of which some belong together, put in random order."""
    order = list(range(users * _IN_GROUP))
    random.Random(3).shuffle(order)
    values = Values(100)
    later = counted(_IN_GROUP)

    def named(number: int) -> bytes:
        return b"user:%08d:item:%04d" % divmod(number, _IN_GROUP)

    def build(side: Side) -> None:
        for at in range(0, len(order), _GROUP):
            side.put_many([(named(each), values.of(each)) for each in order[at : at + _GROUP]])

    def user(chance: Chance) -> tuple[bytes]:
        return (b"user:%08d:" % chance.randrange(users),)

    def put(chance: Chance) -> tuple[bytes, bytes, bytes]:
        (prefix,) = user(chance)
        return b"%bitem:%04d" % (prefix, next(later)), values.of(chance.randrange(1 << 30)), prefix

    shapes = [
        Shape("all of a prefix", 300, "prefix", user),
        Shape("newest of a prefix", 500, "newest", user),
        Shape("first key from a place on", 500, "keys", lambda chance: (*user(chance), 1)),
        Shape("put, all of its prefix", 300, "put_and_prefix", put),
    ]
    return Group(f"prefixes of {_IN_GROUP}", build, shapes)


def long_keys(count: int) -> Group:
    """Keys of 180 bytes that begin alike."""
    of = Sized(count, Values(100).of)
    alike = b"tenant/0123456789/collection/abcdefghijklmnop/document/" * 4
    alike = alike[: _KEY_BYTES_OF_LONG - len(key(0))]
    from_place = of.first_of(20)

    def named(number: int) -> bytes:
        return alike + key(number)

    def longer(chance: Chance) -> tuple[bytes, bytes]:
        return named(chance.randrange(count)), of.value(chance.randrange(1 << 30))

    def place(chance: Chance) -> tuple[bytes, int]:
        first, rows = from_place(chance)
        return alike + first, rows

    shapes = [
        Shape("overwrite", 4000, "put", longer, False),
        Shape("get", 4000, "get", lambda chance: longer(chance)[:1]),
        Shape("items, 20", 200, "items", place),
    ]
    return Group("long keys", of.together(named), shapes)


def queue() -> Group:
    """Messages of 100 bytes in the order in which they came, a thousand waiting."""
    values = Values(100)
    numbers = counted(_QUEUED)

    def build(side: Side) -> None:
        side.put_many([(b"%016d" % number, values.of(number)) for number in range(_QUEUED)])

    def message(_: Chance) -> tuple[bytes, bytes]:
        number = next(numbers)
        return b"%016d" % number, values.of(number)

    shapes = [
        Shape("put, take the first", 500, "pass_on", message),
        Shape("put, take the one behind the last", 500, "pass_on_from", message),
    ]
    return Group("queue", build, shapes)


def index_query(count: int) -> Group:
    """Terms that twenty keys have each."""
    of = Sized(count, Values(100).of)
    terms = max(count // _IN_GROUP, 1)

    def build(side: Side) -> None:
        for number in range(count):
            side.put_indexed(key(number), of.value(number), {"a": number % terms})

    asked = Shape("query", 300, "indexed", lambda chance: ("a", chance.randrange(terms)))
    return Group(f"index, {_IN_GROUP} keys a term", build, [asked])


def mixed(count: int) -> Group:
    """Values of many sizes, most of them small, half of all bytes in few."""
    chance = random.Random(5)
    drawn = [chance.lognormvariate(math.log(_MEDIAN_BYTES), _SPREAD) for _ in range(4096)]
    sizes = [min(int(size) + 1, _MOST_BYTES) for size in drawn]
    largest = Values(2 * _MOST_BYTES).of(0)

    def value(number: int) -> bytes:
        size = sizes[number % len(sizes)]
        start = _MOST_BYTES - size // 2 - number * 7919 % (_MOST_BYTES // 2)
        return largest[start : start + size // 2] + largest[-(size - size // 2) :]

    of = Sized(count, value)
    shapes = [
        Shape("overwrite", 1500, "put", of.pair, False),
        Shape("get", 2000, "get", of.old),
        Shape("items, 20", 100, "items", of.first_of(20)),
    ]
    return Group("mixed sizes", of.together(size=100), shapes, ("rocksdb", "rocksblob"))
