"""A store on a few keys, every version of which is known by its sqn: so what a call finds can be
held against the states that there were while it ran. Nothing runs on its pool; its clock is set
by hand."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from one_thread import HeldPool, opened

import octavo
from octavo.actors.bookie import Bookie
from octavo.files.door.disk import RealDisk

KEYS = [b"k%02d" % number for number in range(12)]
KEY, NEXT = KEYS[3], KEYS[5]
SEVERAL = [KEY, NEXT, KEYS[4], KEYS[7]]
FIELD = "t"
TERMS = 4
NOW_MS = 1_700_000_000_000
KEEPS = -1


class Version(NamedTuple):
    sqn: int
    key: bytes
    value: bytes | None
    """None: a delete."""
    term: int | None = None
    """KEEPS: that of the version before."""
    expiry_ms: int = 0

    def lives(self, now_ms: int) -> bool:
        return not self.expiry_ms or self.expiry_ms > now_ms


State = dict[bytes, Version]


class KnownStore:
    """A store, what was written to it, and snapshots that are held."""

    mode = "standard"

    def __init__(self, home: Path, pool: HeldPool, rng: random.Random) -> None:
        self.pool, self.rng = pool, rng
        self.now_ms = NOW_MS
        self.versions: list[Version] = []
        self.batches: list[range] = []
        """Their sqns but for the last ones: at those there is no state."""
        self.held: deque[octavo.Snapshot] = deque()
        self.since, self.since_ms = 0, NOW_MS
        """The sqn, and the moment, before the calls that are judged."""
        self.later: list[Callable[[], str]] = []
        """What tells, as all have ended, what is wrong with them."""
        self.tried: list[Version] = []
        """Writes that were not answered yet, were refused, or never will be answered."""
        self._number, self.home = 0, home
        self.beside: deque[octavo.ReadOnlyStore] = deque()
        """Readers as of some moment."""
        self.store = self._opened()
        for number, key in enumerate(KEYS):
            self.put(key, term=number % TERMS)

    def _opened(self) -> octavo.Store:
        return opened(
            RealDisk(),
            str(self.home),
            mode=self.mode,
            clock_ms=lambda: self.now_ms,
            read_cache_bytes=self.rng.choice((0, 4096, 1 << 20, 1 << 20)),
            push_rows=self.rng.choice((64, 200)),
            max_open_files=self.rng.choice((8, 64)),
            waste_retention_seconds=self.rng.choice((0, 0, 2)),
        )

    # ------------------------------------------------------------ what depends on the mode

    def bucket_of(self, source: Any) -> Any:
        """Where the keys are, in the store, a snapshot or a reader."""
        return source

    def begin_batch(self) -> Any:
        return self.store.batch()

    def items_in(self, source: Any) -> list[tuple[bytes, bytes | None]]:
        return list(source.items())

    @property
    def bucket(self) -> Any:
        return self.bucket_of(self.store)

    def gets_in(self, source: Any, keys: list[bytes] = KEYS) -> list[bytes | None]:
        return [self.bucket_of(source).get(key) for key in keys]

    # ------------------------------------------------------------ writing

    def value(self) -> bytes:
        self._number += 1
        return b"%d:" % self._number + b"x" * self.rng.choice((0, 3, 300))

    def put(self, key: bytes = KEY, term: int | None = None, ttl: int = 0, **more: Any) -> int:
        value, expiry_ms = self.value(), self.now_ms + ttl * 1000 if ttl else 0
        if term == KEEPS:
            more["index"] = octavo.IndexEdit(remove={"other": None})
        elif term is not None:
            more["index"] = {FIELD: term}
        if ttl:
            more["expires_at"] = expiry_ms
        version = Version(0, key, value, term, expiry_ms)
        with self.trying(version):
            sqn = self.bucket.put(key, value, **more)
        self.versions.append(version._replace(sqn=sqn))
        return sqn

    def delete(self, key: bytes = KEY) -> None:
        with self.trying(Version(0, key, None)):
            sqn = self.bucket.delete(key)
        self.versions.append(Version(sqn, key, None))

    def batch(self, **more: Any) -> int:
        values = [None if key == KEYS[4] else self.value() for key in SEVERAL]
        tried = [Version(0, key, value) for key, value in zip(SEVERAL, values, strict=True)]
        with self.trying(*tried), self.begin_batch() as batch:
            for key, value in zip(SEVERAL, values, strict=True):
                if value is None:
                    batch.delete(b"", key)
                else:
                    batch.put(b"", key, value, **(more if key == KEY else {}))
            last: int = batch.commit()
        return self.wrote_at_once(last, tried)

    def wrote_at_once(self, last: int, tried: list[Version]) -> int:
        """All of these, up to that sqn. The first one's."""
        first = last - len(tried) + 1
        self.batches.append(range(first, last))
        self.versions += [each._replace(sqn=sqn) for sqn, each in enumerate(tried, first)]
        return first

    @contextmanager
    def trying(self, *versions: Version) -> Iterator[None]:
        """Within it these are being written."""
        self.tried += versions
        yield
        for each in versions:
            self.tried.remove(each)

    def push(self) -> None:
        self.store._running.bookie.call(Bookie.push)

    def open_again(self) -> None:
        """Close it, if nobody has, and open it with other options. Of writes that were not answered
        that counts which is there."""
        self.store.close()
        self.held.clear()
        self.let_go()
        self.store = self._opened()
        state = self.at(self.store.last_sqn, self.now_ms)
        for each in self.tried:
            if value_in(state, each.key) != self.bucket.get(each.key) == each.value:
                head = self.bucket.head(each.key)
                sqn = self.store.last_sqn if head is None else head.sqn
                self.versions.append(each._replace(sqn=sqn))

    def let_go(self) -> None:
        """Of the readers."""
        while self.beside:
            self.beside.pop().close()

    # ------------------------------------------------------------ judging

    def begin(self) -> None:
        """What comes is judged; what was replaced before, and no snapshot sees, is forgotten."""
        self.since, self.since_ms = self.store.last_sqn, self.now_ms
        self.tried.clear()
        floor = min((each.sqn for each in self.held), default=self.since)
        newest = {each.key: each for each in sorted(self.versions) if each.sqn <= floor}
        later = [each for each in self.versions if each.sqn > floor]
        self.versions = [*newest.values(), *later]
        self.batches = [batch for batch in self.batches if batch.stop > floor]

    def end(self) -> str:
        """What is wrong, or nothing, as all calls have ended."""
        self.settle_terms()
        later, self.later = self.later, []
        for judge in later:
            if wrong := judge():
                return wrong
        state = self.at(self.store.last_sqn, self.now_ms)
        for key, value in zip(KEYS, self.gets_in(self.store), strict=True):
            if value != value_in(state, key):
                return f"a get of {key!r} finds {value!r}, not {value_in(state, key)!r}"
        return ""

    def settle_terms(self) -> None:
        """Of who kept that of the version before: whether that lived may have been up to when."""
        for place, each in enumerate(self.versions):
            if each.term == KEEPS:
                before = self.before(each.key, each.sqn)
                terms = {None if one is None else one.term for one in before}
                if len(terms) > 1:
                    told = self.store.index_of(each.key) or {}
                    terms &= {next(iter(told.get(FIELD.encode(), [])), None)}  # type: ignore[arg-type]
                (term,) = terms
                self.versions[place] = each._replace(term=term)

    def before(self, key: bytes, sqn: int) -> list[Version | None]:
        """What a write of the key may have come upon: that depends on the moment."""
        return [self.at(sqn - 1, now_ms).get(key) for now_ms in (self.since_ms, self.now_ms)]

    def own_sqn(self) -> int:
        """That of the one write that did not tell."""
        known = {each.sqn for each in self.versions}
        (sqn,) = set(range(self.since + 1, self.store.last_sqn + 1)) - known
        return sqn

    def at(self, sqn: int, now_ms: int) -> State:
        """What is found by who sees all up to this sqn, at this moment."""
        state: State = {}
        for each in sorted(self.versions):
            if each.sqn > sqn:
                break
            if each.value is None:
                state.pop(each.key, None)
                continue
            if each.term == KEEPS:
                before = state.get(each.key)
                kept = before.term if before is not None and before.lives(now_ms) else None
                each = each._replace(term=kept)
            state[each.key] = each
        return {key: each for key, each in sorted(state.items()) if each.lives(now_ms)}

    def states(self) -> Iterator[State]:
        """Those that there were since the calls began."""
        for now_ms in {self.since_ms, self.now_ms}:
            for sqn in range(self.since, self.store.last_sqn + 1):
                if not any(sqn in batch for batch in self.batches):
                    yield self.at(sqn, now_ms)


def value_in(state: State, key: bytes) -> bytes | None:
    return state[key].value if key in state else None


def items_of(state: State) -> list[tuple[bytes, bytes | None]]:
    return [(key, each.value) for key, each in state.items()]
