"""Indexes, edits, expiry and snapshots against a model that keeps everything: random calls,
pushes, merges, reopenings, lost processes and lost ledgers."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from whole_store import flush, killed, opened

import octavo
from octavo import IndexEdit, Tag
from octavo.actors.scanning import index_scan

Where = tuple[str, bytes, bytes]  # type, bucket, key
Entries = frozenset[tuple[bytes, Any]]
Model = dict[Where, tuple[bytes, Entries, int]]  # value, entries, moment of expiry or 0

KINDS = ("standard", "sized", "plain")
names = st.sampled_from([b"", b"b", b"b\0"])
keys = st.sampled_from([b"a", b"a\0", b"ab", b"\0", b"\xff", b"k" * 200])
kinds = st.sampled_from(KINDS)
fields = st.sampled_from([b"f", b"f\0", b"\xff"])
terms = st.sampled_from(
    [0, -1, 255, 256, -(1 << 70), b"", b"\0", b"a\0\xff", b"\xff", "", "a", "é"]
)
sets = st.dictionaries(fields, st.lists(terms, max_size=3), max_size=2)
removals = st.dictionaries(fields, st.none() | st.lists(terms, max_size=2), max_size=2)
indexes = st.none() | sets | st.tuples(sets, removals)
values = st.binary(max_size=4)
ttls = st.sampled_from([0, 0, 0, 1, 50, 2000])
moves = st.tuples(kinds, names, keys, values, indexes, ttls)


def sized(key: bytes, value: bytes) -> dict[str, Any]:
    """Index entries of the type "sized"."""
    return {"f": [len(value), value[:1]]}


TAGS = {"sized": Tag(index=sized, metadata=lambda k, v: v[:2]), "plain": Tag()}


def rank(pair: tuple[Any, bytes]) -> tuple[int, Any, bytes]:
    """Where a (term, key) pair comes in an index."""
    term, key = pair
    return (0 if isinstance(term, int) else 1 if isinstance(term, bytes) else 2, term, key)


def whole(index: dict) -> Entries:
    return frozenset((field, term) for field, some in index.items() for term in some)


def after(before: Entries, kind: str, value: bytes, index: Any) -> Entries:
    """The entries of a put's version."""
    if kind == "sized":
        return frozenset({(b"f", len(value)), (b"f", value[:1])})
    if index is None:
        return frozenset()
    if isinstance(index, dict):
        return whole(index)
    added, removed = index
    left = {
        (field, term)
        for field, term in before
        if field not in removed
        or (
            removed[field] is not None
            and not any(type(term) is type(gone) and term == gone for gone in removed[field])
        )
    }
    return frozenset(left) | whole(added)


class IndexMachine(RuleBasedStateMachine):
    """The model says of every object its value, its entries and when it expires."""

    @initialize(
        recalc=st.booleans(), push_rows=st.sampled_from([64, 1 << 20]),
        many=st.sampled_from([1, index_scan.MANY]),
    )  # fmt: skip
    def open(self, recalc: bool, push_rows: int, many: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(index_scan, "MANY", many)
        self.home = Path(tempfile.mkdtemp(prefix="octavo-index-"))
        self.path = self.home / "s"
        self.now = 1_000_000
        self.options: dict[str, Any] = {"push_rows": push_rows, "tags": TAGS}
        self.model: Model = {}
        self.snapshots: list[tuple[octavo.Snapshot, Model, int]] = []
        if recalc:
            self.options["strategies"] = {"sized": "recalc", "standard": "retain"}
        self.start()

    def start(self) -> None:
        self.store = opened(self.path, clock_ms=lambda: self.now, **self.options)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.patch.undo()
            shutil.rmtree(self.home)

    # ------------------------------------------------------------ writing

    def enter(self, move: tuple) -> tuple[Where, dict[str, Any]]:
        """Put a move into the model; its arguments."""
        kind, name, key, value, index, ttl = move
        if kind == "sized":
            index = None
        _, before, expiry = self.model.get((kind, name, key), (b"", frozenset(), 0))
        if 0 < expiry <= self.now:
            before = frozenset()
        expiry = self.now + ttl * 1000 if ttl else 0
        self.model[kind, name, key] = (value, after(before, kind, value, index), expiry)
        if isinstance(index, tuple):
            index = IndexEdit(add=index[0], remove=index[1])
        return (kind, name, key), {"index": index, "ttl": ttl or None}

    @rule(move=moves)
    def put(self, move: tuple) -> None:
        (kind, name, key), given = self.enter(move)
        self.store.bucket(name, tag=kind).put(key, move[3], **given)

    @rule(some=st.lists(moves, min_size=20, max_size=40))
    def put_many_one_by_one(self, some: list[tuple]) -> None:
        for move in some:
            self.put(move)

    @rule(kind=kinds, name=names, some=st.lists(st.tuples(keys, values), max_size=5))
    def put_many(self, kind: str, name: bytes, some: list[tuple[bytes, bytes]]) -> None:
        for key, value in some:
            self.enter((kind, name, key, value, None, 0))
        self.store.bucket(name, tag=kind).put_many(some)

    @rule(kind=kinds, name=names, key=keys)
    def delete(self, kind: str, name: bytes, key: bytes) -> None:
        self.model.pop((kind, name, key), None)
        self.store.bucket(name, tag=kind).delete(key)

    @rule(some=st.lists(st.tuples(moves, st.booleans()), min_size=1, max_size=12))
    def batch(self, some: list[tuple[tuple, bool]]) -> None:
        with self.store.batch() as batch:
            for move, deletes in some:
                if deletes:
                    self.model.pop(move[:3], None)
                    batch.delete(move[1], move[2], tag=move[0])
                else:
                    (kind, name, key), given = self.enter(move)
                    batch.put(name, key, move[3], tag=kind, **given)

    @rule(move=moves)
    def put_that_conflicts(self, move: tuple) -> None:
        kind, name, key, value, index, _ = move
        bucket = self.store.bucket(name, tag=kind)
        before = self.store.last_sqn
        try:
            bucket.put(
                key, value, index=index if isinstance(index, dict) else None,
                if_sqn=self.store.last_sqn + 1,
            )  # fmt: skip
        except octavo.Conflict:
            pass
        assert self.store.last_sqn == before

    @rule(seconds=st.sampled_from([1, 30, 3000]))
    def let_time_pass(self, seconds: int) -> None:
        self.now += seconds * 1000

    # ------------------------------------------------------------ what must change nothing

    @rule()
    def push(self) -> None:
        flush(self.store)

    @rule()
    def push_often(self) -> None:
        for number in range(6):
            self.store.bucket("other").put(b"%d" % number, b"")
            flush(self.store)

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @rule()
    def reopen(self) -> None:
        self.snapshots.clear()
        self.store.close()
        self.start()

    @rule()
    def lose_the_process(self) -> None:
        self.snapshots.clear()
        flush_first = len(self.model) % 2
        if flush_first:
            flush(self.store)
        image = killed(self.store, self.home / "t")
        self.store.close()
        shutil.rmtree(self.path)
        image.rename(self.path)
        self.start()

    @rule()
    def lose_the_ledger(self) -> None:
        self.snapshots.clear()
        self.store.close()
        shutil.rmtree(self.path / "ledger")
        self.start()

    @rule()
    def verify(self) -> None:
        report = self.store.verify()
        assert report.ok, report.problems

    # ------------------------------------------------------------ reading

    @rule()
    def take_snapshot(self) -> None:
        if len(self.snapshots) < 4:
            self.snapshots.append((self.store.snapshot(), dict(self.model), self.now))

    @rule(at=st.integers(0, 3))
    def drop_snapshot(self, at: int) -> None:
        if at < len(self.snapshots):
            self.snapshots.pop(at)[0].close()

    @rule(
        kind=kinds, name=names, field=fields, start=st.none() | terms, end=st.none() | terms,
        reverse=st.booleans(), page=st.integers(1, 5), match=st.sampled_from([None, "a", b"\\xff"]),
    )  # fmt: skip
    def read(
        self, kind: str, name: bytes, field: bytes, start: Any, end: Any,
        reverse: bool, page: int, match: Any,
    ) -> None:  # fmt: skip
        if start is not None and end is not None and type(start) is not type(end):
            end = None
        for where, model, now in [*self.snapshots, (self.store, self.model, self.now)]:
            live = {
                key: entries
                for (of, bucket, key), (_, entries, expiry) in model.items()
                if (of, bucket) == (kind, name) and not 0 < expiry <= now
            }
            every = sorted(
                ((term, key) for key, some in live.items() for at, term in some if at == field),
                key=rank,
            )
            expected = [
                (term, key)
                for term, key in every
                if (start is None or (type(term) is type(start) and term >= start))
                and (end is None or (type(term) is type(end) and term < end))
                and (match is None or (type(term) is type(match) and re.search(match, term)))
            ]
            if reverse:
                expected.reverse()
            bucket = where.bucket(name, tag=kind)
            index = bucket.index(field)
            how = {"match": match, "reverse": reverse}
            assert list(index.range(start, end, **how)) == expected
            paged: list = []
            while some := list(
                index.range(start, end, limit=page, after=paged[-1] if paged else None, **how)
            ):
                paged += some
            assert paged == expected
            for term in {term for term, _ in every[:3]}:
                same = [
                    key for other, key in every if rank((other, b""))[:2] == rank((term, b""))[:2]
                ]
                assert list(index.having(term)) == same
            counted = list(index.terms())
            assert sum(number for _, number in counted) == len(every)
            for key, some in live.items():
                assert bucket.index_of(key) == by_field(some)


def by_field(entries: Entries) -> dict[bytes, list[Any]]:
    out: dict[bytes, list[Any]] = {}
    for field, term in sorted(entries, key=lambda entry: (entry[0], rank((entry[1], b"")))):
        out.setdefault(field, []).append(term)
    return out


TestIndexAgainstAModel = IndexMachine.TestCase
TestIndexAgainstAModel.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, derandomize=True
)
