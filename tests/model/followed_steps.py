"""What the owner of a followed store does, step by step from a seed, and what must come of it.

``Truth`` is told each step with the sqn that answered it, and so knows every sequence number.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from staged_rows import StagedRow, operations
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms

BUCKETS = (b"", b"docs")
KEYS = 150
LOADED = b"loaded/"
"""Keys of loads by Spark, which no step knows, begin so."""
Place = tuple[bytes, bytes]


class Change(NamedTuple):
    bucket: bytes
    key: bytes
    value: bytes | None
    metadata: bytes = b""

    @property
    def told(self) -> tuple[bytes, bytes, int]:
        return self.bucket, self.key, digest(self.value, self.metadata)


class Step(NamedTuple):
    kind: str
    changes: tuple[Change, ...]


def digest(value: bytes | None, metadata: bytes | None) -> int:
    """Of what a change brings; 0 of a delete."""
    return 0 if value is None else xxh3(b"%s|%s" % (metadata or b"", value)) or 1


def step(seed: str, number: int) -> Step:
    """Step ``number`` of the life of ``seed``: always the same."""
    rng = random.Random(f"{seed} {number}")
    what = rng.random()
    if what < 0.55:
        return Step("put", (_put(rng, number, 0),))
    if what < 0.67:
        return Step("delete", (_put(rng, number, 0)._replace(value=None, metadata=b""),))
    if what < 0.995:
        kind = "batch" if what < 0.85 else "many" if what < 0.95 else "gone"
        count = rng.randrange(2, 12)
    else:
        kind, count = "load", rng.randrange(1, 60)
    made = {change[:2]: change for change in (_put(rng, number, at) for at in range(count))}
    if kind == "many":  # of one bucket, and so small that they are written together
        plain = {c.key: Change(b"", c.key, (c.value or b"")[:9000]) for c in made.values()}
        return Step(kind, tuple(plain.values()))
    if kind == "gone":
        return Step(
            kind, tuple(Change(b"", key, None) for key in {c.key: 0 for c in made.values()})
        )
    if kind == "batch":
        gone = _put(rng, number, count)._replace(value=None, metadata=b"")
        made[gone[:2]] = gone
    return Step(kind, tuple(made.values()))


def _put(rng: random.Random, number: int, at: int) -> Change:
    key = b"k%03d" % rng.randrange(KEYS)
    if rng.random() < 0.05:
        key = b"only/%d.%d" % (number, at)
    value, size = b"%d.%d of %s;" % (number, at, key), rng.random()
    if size < 0.004:
        value += rng.randbytes(60_000)
    elif size < 0.05:
        value += b"compressible " * 300
    elif size < 0.5:
        value += rng.randbytes(rng.randrange(200))
    metadata = b"m%d" % number if rng.random() < 0.1 else b""
    return Change(rng.choice(BUCKETS), key, value, metadata)


# ---------------------------------------------------------------- doing them


def take(store: octavo.Store, taken: Step, number: int) -> int:
    """Do it; the last sqn. Raises what the store raises."""
    kind, changes = taken
    first = changes[0]
    if kind == "put":
        return store.bucket(first.bucket).put(*first[1:3], metadata=first.metadata)
    if kind == "delete":
        return store.bucket(first.bucket).delete(first.key)
    if kind == "many":
        return store.put_many((change.key, change.value or b"") for change in changes)
    if kind == "gone":
        return store.delete_many(change.key for change in changes)
    if kind == "load":
        return load(store, changes, f"step-{number}")
    with store.batch() as batch:
        for bucket, key, value, metadata in changes:
            if value is None:
                batch.delete(bucket, key)
            else:
                batch.put(bucket, key, value, metadata=metadata)
    return batch.last_sqn


def load(store: octavo.Store, changes: Iterable[Change], job: str) -> int:
    """By way of files, as Spark's tasks do it."""
    writer = StagedWriter(RealDisk(), store.path, job, "one", now_ms=wall_clock_ms())
    rows = [StagedRow(c.bucket, c.key, c.value, metadata=c.metadata) for c in changes]
    writer.add(operations(rows))
    writer.finish()
    return store.ingest(job, ["one"]).last_sqn


def take_of_heads(store: octavo.Store, taken: Step, number: int) -> int:
    """The same in a head-only store: every step is a batch."""
    with store.head_batch() as batch:
        for bucket, key, value, _ in taken.changes:
            if value is None:
                batch.delete(bucket, key, sub_key=key[-1:])
            else:
                batch.put(bucket, key, value, sub_key=key[-1:])
    return batch.last_sqn


# ---------------------------------------------------------------- what must be there


class Row(NamedTuple):
    """A change as somebody was told it."""

    sqn: int
    bucket: bytes
    key: bytes
    digest: int


def row_of(told: list[Any]) -> Row:
    sqn, bucket, key, each = told
    return Row(sqn, bytes.fromhex(bucket), bytes.fromhex(key), each)


def loaded_row(key: bytes) -> Change:
    """What a load of Spark's brings for a key."""
    return Change(b"", key, b"of " + key)


class Truth:
    """All changes by their sqns."""

    def __init__(self, seed: str, *, heads: bool = False) -> None:
        self.seed = seed
        self.heads = heads
        """Each step is a batch, of entries without metadata."""
        self.done = 0
        self.newest = 0
        """Of steps."""
        self.rows: dict[int, tuple[bytes, bytes, int]] = {}
        self.atomic: list[tuple[int, int]] = []

    def acknowledge(self, number: int, last: int) -> None:
        """A step was answered."""
        taken = self._step(number)
        self._count(number, taken, len(taken.changes), last)

    def _step(self, number: int) -> Step:
        taken = step(self.seed, number)
        if self.heads:
            plain = tuple(change._replace(metadata=b"") for change in taken.changes)
            taken = Step("batch", plain)
        return taken

    def _count(self, number: int, taken: Step, count: int, last: int) -> None:
        first = last - count + 1
        if first <= self.newest or number != self.done + 1:
            raise AssertionError(f"step {number} has sqns {first}-{last} behind {self.newest}")
        for at, change in enumerate(taken.changes[:count]):
            self.rows[first + at] = change.told
        if taken.kind == "batch" and count > 1:  # a load comes at once, and may be read in parts
            self.atomic.append((first, last))
        self.done, self.newest = number, last

    def found(self, rows: list[Row]) -> None:
        """What an opening found behind the last answer: the next step, or of many a part."""
        mine = [row for row in rows if not row.key.startswith(LOADED)]
        number = self.done + 1
        taken = self._step(number)
        if not mine:
            self.done = number  # nothing of it; it is passed over
            return
        count = len(mine)
        whole = [change.told for change in taken.changes]
        if [row[1:] for row in mine] != whole[:count] or (
            count < len(whole) and taken.kind not in ("many", "gone")
        ):
            raise AssertionError(f"step {number}, {taken.kind}: {len(whole)} made, {mine} found")
        if mine[-1].sqn - mine[0].sqn != count - 1:
            raise AssertionError(f"step {number}: sqns {[row.sqn for row in mine]}")
        self._count(number, taken, count, mine[-1].sqn)

    def loaded(self, rows: Iterable[Row]) -> None:
        """Take what Spark loaded from what the store itself tells in the end."""
        for row in rows:
            if not row.key.startswith(LOADED):
                continue
            if row.sqn in self.rows or row[1:] != loaded_row(row.key).told:
                raise AssertionError(f"{row} was never loaded")
            self.rows[row.sqn] = row[1:]
        self.newest = max(self.rows, default=0)

    def sorted(self) -> list[Row]:
        return [Row(sqn, *self.rows[sqn]) for sqn in sorted(self.rows)]

    def state(self, upto: int | None = None) -> dict[Place, tuple[int, int]]:
        """(sqn, digest) of what lives as of a sqn."""
        found: dict[Place, tuple[int, int]] = {}
        for row in self.sorted():
            if upto is not None and row.sqn > upto:
                break
            if row.digest:
                found[row[1:3]] = row.sqn, row.digest
            else:
                found.pop(row[1:3], None)
        return found


class Judge:
    """Holds what was told against a truth that is whole."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.rows = truth.sorted()
        self._sqns = [row.sqn for row in self.rows]
        self._last = {row[1:3]: row.sqn for row in self.rows}

    def told(self, found: list[Row], since: int, upto: int, gone_upto: int, what: str) -> None:
        """``found`` is what is in (since, upto]; up to ``gone_upto`` what was replaced or deleted
        since, and deletes, may be missing."""
        left, right = bisect_right(self._sqns, since), bisect_right(self._sqns, upto)
        there = iter(found)
        row = next(there, None)
        for wanted in self.rows[left:right]:
            if row == wanted:
                row = next(there, None)
                continue
            replaced = not wanted.digest or self._last[wanted[1:3]] != wanted.sqn
            if wanted.sqn <= gone_upto and replaced:
                continue
            raise AssertionError(f"{what}: {wanted} is missing; {row} was told")
        if row is not None:
            raise AssertionError(f"{what}: {row} was told, which is none of ({since}, {upto}]")

    def followed(self, history: Mapping[Place, list[int]], what: str) -> None:
        """What a follower was given, key by key, is in the order of the truth, nothing twice."""
        mine: dict[Place, list[int]] = {}
        for row in self.rows:
            mine.setdefault(row[1:3], []).append(row.digest)
        for place, given in history.items():
            there = iter(mine.get(place, ()))
            for each in given:
                if not any(each == other for other in there):
                    raise AssertionError(f"{what}: {place} was given {given[:50]}")

    def whole_batches(self, ends: list[int], horizon: int, what: str) -> None:
        """No atomic batch is split by what ends at these sqns; of one that compaction took a part
        of the others are no batch any more."""
        for first, last in self.truth.atomic:
            if first > horizon and bisect_right(ends, first - 1) != bisect_right(ends, last - 1):
                raise AssertionError(f"{what}: the batch {first}-{last} was split")


def differences(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> str:
    wrong = [
        f"{where}: {wanted.get(where)} expected, {found.get(where)} found"
        for where in sorted(wanted.keys() | found.keys())
        if wanted.get(where) != found.get(where)
    ]
    return f"{len(wrong)} differences: " + "; ".join(wrong[:6])
