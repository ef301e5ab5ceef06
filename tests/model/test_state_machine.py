"""The store against a dict: random calls, snapshots, reopenings and lost processes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from whole_store import killed

import octavo

names = st.sampled_from([b"", b"b", b"b\0", b"c"])
keys = st.sampled_from([b"a", b"a\0", b"aa", b"ab", b"b", b"\xff", b"\xff\xff", b"z" * 300]) | (
    st.binary(min_size=1, max_size=3)
)
values = st.binary(max_size=40) | st.sampled_from([b"x" * 5000, b""])
bounds = st.none() | st.binary(max_size=2)

OPTIONS = {"push_rows": 64, "push_bytes": 64 << 10, "roll_count": 256, "max_open_files": 8}


class StoreMachine(RuleBasedStateMachine):
    """A model is {(bucket, key): (value, sqn)}."""

    @initialize(worker=st.just(False), cache=st.sampled_from([0, 1 << 16]))
    def open(self, worker: bool, cache: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="octavo-model-"))
        self.options = {**OPTIONS, "worker": worker, "read_cache_bytes": cache}
        self.store = octavo.open(self.home / "s", **self.options)
        self.model: dict[tuple[bytes, bytes], tuple[bytes, int]] = {}
        self.snapshots: list[tuple[octavo.Snapshot, dict]] = []
        self.highest = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.home)

    def given(self, sqn: int) -> int:
        assert sqn > self.highest, "a sequence number was given twice"
        self.highest = sqn
        return sqn

    @rule(name=names, key=keys, value=values)
    def put(self, name: bytes, key: bytes, value: bytes) -> None:
        self.model[name, key] = (value, self.given(self.store.bucket(name).put(key, value)))

    @rule(name=names, key=keys, value=values)
    def put_with_options(self, name: bytes, key: bytes, value: bytes) -> None:
        sqn = self.store.bucket(name).put(key, value, metadata=b"m", ttl=10_000)
        self.model[name, key] = (value, self.given(sqn))

    @rule(name=names, key=keys)
    def put_that_has_expired(self, name: bytes, key: bytes) -> None:
        self.given(self.store.bucket(name).put(key, b"gone", expires_at=5))
        self.model.pop((name, key), None)

    @rule(name=names, key=keys)
    def delete(self, name: bytes, key: bytes) -> None:
        self.given(self.store.bucket(name).delete(key))
        self.model.pop((name, key), None)

    @rule(name=names, some=st.lists(st.tuples(keys, values), min_size=1, max_size=120))
    def put_many(self, name: bytes, some: list[tuple[bytes, bytes]]) -> None:
        last = self.given(self.store.bucket(name).put_many(some))
        for back, (key, value) in enumerate(reversed(some)):
            self.model.setdefault((name, key), (b"", 0))
            if self.model[name, key][1] < last - back:
                self.model[name, key] = (value, last - back)

    @rule(some=st.lists(st.tuples(names, keys, st.none() | values), min_size=1, max_size=9))
    def batch(self, some: list[tuple[bytes, bytes, bytes | None]]) -> None:
        with self.store.batch() as batch:
            for name, key, value in some:
                if value is None:
                    batch.delete(name, key)
                else:
                    batch.put(name, key, value)
        sqn = batch.last_sqn - len(some)
        for name, key, value in some:
            sqn += 1
            if value is None:
                self.model.pop((name, key), None)
            else:
                self.model[name, key] = (value, sqn)
        self.given(batch.last_sqn)

    @rule(name=names, key=keys, value=values, right=st.booleans())
    def put_on_condition(self, name: bytes, key: bytes, value: bytes, right: bool) -> None:
        have = self.model.get((name, key), (b"", 0))[1]
        bucket = self.store.bucket(name)
        if right:
            self.model[name, key] = (value, self.given(bucket.put(key, value, if_sqn=have)))
        else:
            with pytest.raises(octavo.Conflict) as raised:
                bucket.put(key, value, if_sqn=have + 1)
            assert raised.value.found == have

    @rule(name=names, key=keys)
    def read_one(self, name: bytes, key: bytes) -> None:
        self.compare_one(self.store.bucket(name), self.model, name, key)

    @rule(name=names, start=bounds, end=bounds, prefix=bounds, reverse=st.booleans())
    def read_range(
        self,
        name: bytes,
        start: bytes | None,
        end: bytes | None,
        prefix: bytes | None,
        reverse: bool,
    ) -> None:
        bucket = self.store.bucket(name)
        self.compare_range(bucket, self.model, name, start, end, prefix, reverse)

    @rule(name=names, reverse=st.booleans(), limit=st.integers(1, 5))
    def page_through(self, name: bytes, reverse: bool, limit: int) -> None:
        bucket = self.store.bucket(name)
        found: list[bytes] = []
        position = None
        for _ in range(len(self.model) + 2):
            page = bucket.keys(reverse=reverse, limit=limit, resume=position)
            found += page
            position = page.position
            if position is None:
                break
        assert found == sorted((k for of, k in self.model if of == name), reverse=reverse)

    @rule()
    def fold_over_everything(self) -> None:
        with self.store.snapshot() as now:
            for snapshot, model in (*self.snapshots, (now, self.model)):
                rows = sorted((sqn, *where, value) for where, (value, sqn) in model.items())
                assert [tuple(item) for item in snapshot.items_by_sqn()] == rows
                stream = snapshot.to_arrow(["sqn", "bucket", "key", "value"]).read_all()
                assert sorted(tuple(row.values()) for row in stream.to_pylist()) == rows
                differ = [(one.bucket, one.key) for one in octavo.compare(snapshot, now)]
                assert differ == [
                    where
                    for where in sorted(model.keys() | self.model.keys())
                    if model.get(where, (0, 0))[1] != self.model.get(where, (0, 0))[1]
                ]

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @rule()
    def take_snapshot(self) -> None:
        if len(self.snapshots) < 3:
            self.snapshots.append((self.store.snapshot(), dict(self.model)))

    @rule(name=names, key=keys, reverse=st.booleans())
    def read_snapshot(self, name: bytes, key: bytes, reverse: bool) -> None:
        for snapshot, model in self.snapshots:
            bucket = snapshot.bucket(name)
            self.compare_one(bucket, model, name, key)
            self.compare_range(bucket, model, name, None, None, None, reverse)

    @rule()
    def drop_snapshot(self) -> None:
        if self.snapshots:
            self.snapshots.pop(0)[0].close()

    @rule()
    def reopen(self) -> None:
        self.snapshots.clear()
        self.store.close()
        self.store = octavo.open(self.home / "s", **self.options)

    @rule()
    def lose_the_process(self) -> None:
        """What is on disk now is what a SIGKILL would leave."""
        self.snapshots.clear()
        killed(self.store, self.home / "t")
        self.store.close()
        shutil.rmtree(self.home / "s")
        (self.home / "t").rename(self.home / "s")
        self.store = octavo.open(self.home / "s", **self.options)

    @rule()
    def lose_the_ledger(self) -> None:
        self.snapshots.clear()
        self.store.close()
        shutil.rmtree(self.home / "s" / "ledger")
        self.store = octavo.open(self.home / "s", **self.options)

    @rule()
    def verify(self) -> None:
        report = self.store.verify()
        assert report.ok, report.problems

    def compare_one(self, bucket, model: dict, name: bytes, key: bytes) -> None:
        expected = model.get((name, key))
        head = bucket.head(key)
        if expected is None:
            assert bucket.get(key) is None
            assert head is None
        else:
            assert bucket.get(key) == expected[0]
            assert (head.sqn, head.size) == (expected[1], len(expected[0]))

    def compare_range(
        self, bucket, model: dict, name: bytes, start, end, prefix, reverse: bool
    ) -> None:
        expected = sorted(
            (key, value)
            for (of, key), (value, _) in model.items()
            if of == name
            and (start is None or key >= start)
            and (end is None or key < end)
            and (prefix is None or key.startswith(prefix))
        )
        if reverse:
            expected.reverse()
        assert list(bucket.items(start, end, prefix=prefix, reverse=reverse)) == expected
        assert list(bucket.keys(start, end, prefix=prefix, reverse=reverse)) == [
            key for key, _ in expected
        ]

    @invariant()
    def buckets_are_those_with_keys(self) -> None:
        if hasattr(self, "store"):
            assert list(self.store.buckets()) == sorted({name for name, _ in self.model})


TestStoreAgainstADict = StoreMachine.TestCase
TestStoreAgainstADict.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True
)
