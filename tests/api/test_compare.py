"""Merkle trees of stores, scans of segments, and what differs between two stores."""

from __future__ import annotations

import gc
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import NEVER_MS, SEED, flush, killed, opened, rolled
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo.files.journal.record import LOW_32
from octavo.files.ledger import ledger_key

Rows = dict[tuple[bytes, bytes], octavo.Head]
NAMES = (b"", b"b", b"b\x00", b"other")


def rows(snap: octavo.Snapshot) -> Rows:
    """Every live key of a snapshot, read one bucket at a time."""
    return {(name, key): head for name in snap.buckets() for key, head in snap.bucket(name).heads()}


def churn(store: octavo.Store, rng: random.Random, count: int, clock: list[int]) -> None:
    for _ in range(count):
        bucket = store.bucket(rng.choice(NAMES))
        key = b"k%03d" % rng.randrange(200)
        kind = rng.randrange(8)
        clock[0] += 1
        if kind == 0:
            bucket.delete(key)
        elif kind == 1:
            bucket.put(key, rng.randbytes(3), expires_at=clock[0] + rng.randrange(1, 200))
        elif kind == 2:
            bucket.put(key, rng.randbytes(3), metadata=rng.randbytes(2), expires_at=NEVER_MS)
        elif kind == 3:
            bucket.put(key, rng.randbytes(3), metadata=rng.randbytes(2))
        else:
            bucket.put_many([(key, rng.randbytes(rng.randrange(3)))])


def version(by: str, head: octavo.Head | None, value: bytes | None) -> object:
    if head is None or by == "sqn":
        return head and head.sqn
    return (head.size, head.metadata, head.expires_at, value if by == "value" else None)


def by_brute_force(
    a: octavo.Snapshot, b: octavo.Snapshot, by: str, only: bytes | None
) -> list[tuple[Any, ...]]:
    left, right = rows(a), rows(b)
    out = []
    for name, key in sorted(left.keys() | right.keys()):
        if only is not None and name != only:
            continue
        x, y = left.get((name, key)), right.get((name, key))
        mine, other = a.bucket(name).get(key), b.bucket(name).get(key)
        if version(by, x, mine) != version(by, y, other):
            out.append((name, key, x, y, "standard", b""))
    return out


@pytest.fixture
def clock() -> list[int]:
    return [1_700_000_000_000]


@pytest.mark.parametrize("number", range(6))
def test_a_comparison_finds_exactly_what_differs(
    tmp_path: Path, clock: list[int], number: int
) -> None:
    seed = SEED + number
    print("seed", seed)
    rng = random.Random(seed)
    with opened(tmp_path / "a", clock_ms=lambda: clock[0]) as a:
        churn(a, rng, rng.randrange(1, 600), clock)
        killed(a, tmp_path / "b")
        with opened(tmp_path / "b", clock_ms=lambda: clock[0]) as b:
            for _ in range(6):
                for store in (a, b):
                    churn(store, rng, rng.choice([0, 1, 5, 150]), clock)
                    if rng.random() < 0.5:
                        flush(store)
                with a.snapshot() as x, b.snapshot() as y:
                    churn(a, rng, 20, clock)  # the snapshots do not see it
                    for by in ("sqn", "head", "value"):
                        only = rng.choice([None, None, *NAMES])
                        segments = rng.choice([256, 4096, 1 << 16])
                        found = octavo.compare(x, y, by=by, bucket=only, segments=segments)
                        assert list(found) == by_brute_force(x, y, by, only)
                    assert list(octavo.compare(x, x)) == []


def test_live_stores_are_compared_through_snapshots_that_end(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        a.put(b"k", b"1")
        b.put(b"k", b"1")
        b.bucket("x").put(b"l", b"2")
        found = list(octavo.compare(a, b))
        assert [(one.bucket, one.key, one.a) for one in found] == [(b"x", b"l", None)]
        assert found[0].b == b.bucket("x").head(b"l")
        next(octavo.compare(a, b))
        list(octavo.compare(a, b))
        a.put(b"now", b"1")
        assert not a._bookie._pinned_tables
        assert not b._bookie._pinned_tables


def test_a_comparison_that_is_dropped_may_be_collected_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untold: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", untold.append)
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        a.put(b"k", b"1")
        found = octavo.compare(a, b)
        assert next(found).key == b"k"
        around: list[object] = [found]
        around.append(around)  # only the collector finds it
        del found, around
        a._bookie.enter()
        try:
            gc.collect()
        finally:
            a._bookie.leave()
        assert not untold
        list(octavo.compare(a, b))
        assert not a._bookie._pinned_tables


def test_copies_whose_ledgers_differ_in_form_have_one_tree(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "a") as a:
        churn(a, rng, 700, [1_700_000_000_000])
        killed(a, tmp_path / "b")
        shutil.rmtree(tmp_path / "b" / "ledger")
        with opened(tmp_path / "b", push_rows=1000) as b, a.snapshot() as x, b.snapshot() as y:
            for by in ("sqn", "head", "value"):
                assert x.merkle(by=by) == y.merkle(by=by)  # type: ignore[arg-type]
            assert x.merkle().keys == len(rows(x))


def test_trees_of_the_buckets_join_to_that_of_the_store(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as a:
        churn(a, random.Random(SEED), 500, [1_700_000_000_000])
        with a.snapshot() as snap:
            whole = snap.bucket(NAMES[0]).merkle(1024)
            for name in NAMES[1:]:
                whole = whole.joined(snap.bucket(name).merkle(1024))
            assert whole == snap.merkle(1024)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s") as found:
        churn(found, random.Random(SEED), 500, [1_700_000_000_000])
        yield found


@pytest.mark.parametrize("reverse", [False, True])
def test_heads_of_all_segments_are_all_heads_and_parts_are_parts(
    store: octavo.Store, reverse: bool
) -> None:
    for bucket in (store.bucket("b"), store):
        everything = list(bucket.heads(reverse=reverse))
        assert everything
        of = 256
        assert list(bucket.heads(segments=range(of), of=of, reverse=reverse)) == everything
        parts = [
            list(bucket.heads(segments=range(low, low + 64), of=of, reverse=reverse))
            for low in range(0, of, 64)
        ]
        assert all(parts)
        joined = sorted((row for part in parts for row in part), reverse=reverse)
        assert joined == everything


def test_segments_go_with_the_other_filters_and_with_positions(store: octavo.Store) -> None:
    chosen = {"segments": range(0, 256, 2), "of": 256}
    whole = list(store.heads(**chosen))
    some = [row for row in whole if b"1" in row[0] and row[0] >= b"k05"]
    assert list(store.heads(b"k05", match=b"1", **chosen)) == some
    found: list[Any] = []
    position = None
    while True:
        page = store.heads(limit=7, resume=position, **chosen)
        found += page
        position = page.position
        if position is None:
            break
    assert found == whole


@pytest.mark.parametrize(
    "arguments",
    [
        {"segments": [1]},
        {"of": 256},
        {"segments": [256], "of": 256},
        {"segments": [-1], "of": 256},
        {"segments": [True], "of": 256},
        {"segments": ["1"], "of": 256},
        {"segments": 5, "of": 256},
        {"segments": [1], "of": 100},
    ],
)
def test_segments_that_mean_nothing_are_refused(
    store: octavo.Store, arguments: dict[str, Any]
) -> None:
    with pytest.raises(octavo.Misuse, match="segment"):
        store.heads(**arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"by": "size"}, "by="), ({"segments": 100}, "segments"), ({"bucket": 7}, "bucket")],
)
def test_a_comparison_refuses_what_means_nothing(
    store: octavo.Store, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(octavo.Misuse, match=named):
        octavo.compare(store, store, **arguments)
    with pytest.raises(octavo.Misuse, match="b is of type str"):
        octavo.compare(store, "path")  # type: ignore[arg-type]


def test_stores_that_were_made_apart_are_compared_by_value_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        a.put(b"k", b"1")
        b.put(b"k", b"2")  # of the same sequence number
        assert [one.key for one in octavo.compare(a, b)] == [b"k"]
        with a.snapshot() as x, b.snapshot() as y:
            assert [one.key for one in octavo.compare(x, y)] == [b"k"]
        assert list(octavo.compare(a, b, by="sqn")) == []


def test_a_restored_store_that_went_its_own_way_is_compared_by_value(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "a") as a:
        a.put(b"k", b"1")
        a.backup(tmp_path / "backup")
        octavo.restore(tmp_path / "backup", tmp_path / "b")
        with octavo.open(tmp_path / "b") as b:
            a.put(b"k", b"2")
            b.put(b"k", b"3")
            assert a.last_sqn == b.last_sqn
            assert [one.key for one in octavo.compare(a, b)] == [b"k"]


def test_a_backup_is_compared_by_sequence_numbers(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "a") as a:
        a.put(b"k", b"1")
        a.backup(tmp_path / "backup")
        a.put(b"k", b"1")  # the same value, another version
        with octavo.open(tmp_path / "backup", read_only=True) as backup:
            assert [one.key for one in octavo.compare(a, backup)] == [b"k"]
            assert list(octavo.compare(a, backup, by="value")) == []


def test_a_store_and_its_copy_that_both_were_written_are_compared_by_value(tmp_path: Path) -> None:
    ms = [1_800_000_000_000]
    with opened(tmp_path / "a", clock_ms=lambda: ms[0]) as a:
        a.put(b"k", b"1")
        a.backup(tmp_path / "backup")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    for path in ("backup", "copy"):
        with (
            opened(tmp_path / "a", clock_ms=lambda: ms[0]) as a,
            opened(tmp_path / path, clock_ms=lambda: ms[0]) as b,
        ):
            while a.last_sqn <= b.last_sqn:
                a.put(b"k", b"2")
            assert [one.key for one in octavo.compare(a, b)] == [b"k"]
            ms[0] += 1
            while b.last_sqn < a.last_sqn:
                b.put(b"k", b"3")
            assert list(octavo.compare(a, b, by="sqn")) == []  # as it says, it does not see that
            assert [one.key for one in octavo.compare(a, b)] == [b"k"]
            assert [one.key for one in octavo.compare(b, a)] == [b"k"]


def diverged(path: Path, *, ms: int) -> tuple[octavo.Store, octavo.Store]:
    """Two copies of a store, each of which wrote once since, at one sqn and moment."""
    with opened(path / "a", clock_ms=lambda: ms) as a:
        a.put(b"k", b"1")
    shutil.copytree(path / "a", path / "b")
    a, b = (opened(path / name, clock_ms=lambda: ms) for name in "ab")
    assert a.put(b"k", b"2") == b.put(b"k", b"3")
    return a, b


def test_two_copies_that_wrote_one_key_in_one_moment_are_compared_by_value(tmp_path: Path) -> None:
    a, b = diverged(tmp_path, ms=1_800_000_000_000)
    with a, b:
        assert [one.key for one in octavo.compare(a, b)] == [b"k"]


def test_where_compaction_took_the_record_that_tells_values_are_compared(tmp_path: Path) -> None:
    a, b = diverged(tmp_path, ms=1_800_000_000_000)
    with a, b:
        assert a.put(b"x", b"4") == b.put(b"x", b"4")
        a.put(b"x", b"5")
        a.compact()
        assert [one.key for one in octavo.compare(a, b)] == [b"k", b"x"]


def test_a_snapshot_and_its_store_are_compared_by_sequence_numbers_whatever_was_compacted(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"1")
        store.put(b"last", b"1")
        with store.snapshot() as then:
            store.put(b"k", b"1")  # the same value, another version
            store.put(b"last", b"2")
            rolled(store)
            store.compact()
            assert next(store.changes(1, compacted=True)).sqn == 3
            assert [one.key for one in octavo.compare(then, store)] == [b"k", b"last"]


def test_a_snapshot_that_expired_makes_no_tree(tmp_path: Path) -> None:
    seconds = [0.0]
    with opened(tmp_path / "s", monotonic=lambda: seconds[0]) as store:
        store.put(b"k", b"v")
        snap = store.snapshot(lease_seconds=5)
        seconds[0] = 6
        with pytest.raises(octavo.SnapshotExpired):
            snap.merkle()
        with pytest.raises(octavo.SnapshotExpired):
            octavo.compare(snap, store)


def test_objects_of_other_types_are_compared_and_index_entries_left_out(tmp_path: Path) -> None:
    tags = {"person": octavo.Tag()}
    with opened(tmp_path / "a", tags=tags) as a, opened(tmp_path / "b", tags=tags) as b:
        for number, store in enumerate((a, b)):
            people = store.bucket("x", tag="person")
            people.put(b"k", b"%d" % number, index={"age": number})
            store.bucket("x").put(b"k", b"same", index={"age": 7})
            people.put(b"same", b"same")
            if number:
                flush(store)
        found = list(octavo.compare(a, b, by="value"))
        assert [(one.bucket, one.key, one.tag) for one in found] == [(b"x", b"k", "person")]
        with a.snapshot() as x, b.snapshot() as y:
            assert x.merkle(by="value").keys == y.merkle(by="value").keys == 3
            assert x.bucket("x", tag="person").merkle().keys == 2
        assert list(octavo.compare(a, b, bucket="x", by="value")) == []


def test_types_that_were_numbered_differently_are_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "a", tags={"person": octavo.Tag()}) as a,
        opened(tmp_path / "b", tags={"place": octavo.Tag()}) as b,
        pytest.raises(octavo.Misuse, match="'person' and 'place'"),
    ):
        octavo.compare(a, b)


def test_a_bucket_is_compared_however_the_types_are_numbered(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "a", tags={"person": octavo.Tag()}) as a,
        opened(tmp_path / "b", tags={"place": octavo.Tag()}) as b,
    ):
        for number, store in enumerate((a, b)):
            store.bucket("x").put(b"k", b"%d" % number)
            store.bucket("other").put(b"k", b"%d" % number)
        (found,) = octavo.compare(a, b, bucket="x")
        assert (found.bucket, found.key, found.tag) == (b"x", b"k", "standard")


def test_a_bucket_of_head_only_stores_is_compared_alone(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "a", mode="head_only") as a,
        opened(tmp_path / "b", mode="head_only") as b,
    ):
        for number, store in enumerate((a, b)):
            store.head_bucket("x").put(b"k", b"%d" % number, sub_key=b"s")
            store.head_bucket("other").put(b"k", b"%d" % number)
        (found,) = octavo.compare(a, b, bucket="x")
        assert (found.bucket, found.key, found.sub_key) == (b"x", b"k", b"s")


def test_entries_of_head_only_stores_are_compared_by_key_and_sub_key(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "a", mode="head_only") as a,
        opened(tmp_path / "b", mode="head_only") as b,
    ):
        for number, store in enumerate((a, b)):
            bucket = store.head_bucket("x")
            for at in range(100):
                bucket.put(b"k%d" % at, b"v", sub_key=b"s\x00")
            bucket.put(b"k\x00", b"v%d" % number, sub_key=b"\x00")
            if number:
                flush(store)
        (found,) = octavo.compare(a, b, by="value")
        assert (found.bucket, found.key, found.sub_key) == (b"x", b"k\x00", b"\x00")
        assert found.a is not None
        assert found.a.metadata == b"v0"
        assert found.tag == "head_only"


def test_a_head_only_store_is_not_compared_with_another(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "a", mode="head_only") as a,
        opened(tmp_path / "b") as b,
        pytest.raises(octavo.Misuse, match="head-only"),
    ):
        octavo.compare(a, b)


def test_the_tree_of_a_store_is_what_it_was_in_every_release(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"value", metadata=b"m", expires_at=NEVER_MS)
        store.bucket("b").put(b"k", b"")
        with store.snapshot() as snap:
            sums = [
                snap.merkle(256, by=by).to_bytes()[-8:].hex() for by in ("sqn", "head", "value")
            ]
    assert sums == ["a438b95bbce0b660", "70d2570da1ce1383", "b8a4902ecb5bf4f7"]


def test_two_keys_whose_hashes_and_versions_are_the_same_do_not_hide_each_other(
    tmp_path: Path,
) -> None:
    """Of every 100,000 keys there is about one such pair."""
    alike = [b"0002b23a", b"00107933"]
    hashes = {xxh3(ledger_key.prefix(ledger_key.STANDARD, b"") + key) & LOW_32 for key in alike}
    assert len(hashes) == 1
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        for key in alike:
            a.put(key, b"set")
        for store in (a, b):
            store.put(b"other", b"set")
        for by in ("head", "value"):
            assert [found.key for found in octavo.compare(a, b, by=by)] == alike
            assert [found.key for found in octavo.compare(b, a, by=by, segments=256)] == alike
