"""Steps of a store's life, each determined by a seed and its number, and what is there after them.

``Told`` is the model: a dict, and for each number of steps a digest of it, so that any later
finding can be held against every moment.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import octavo

KEYS = 120
MARKS = 32
INDEXED = b"i"
BUCKETS = (b"", INDEXED)
FIELD = b"f"

State = dict[tuple[bytes, bytes], tuple[bytes, int]]
"""(bucket, key): (value, index term or -1)."""


class Change(NamedTuple):
    bucket: bytes
    key: bytes
    value: bytes | None
    term: int


class Step(NamedTuple):
    kind: str
    """put, delete, batch, many or sync."""
    changes: tuple[Change, ...]


def step(seed: str, number: int) -> Step:
    """Step ``number`` of the life of ``seed``: always the same."""
    rng = random.Random(f"{seed} {number}")
    what = rng.random()
    if what < 0.5:
        return Step("put", (_put(rng, number),))
    if what < 0.62:
        gone = _put(rng, number)
        return Step("delete", (Change(gone.bucket, gone.key, None, -1),))
    if what < 0.85:
        # The same mark on both ends: whoever finds one without the other has half a batch.
        mark = b"%02d" % (number % MARKS)
        inner = {change[:2]: change for change in (_put(rng, number) for _ in range(4))}
        gone = _put(rng, number)
        inner[gone[:2]] = Change(gone.bucket, gone.key, None, -1)
        first, last = (Change(b"", end + mark, b"%d" % number, -1) for end in (b"A", b"Z"))
        return Step("batch", (first, *inner.values(), last))
    if what < 0.95:
        pairs = {}
        for _ in range(rng.randrange(1, 12)):
            change = _put(rng, number)
            # Values from 32 KiB up are written one by one: a backup may come between.
            value = (change.value or b"")[:20_000]
            pairs[change.key] = Change(b"", change.key, value, -1)
        if len(pairs) == 2:  # so are two pairs
            pairs.popitem()
        return Step("many", tuple(pairs.values()))
    return Step("sync", ())


def _put(rng: random.Random, number: int) -> Change:
    bucket = rng.choice(BUCKETS)
    key = b"k%03d" % rng.randrange(KEYS)
    value = b"%d of %s;" % (number, key)
    size = rng.random()
    if size < 0.01:
        value += rng.randbytes(60_000)
    elif size < 0.06:
        value += b"compressible " * 300
    elif size < 0.5:
        value += rng.randbytes(rng.randrange(200))
    return Change(bucket, key, value, number % 16 if bucket == INDEXED else -1)


def take(store: octavo.Store, taken: Step) -> int:
    """Do it; the last sqn, 0 for none. Raises what the store raises."""
    kind, changes = taken
    if kind == "put":
        return put(store, changes[0])
    if kind == "delete":
        return store.bucket(changes[0].bucket).delete(changes[0].key)
    if kind == "batch":
        with store.batch() as batch:
            for bucket, key, value, term in changes:
                if value is None:
                    batch.delete(bucket, key)
                else:
                    batch.put(bucket, key, value, index={FIELD: term} if term >= 0 else None)
        return batch.last_sqn
    if kind == "many":
        return store.put_many((key, value) for _, key, value, _ in changes)
    store.sync()
    return 0


def put(store: octavo.Store, change: Change) -> int:
    bucket, key, value, term = change
    if value is None:
        raise TypeError("a put without a value")
    index = {FIELD: term} if term >= 0 else None
    return store.bucket(bucket).put(key, value, index=index)


def contents(store: octavo.Store | octavo.Snapshot) -> State:
    """All that a store holds, read in two ways that must agree, with its index entries."""
    found: State = {}
    for name in BUCKETS:
        bucket = store.bucket(name)
        terms = {}
        if name == INDEXED:
            for term, key in bucket.index(FIELD).range():
                if key in terms:
                    raise AssertionError(f"{key!r} has two index entries")
                terms[key] = term
        for key, value in bucket.items():
            found[name, key] = (value, terms.pop(key, -1))
        if terms:
            raise AssertionError(f"index entries without objects: {terms}")
        keys = [key for bucket_of, key in found if bucket_of == name]
        if bucket.get_many(keys) != [found[name, key][0] for key in keys]:
            raise AssertionError("items and get_many disagree")
    return found


def digest_of(state: State) -> int:
    total = 0
    for item in state.items():
        total ^= hash(item)
    return total


@dataclass
class Told:
    """What was acknowledged of a life, and so what must be there."""

    seed: str
    state: State = field(default_factory=dict)
    done: int = 0
    """Steps that were taken for certain."""
    digest: int = 0
    digests: list[int] = field(default_factory=lambda: [0])
    """After each number of steps."""
    sqns: list[int] = field(default_factory=lambda: [0])
    """Last sqn after each number of steps."""

    def apply(self, taken: Step) -> None:
        for bucket, key, value, term in taken.changes:
            where = bucket, key
            if where in self.state:
                self.digest ^= hash((where, self.state[where]))
                del self.state[where]
            if value is not None:
                self.state[where] = value, term
                self.digest ^= hash((where, self.state[where]))

    def acknowledge(self, number: int, sqn: int) -> None:
        """Step ``number`` was answered, with ``sqn`` the newest after it."""
        if number != self.done + 1:
            raise AssertionError(f"step {number} was answered behind step {self.done}")
        if sqn < self.sqns[-1]:
            raise AssertionError(f"sqn {sqn} came behind {self.sqns[-1]}")
        self.apply(step(self.seed, number))
        self._note(number, sqn)

    def _note(self, number: int, sqn: int) -> None:
        self.done = number
        self.digests.append(self.digest)
        self.sqns.append(sqn)

    def settle(self, found: State, last_sqn: int) -> None:
        """Everything acknowledged is in ``found``, and the next step whole or not at all; go on
        from there. Raises AssertionError."""
        if last_sqn < self.sqns[-1]:
            raise AssertionError(f"the store is at sqn {last_sqn}, {self.sqns[-1]} was answered")
        if found == self.state:
            # Of what was not answered nothing is there; it is passed over.
            self._note(self.done + 1, last_sqn)
            return
        following = step(self.seed, self.done + 1)
        whole = range(1, len(following.changes) + 1)
        for count in whole if following.kind == "many" else whole[-1:]:
            before = dict(self.state), self.digest
            self.apply(Step(following.kind, following.changes[:count]))
            if found == self.state:
                self._note(self.done + 1, last_sqn)
                return
            self.state, self.digest = before
        raise AssertionError(f"after {self.done} steps: {differences(self.state, found)}")

    def settle_synced(self, found: State, last_sqn: int, durable: int) -> None:
        """As settle, where only the first ``durable`` steps were synced: of those behind it each
        may be lost, by itself; a batch is whole or not at all."""
        allowed: dict[tuple[bytes, bytes], set[tuple[bytes, int] | None]] = {}
        again = Told(self.seed)
        # Every step up to ``durable`` counts; steps that were passed over left no trace.
        again.state = dict(self.base)
        for number in range(self.base_step + 1, self.done + 2):
            if number <= durable:
                again.apply(step(self.seed, number))
                continue
            for bucket, key, value, term in step(self.seed, number).changes:
                where = bucket, key
                allowed.setdefault(where, {again.state.get(where)}).add(
                    None if value is None else (value, term)
                )
        for where in found.keys() | again.state.keys() | allowed.keys():
            may = allowed.get(where, {again.state.get(where)})
            if found.get(where) not in may:
                raise AssertionError(f"{where}: {short(found.get(where))} is none of {len(may)}")
        for mark in range(MARKS):
            ends = {found.get((b"", end + b"%02d" % mark)) for end in (b"A", b"Z")}
            if len(ends) > 1:
                raise AssertionError(f"half a batch: {ends}")
        if last_sqn < self.sqns[durable]:
            raise AssertionError(f"the store is at sqn {last_sqn}, {self.sqns[durable]} was synced")
        self.state, self.digest = dict(found), digest_of(found)
        # What was lost is no moment that a backup may show, unless it was one before.
        self._note(self.done + 1, max(last_sqn, self.sqns[-1]))

    base: State = field(default_factory=dict)
    base_step: int = 0

    def rebase(self) -> None:
        """The next round begins here."""
        self.base, self.base_step = dict(self.state), self.done


def short(value: object) -> str:
    return repr(value)[:80]


def differences(expected: State, found: State) -> str:
    wrong = [
        f"{where}: {short(expected.get(where))} expected, {short(found.get(where))} found"
        for where in sorted(expected.keys() | found.keys())
        if expected.get(where) != found.get(where)
    ]
    return f"{len(wrong)} differences: " + "; ".join(wrong[:6])
