"""Calls of a store of which every version is known: what they read, and what is to be found; what
they change. Those of a head-only store: see known_heads.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from crash_workloads import rolled
from known_store import (
    FIELD,
    KEEPS,
    KEY,
    KEYS,
    NEXT,
    SEVERAL,
    TERMS,
    KnownStore,
    State,
    Version,
    items_of,
    value_in,
)  # fmt: skip

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter

T = TypeVar("T")
ABSENT = b"none"
MOST_HELD = 3

# ---------------------------------------------------------------- reads, and what they are to find


def _entries(state: State) -> list[tuple[int, bytes]]:
    return sorted((each.term, key) for key, each in state.items() if each.term is not None)


def _from_key(state: State) -> list[bytes]:
    return [key for key in state if key >= KEY]


def _index_of(state: State) -> dict[bytes, list[int]] | None:
    if KEY not in state:
        return None
    return {} if (term := state[KEY].term) is None else {FIELD.encode(): [term]}


def _sqn_of(on: KnownStore) -> int | None:
    head = on.store.head(KEY)
    return None if head is None else head.sqn


def _of_snapshot(read: Callable[[octavo.Snapshot], object]) -> Callable[[KnownStore], object]:
    def reads(on: KnownStore) -> object:
        with on.store.snapshot() as snapshot:
            return read(snapshot)

    return reads


def in_reader(on: KnownStore) -> object:
    """As another process does."""
    with octavo.open(on.home, read_only=True) as reader:
        return on.items_in(reader)


def in_newest(on: KnownStore) -> object:
    try:
        before = on.beside.popleft()
    except IndexError:
        before = octavo.open(on.home, read_only=True)
    with before:
        newest = before.newest()
    items = on.items_in(newest)
    on.beside.append(newest)  # from now on the other thread may close it
    return items


def in_published(on: KnownStore) -> object:
    with on.store.snapshot() as snapshot:
        published = snapshot.publish(lease_seconds=60)
    with published.open() as reader:
        published.release()
        return on.items_in(reader)


Reads = dict[str, tuple[Callable[[KnownStore], object], Callable[[State], object]]]
READS_BESIDE: Reads = {
    "items of a reader": (in_reader, items_of),
    "items of a newer reader": (in_newest, items_of),
    "items that are published": (in_published, items_of),
}
READS: Reads = {
    "get": (lambda on: on.store.get(KEY), lambda state: value_in(state, KEY)),
    "get of none": (lambda on: on.store.get(ABSENT), lambda state: None),
    "head": (_sqn_of, lambda state: state[KEY].sqn if KEY in state else None),
    "in": (lambda on: KEY in on.store, lambda state: KEY in state),
    "get_many": (
        lambda on: on.store.get_many([ABSENT, KEY]),  # each is of a moment of its own
        lambda state: [None, value_in(state, KEY)],
    ),
    "keys": (lambda on: list(on.store.keys()), list),
    "keys backwards": (lambda on: list(on.store.keys(reverse=True)), lambda state: [*state][::-1]),
    "few keys": (
        lambda on: list(on.store.keys(start=KEY, limit=3)),
        lambda state: _from_key(state)[:3],
    ),
    "the first key": (
        lambda on: next(on.store.keys(start=KEY), None),
        lambda state: next(iter(_from_key(state)), None),
    ),
    "items": (lambda on: list(on.store.items()), items_of),
    "few items": (
        lambda on: list(on.store.items(start=KEY, limit=3)),
        lambda state: [(key, value_in(state, key)) for key in _from_key(state)[:3]],
    ),
    "last items": (
        lambda on: list(on.store.items(end=NEXT, limit=2, reverse=True)),
        lambda state: [pair for pair in items_of(state) if pair[0] < NEXT][:-3:-1],
    ),
    "heads": (
        lambda on: [(key, head.sqn) for key, head in on.store.heads()],
        lambda state: [(key, each.sqn) for key, each in state.items()],
    ),
    "few heads": (
        lambda on: [(key, head.sqn) for key, head in on.store.heads(start=KEY, limit=3)],
        lambda state: [(key, state[key].sqn) for key in _from_key(state)[:3]],
    ),
    "len": (lambda on: len(on.store), len),
    "index": (lambda on: list(on.store.index(FIELD).range()), _entries),
    "few entries": (
        lambda on: list(on.store.index(FIELD).range(limit=2)),
        lambda state: _entries(state)[:2],
    ),
    "having": (
        lambda on: list(on.store.index(FIELD).having(1)),
        lambda state: [key for term, key in _entries(state) if term == 1],
    ),
    "index_of": (lambda on: on.store.index_of(KEY), _index_of),
    "items of a snapshot": (_of_snapshot(lambda snapshot: list(snapshot.items())), items_of),
    "gets of a snapshot": (
        _of_snapshot(lambda snapshot: [snapshot.get(key) for key in (KEY, NEXT, KEY)]),
        lambda state: [value_in(state, key) for key in (KEY, NEXT, KEY)],
    ),
    "by sqn": (
        _of_snapshot(
            lambda snapshot: [(each.sqn, each.key, each.value) for each in snapshot.items_by_sqn()]
        ),
        lambda state: sorted((each.sqn, key, each.value) for key, each in state.items()),
    ),
    **READS_BESIDE,
}

# ---------------------------------------------------------------- what changes the store

Step = Callable[[KnownStore], object]


def _all_of(waiting: deque[T]) -> Iterator[T]:
    """One after the other; both threads may be taking them."""
    while True:
        try:
            taken = waiting.popleft()
        except IndexError:
            return
        yield taken


def _works(on: KnownStore) -> None:
    """What waits for the pool is done."""
    for work in _all_of(on.pool.work):
        work()


def _puts_any(on: KnownStore) -> None:
    rng = on.rng
    on.put(rng.choice(KEYS), rng.choice((None, *range(TERMS))), rng.choice((0, 0, 0, 3)))


def _puts_many(on: KnownStore) -> None:
    for key in KEYS:
        on.put(key)


def _pushes(on: KnownStore) -> None:
    on.put()
    on.push()


def _saves(on: KnownStore) -> None:
    _pushes(on)
    _works(on)


def _merges(on: KnownStore) -> None:
    for _ in range(5):
        _saves(on)


def _rolls(on: KnownStore) -> None:
    on.put(NEXT)
    rolled(on.store)


def _seals(on: KnownStore) -> None:
    _rolls(on)
    _works(on)


def _compacts(on: KnownStore) -> None:
    _puts_many(on)
    _seals(on)
    on.store.compact()


def _takes_a_snapshot(on: KnownStore) -> None:
    on.held.append(on.store.snapshot())
    on.put()
    on.delete(NEXT)


def releases(on: KnownStore) -> None:
    for snapshot in _all_of(on.held):
        snapshot.close()


def _reads_all(on: KnownStore) -> None:
    for _ in range(2):  # what is read again is kept
        _ = on.gets_in(on.store), on.items_in(on.store)


def _time_passes(on: KnownStore) -> None:
    on.now_ms += 4000


def _verifies(on: KnownStore) -> None:
    if problems := on.store.verify().problems:
        raise AssertionError(problems[:3])


def _backs_up(on: KnownStore) -> None:
    with suppress(octavo.StoreLocked):  # the other thread is at it
        on.store.backup(on.home.with_name("backup"))


def _takes_in(on: KnownStore) -> None:
    job = f"job-{on.value().partition(b':')[0].decode()}"
    tried = [Version(0, key, on.value()) for key in SEVERAL]
    writer = StagedWriter(RealDisk(), on.store.path, job, "a", now_ms=on.now_ms, file_records=3)
    writer.put_many(b"", SEVERAL, [each.value or b"" for each in tried])
    writer.finish()
    with on.trying(*tried):
        done = on.store.ingest(job, ["a"])
    on.wrote_at_once(done.last_sqn, tried)


OF_ANY: dict[str, Step] = {
    "puts": KnownStore.put,
    "puts another key": lambda on: on.put(KEYS[11]),
    "puts what expires": lambda on: on.put(ttl=3),
    "deletes": KnownStore.delete,
    "writes a batch": KnownStore.batch,
    "puts many": _puts_many,
    "pushes": _pushes,
    "saves": _saves,
    "merges": _merges,
    "rolls": _rolls,
    "seals": _seals,
    "takes a snapshot": _takes_a_snapshot,
    "releases": releases,
    "reads all": _reads_all,
    "reads beside": in_newest,
    "publishes": in_published,
    "verifies": _verifies,
    "backs up": _backs_up,
    "time passes": _time_passes,
}
OTHERS: dict[str, Step] = {
    **OF_ANY,
    "puts with a term": lambda on: on.put(term=2),
    "puts and keeps the term": lambda on: on.put(term=KEEPS),
    "compacts": _compacts,
    "takes in": _takes_in,
}
NO_CALLS = ("reads all", "reads beside", "publishes", "time passes")
"""Nothing that is judged by itself, or is a read."""


def _on_condition(on: KnownStore) -> None:
    _judged(on, lambda before: on.put(if_sqn=before))


def _batch_on_condition(on: KnownStore) -> None:
    _judged(on, lambda before: on.batch(if_sqn=before))


def _judged(on: KnownStore, write: Callable[[int], int]) -> None:
    row = on.bucket.head(KEY)
    before = 0 if row is None else row.sqn
    try:
        sqn = write(before)
    except octavo.Conflict:
        on.later.append(lambda: _was_changed(on, before))
    else:
        on.later.append(lambda: _was_newest(on, before, sqn))


def _was_changed(on: KnownStore, before: int) -> str:
    newest = {state[KEY].sqn if KEY in state else 0 for state in on.states()}
    return "" if newest - {before} else f"a conflict, though {before} is the only one"


def _was_newest(on: KnownStore, before: int, sqn: int) -> str:
    found = on.before(KEY, sqn)
    if any((each.sqn if each else 0) == before for each in found):
        return ""
    return f"the condition of {before} held for {sqn} over {found}"


def _pops(on: KnownStore) -> None:
    with on.trying(Version(0, KEY, None)):
        popped = on.store.pop(KEY, None)
    if popped is not None:
        on.later.append(lambda: _replaced(on, None, popped))


def _sets_default(on: KnownStore) -> None:
    value = on.value()
    with on.trying(Version(0, KEY, value)):
        found = on.store.setdefault(KEY, value)
    if found == value:
        on.later.append(lambda: _replaced(on, value, None))


def _replaced(on: KnownStore, value: bytes | None, before: bytes | None) -> str:
    """The write that did not tell its sqn came upon this value."""
    sqn = on.own_sqn()
    found = on.before(KEY, sqn)
    on.versions.append(Version(sqn, KEY, value))
    if any((each.value if each else None) == before for each in found):
        return ""
    return f"{sqn} was to come upon {before!r}, and came upon {found}"


CALLS_OF_ANY: dict[str, Step] = {
    "puts and syncs": lambda on: on.put(sync=True),
    "puts on a condition": _on_condition,
    "writes a batch on a condition": _batch_on_condition,
}


class Known(NamedTuple):
    """What can be called."""

    reads: Reads
    others: dict[str, Step]
    own: dict[str, Step]

    @property
    def calls(self) -> dict[str, Step]:
        return {
            **{name: read for name, (read, _) in self.reads.items()},
            **{name: step for name, step in self.others.items() if name not in NO_CALLS},
            **self.own,
        }


STANDARD = Known(READS, OTHERS, {**CALLS_OF_ANY, "pop": _pops, "setdefault": _sets_default})

# ---------------------------------------------------------------- before and after them


def _leaves_the_cache(on: KnownStore) -> None:
    on.delete()
    on.put(term=on.rng.choice((None, *range(TERMS))))


def some(on: KnownStore, others: dict[str, Step]) -> None:
    """Versions move on, and to other places."""
    rng = on.rng
    steps = rng.choices((_puts_any, _puts_any, _puts_any, *others.values()), k=rng.randint(0, 4))
    if rng.random() < 0.75:
        steps.insert(rng.choice((0, len(steps))), _leaves_the_cache)
    for step in steps:
        on.since_ms = on.now_ms
        step(on)
        on.settle_terms()
    if rng.random() < 0.3 or len(on.held) > MOST_HELD:
        releases(on)


def wrong_reads(on: KnownStore, reads: Reads = READS) -> str:
    """What is found other than it was written, by all reads and all snapshots; empty: nothing."""
    state = on.at(on.store.last_sqn, on.now_ms)
    for name, (read, expected) in reads.items():
        if (found := read(on)) != expected(state):
            return f"{name} finds {found!r}, not {expected(state)!r}"
    for snapshot in on.held:
        state = on.at(snapshot.sqn, snapshot.taken_at)
        if (items := on.items_in(snapshot)) != items_of(state):
            return f"the snapshot of {snapshot.sqn} has {items!r}, not {items_of(state)!r}"
        if on.gets_in(snapshot) != [value_in(state, key) for key in KEYS]:
            return f"gets of the snapshot of {snapshot.sqn} are not those of {state!r}"
    return ""
