"""Head-only stores: keys and sub-keys, batches, both kinds of lookup, and what is refused."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from whole_store import SEED, WallClock, flush, killed, opened, rolled

import octavo
from octavo.actors import reader
from octavo.actors.compacting import compaction, trimming
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.scanning import scan_sources
from octavo.actors.view import View
from octavo.files.ledger.head import Head


@pytest.fixture
def clock() -> WallClock:
    return WallClock(1_000_000)


@pytest.fixture
def store(tmp_path: Path, clock: WallClock) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s", mode="head_only", clock_ms=clock) as store:
        yield store


def rows(where: Any, **how: object) -> list[tuple[bytes, bytes, bytes]]:
    return [(row.key, row.sub_key, row.value) for row in where.rows(**how)]


# ---------------------------------------------------------------- entries


def test_entries_stand_under_key_and_sub_key(store: octavo.Store) -> None:
    bucket = store.head_bucket("b")
    first = bucket.put("k", "one")
    second = bucket.put("k", b"two", sub_key="s")
    for _ in range(2):
        assert (bucket.get("k"), bucket.get("k", "s"), bucket.get("k", "t", 7)) == (
            b"one", b"two", 7,
        )  # fmt: skip
        found = bucket.head("k", b"s")
        assert found == (b"k", b"s", b"two", second, 1_000_000, None)
        assert bucket.head("nobody") is None
        flush(store)
    assert bucket.delete("k") > second > first
    assert rows(bucket) == [(b"k", b"s", b"two")]
    assert (len(bucket), bool(bucket), bool(store.head_bucket("c"))) == (1, True, False)
    assert list(store.buckets()) == [b"b"]


def test_values_may_be_empty_and_as_large_as_metadata(store: octavo.Store) -> None:
    bucket = store.head_bucket("b")
    bucket.put("empty", b"")
    bucket.put("large", bytes(1 << 20))
    for _ in range(2):
        assert bucket.get("empty", default=5) == b""
        assert bucket.get("large") == bytes(1 << 20)
        flush(store)


NASTY = [b"\0", b"\0\0", b"\0\xff", b"\xff", b"a", b"a\0", b"a\0\0", b"a\xff", b"\xff\0", b"ab"]


def test_names_full_of_nuls_and_ff_keep_apart_and_in_order(store: octavo.Store) -> None:
    wanted: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {}
    for name in NASTY[:4]:
        for key in NASTY:
            for sub_key in (b"", *NASTY):
                store.head_bucket(name).put(key, name + key + sub_key, sub_key=sub_key)
                wanted.setdefault(name, []).append((key, sub_key, name + key + sub_key))
    for _ in range(2):
        for name in NASTY[:4]:
            bucket, all_rows = store.head_bucket(name), sorted(wanted[name])
            assert rows(bucket) == all_rows
            assert rows(bucket, reverse=True) == all_rows[::-1]
            for key in NASTY:
                assert [row.sub_key for row in bucket.sub_keys(key)] == sorted([b"", *NASTY])
                assert rows(bucket, start=key) == [r for r in all_rows if r[0] >= key]
                assert rows(bucket, end=key) == [r for r in all_rows if r[0] < key]
                assert rows(bucket, prefix=key) == [r for r in all_rows if r[0].startswith(key)]
                assert rows(bucket, start=key, end=b"a\0", prefix=b"a", reverse=True) == [
                    r for r in reversed(all_rows) if key <= r[0] < b"a\0" and r[0][:1] == b"a"
                ]
                assert bucket.get(key, key) == name + key + key
        assert list(store.buckets()) == sorted(NASTY[:4])
        flush(store)


def test_sub_keys_of_one_key_both_ways_and_limits(store: octavo.Store) -> None:
    bucket = store.head_bucket("b")
    for i in range(300):
        bucket.put("k", b"%d" % i, sub_key=b"%03d" % i)
    bucket.put("k\0", b"other")
    bucket.put("j", b"other")
    for _ in range(2):
        subs = [row.sub_key for row in bucket.sub_keys("k")]
        assert subs == [b"%03d" % i for i in range(300)]
        assert [row.sub_key for row in bucket.sub_keys("k", reverse=True)] == subs[::-1]
        assert [row.sub_key for row in bucket.rows(start="k", limit=7)] == subs[:7]
        assert list(bucket.rows(limit=0)) == []
        flush(store)


# ---------------------------------------------------------------- batches


def test_a_conflict_names_key_and_sub_key_as_they_were_given(store: octavo.Store) -> None:
    bucket = store.head_bucket("b")
    with pytest.raises(octavo.Conflict, match=r"for key b'k\\x00', sub-key b's': it is absent"):
        bucket.put(b"k\x00", b"v", sub_key="s", if_sqn=1)
    with pytest.raises(octavo.Conflict, match=r"for key b'k': it is absent"):
        bucket.delete("k", if_sqn=1)


@pytest.mark.parametrize("limit", [0, 1, 5, 300])
def test_a_limit_reads_no_entries_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    looked: list[int] = []
    head_in_memory = scan_sources.head_in_memory

    def noted(view: View, entry: int, name: bytes, plain: bytes) -> Head | None:
        looked.append(entry)
        return head_in_memory(view, entry, name, plain)

    monkeypatch.setattr(scan_sources, "head_in_memory", noted)
    monkeypatch.setattr(reader, "head_in_memory", noted)
    with opened(tmp_path / "s", mode="head_only", push_rows=1 << 16) as store:
        bucket = store.head_bucket("b")
        for number in range(400):
            bucket.put(b"%04d" % number, b"v")
        assert [row.key for row in bucket.rows(limit=limit)] == [b"%04d" % n for n in range(limit)]
    assert len(looked) == limit


def test_entries_of_a_mib_are_not_all_in_memory(store: octavo.Store) -> None:
    bucket = store.head_bucket("b")
    for number in range(64):
        bucket.put(b"%02d" % number, bytes(1 << 20))
    flush(store)
    tracemalloc.start()
    assert sum(len(row.value) for row in bucket.rows()) == 64 << 20
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_batch_is_whole_or_not_there(store: octavo.Store) -> None:
    store.head_bucket("b").put("old", b"1")
    with store.head_batch() as batch:
        for i in range(50):
            batch.put("b", "k", b"%d" % i, sub_key=b"%02d" % i)
        batch.put("c", "x", b"1", ttl=5)
        batch.delete("b", "old")
        assert len(batch) == 52
        assert len(store.head_bucket("b")) == 1
    assert batch.last_sqn == store.last_sqn
    assert len(store.head_bucket("b")) == 50
    before = store.last_sqn
    with pytest.raises(ZeroDivisionError):
        write_and_fail(store)
    assert (store.last_sqn, len(store.head_bucket("b"))) == (before, 50)
    with store.head_batch() as batch:
        pass
    assert batch.last_sqn == 0


def write_and_fail(store: octavo.Store) -> None:
    with store.head_batch() as batch:
        batch.put("b", "new", b"1")
        raise ZeroDivisionError


def test_a_batch_that_was_written_takes_nothing_more(store: octavo.Store) -> None:
    with store.head_batch() as batch:
        batch.put("b", "k", b"1")
    for more in (lambda: batch.put("b", "l", b"1"), lambda: batch.delete("b", "k")):
        with pytest.raises(octavo.Closed, match="already written"):
            more()
    assert len(store.head_bucket("b")) == 1


def test_a_batch_can_be_written_or_discarded_within_its_block(store: octavo.Store) -> None:
    with store.head_batch() as batch:
        batch.put("b", "k", b"1")
        assert batch.commit() == batch.last_sqn == store.last_sqn
        with pytest.raises(octavo.Closed, match="already written"):
            batch.commit()
    assert batch.last_sqn == store.last_sqn
    with store.head_batch() as batch:
        batch.put("b", "l", b"1")
        batch.discard()
    assert (batch.last_sqn, len(store.head_bucket("b"))) == (0, 1)


def test_conditions_hold_for_the_whole_batch(store: octavo.Store) -> None:
    bucket = store.head_bucket("b")
    sqn = bucket.put("k", b"1", sub_key="s")
    with pytest.raises(octavo.Conflict):
        put_both(store, sqn + 1)
    assert bucket.get("other") is None
    put_both(store, sqn)
    assert (bucket.get("other"), bucket.get("k", "s")) == (b"1", b"2")
    with pytest.raises(octavo.Conflict):
        bucket.put("k", b"3", sub_key="s", if_sqn=0)
    bucket.delete("k", sub_key="s", if_sqn=store.last_sqn)
    bucket.put("k", b"3", sub_key="s", if_sqn=0)


def put_both(store: octavo.Store, if_sqn: int) -> None:
    with store.head_batch() as batch:
        batch.put("b", "other", b"1")
        batch.put("b", "k", b"2", sub_key="s", if_sqn=if_sqn)


def test_a_batch_cut_by_a_kill_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, mode="head_only") as store:
        store.head_bucket("b").put("k", b"before")
        with store.head_batch() as batch:
            for i in range(20):
                batch.put("b", "batch", b"%d" % i, sub_key=b"%02d" % i)
        image = killed(store, tmp_path / "image")
    (log,) = (image / "journal").glob("*.log")
    whole = log.read_bytes()
    for cut in range(0, 2000, 97):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(image, copy)
        (copy / "journal" / log.name).write_bytes(whole[: len(whole) - cut])
        with opened(copy) as store:
            bucket = store.head_bucket("b")
            assert len(list(bucket.sub_keys("batch"))) == (0 if cut else 20)


# ---------------------------------------------------------------- expiry, snapshots, reopenings


def test_expiry(store: octavo.Store, clock: WallClock) -> None:
    bucket = store.head_bucket("b")
    bucket.put("a", b"1", ttl=10)
    bucket.put("b", b"1", expires_at=datetime.fromtimestamp(1020, UTC))
    bucket.put("c", b"1")
    assert bucket.head("a").expires_at == 1_010_000
    with store.snapshot() as snap:
        for _ in range(2):
            clock.now = 1_009_999
            assert len(bucket) == 3
            clock.now = 1_010_000
            assert [row.key for row in bucket.rows()] == [b"b", b"c"]
            assert bucket.get("a") is None
            flush(store)
        clock.now = 1_020_000
        assert [row.key for row in bucket.rows()] == [b"c"]
        assert snap.head_bucket("b").get("a") == b"1"
        assert len(snap.head_bucket("b")) == 3
    bucket.put("a", b"2", if_sqn=0)
    assert bucket.head("a").expires_at is None


def test_an_arrow_stream_is_refused_with_what_there_is_instead(store: octavo.Store) -> None:
    with (
        store.snapshot() as snap,
        pytest.raises(octavo.Misuse, match=r"rows\(\) lists its entries"),
    ):
        snap.to_arrow()


def test_snapshots_see_their_moment_across_pushes_and_trims(store: octavo.Store) -> None:
    rng = random.Random(SEED)
    model: dict[tuple[bytes, bytes], bytes] = {}
    taken: list[tuple[octavo.Snapshot, dict]] = []
    bucket = store.head_bucket("b")
    for i in range(900):
        key, sub_key = b"%d" % rng.randrange(9), b"%d" % rng.randrange(9)
        if rng.random() < 0.3:
            bucket.delete(key, sub_key=sub_key)
            model.pop((key, sub_key), None)
        else:
            bucket.put(key, b"%d" % i, sub_key=sub_key)
            model[key, sub_key] = b"%d" % i
        if i % 150 == 0:
            taken.append((store.snapshot(), dict(model)))
        if i % 200 == 199:
            store.trim()
    for snap, then in [*taken, (store.snapshot(), model)]:
        seen = snap.head_bucket("b")
        assert {(k, s): v for k, s, v in rows(seen)} == then
        for (key, sub_key), value in then.items():
            assert seen.get(key, sub_key) == value
        snap.close()
    with pytest.raises(octavo.Closed):
        seen.get("k")
    assert store.verify().ok


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("trims", [False, True])
def test_it_is_all_there_after_an_end(tmp_path: Path, end: str, trims: bool) -> None:
    rng = random.Random(SEED + trims)
    model: dict[tuple[bytes, bytes], bytes] = {}
    path = tmp_path / "s"
    for number in range(4):
        store = opened(path, mode="head_only", roll_count=256)
        bucket = store.head_bucket("b")
        assert {(k, s): v for k, s, v in rows(bucket)} == model
        for i in range(400):
            key, sub_key = b"%d" % rng.randrange(40), b"%d" % rng.randrange(5)
            with store.head_batch() as batch:
                batch.put("b", key, b"%d.%d" % (number, i), sub_key=sub_key)
                batch.delete("b", b"d" + key, sub_key=sub_key)
            model[key, sub_key] = b"%d.%d" % (number, i)
        if trims:
            assert store.trim() >= 0
        for i in range(5):
            bucket.put(b"tail", b"%d" % number, sub_key=b"%d" % i)
            model[b"tail", b"%d" % i] = b"%d" % number
        assert store.verify().ok
        if end == "killed":
            path = killed(store, tmp_path / f"t{number}")
        store.close()


def test_trim_tells_what_it_gave_back_though_that_went_as_memory_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = compaction.settle

    def settled(clerk: InkerClerk) -> None:
        settle(clerk)
        clerk.actor_ref.call(trimming.trim_unasked)

    monkeypatch.setattr(compaction, "settle", settled)
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        for i in range(5000):
            store.head_bucket("b").put(b"%05d" % i, bytes(100))
        assert store.trim() > 500_000
        assert store.trim() == 0


def test_the_journal_lets_go_of_what_the_ledger_has(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, mode="head_only") as store:
        bucket = store.head_bucket("b")
        for i in range(5000):
            bucket.put(b"%05d" % i, bytes(100))
        store.trim()
        assert sum(file.stat().st_size for file in (path / "journal").iterdir()) < 100_000
        assert len(bucket) == 5000
        assert bucket.get("04999") == bytes(100)
    with opened(path) as store:
        assert len(store.head_bucket("b")) == 5000
        assert store.head_bucket("b").put("new", b"") > 5000


def test_a_trimmed_file_that_comes_back_after_a_power_cut_is_left_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, mode="head_only") as store:
        for turn in range(2):
            for i in range(10):
                store.head_bucket("b").put(b"%d" % i, b"%d" % turn)
            rolled(store)
        clerk = store._running.inker_clerk.actor
        clerk.enter()  # so that nothing is trimmed unasked before it is kept
        try:
            flush(store)
            kept = {file: file.read_bytes() for file in (path / "journal").glob("*.cdb")}
        finally:
            clerk.leave()
        store.trim()
    first = min(file for file in kept)
    assert not first.exists()
    first.write_bytes(kept[first])
    with opened(path) as store:
        assert not first.exists()
        assert store.head_bucket("b").get("7") == b"1"
        report = store.verify()
        assert report.ok, report.problems


def test_without_its_ledger_it_is_refused_once_the_journal_was_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, mode="head_only", push_rows=1 << 20) as store:
        store.head_bucket("b").put("k", b"1")
    shutil.rmtree(path / "ledger")
    with opened(path, push_rows=1 << 20) as store:
        assert store.head_bucket("b").get("k") == b"1"
        store.trim()
    shutil.rmtree(path / "ledger")
    with pytest.raises(octavo.Corruption, match="restore a backup"):
        opened(path)


# ---------------------------------------------------------------- modes and misuse


def trimmed_and_more(path: Path) -> int:
    """A store whose journal was trimmed and then went on; the newest sqn that is gone from it."""
    with opened(path, mode="head_only", push_rows=1 << 20) as store:
        bucket = store.head_bucket("b")
        for number in range(20):
            bucket.put(f"{number:02}", b"1")
        store.trim()
        return bucket.put("20", b"2") - 1


def test_without_the_journals_manifest_what_was_trimmed_is_known(tmp_path: Path) -> None:
    gone = trimmed_and_more(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "journal" / "manifest")
    with opened(tmp_path / "s") as store:
        assert len(rows(store.head_bucket("b"))) == 21
        with pytest.raises(octavo.HistoryCompacted):
            next(store.changes(since=gone - 1))
        assert [change.sqn for change in store.changes(since=gone)] == [gone + 1]


def test_without_that_and_the_ledger_it_is_refused(tmp_path: Path) -> None:
    trimmed_and_more(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "journal" / "manifest")
    shutil.rmtree(tmp_path / "s" / "ledger")
    with pytest.raises(octavo.Corruption, match="restore a backup"):
        opened(tmp_path / "s")


def test_without_its_ledger_nobody_reads_what_is_left_for_all(tmp_path: Path) -> None:
    trimmed_and_more(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "ledger")
    with pytest.raises(octavo.Corruption, match="restore a backup"):
        octavo.open(tmp_path / "s", read_only=True)


def test_without_its_ledger_it_is_not_restored(tmp_path: Path) -> None:
    trimmed_and_more(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "ledger")
    with pytest.raises(octavo.Corruption, match="restore another backup"):
        octavo.restore(tmp_path / "s", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_without_lookup_single_entries_are_not_answered_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, mode="head_only", lookup=False) as store:
        bucket = store.head_bucket("b")
        bucket.put("k", b"1", sub_key="s")
        bucket.delete("nobody")
        with store.snapshot() as snap:
            for ask in (
                lambda: bucket.get("k", "s"),
                lambda: bucket.head("k", "s"),
                lambda: snap.head_bucket("b").get("k", "s"),
                lambda: bucket.put("k", b"2", sub_key="s", if_sqn=1),
                lambda: bucket.delete("k", sub_key="s", if_sqn=1),
                lambda: store.head_batch().put("b", "k", b"2", if_sqn=0),
            ):
                with pytest.raises(octavo.Misuse, match="lookup"):
                    ask()
            assert rows(snap.head_bucket("b")) == rows(bucket) == [(b"k", b"s", b"1")]
        assert [row.value for row in bucket.sub_keys("k")] == [b"1"]
    with opened(path) as store, pytest.raises(octavo.Misuse, match="lookup=False"):
        store.head_bucket("b").get("k", "s")
    with pytest.raises(octavo.Misuse, match="was made with lookup=False"):
        opened(path, lookup=True)


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ({}, {"mode": "head_only"}),
        ({}, {"lookup": True}),
        ({}, {"lookup": False}),
        ({"mode": "head_only"}, {"mode": "standard"}),
        ({"mode": "head_only"}, {"lookup": False}),
        ({"mode": "head_only"}, {"tags": {"a": octavo.Tag()}}),
        ({"mode": "head_only"}, {"strategies": {"standard": "retain"}}),
        ({"mode": "head_only", "lookup": False}, {"lookup": True}),
    ],
)
def test_a_store_keeps_the_mode_it_was_made_with(
    tmp_path: Path, made: dict[str, Any], given: dict[str, Any]
) -> None:
    path = tmp_path / "s"
    opened(path, **made).close()
    before = (path / "OCTAVO").read_bytes()
    with pytest.raises(octavo.Misuse, match=r"mode|lookup|tags"):
        opened(path, **given)
    assert (path / "OCTAVO").read_bytes() == before
    opened(path, **made).close()


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "headonly"},
        {"mode": 5},
        {"mode": "standard", "lookup": True},
        {"lookup": False},
        {"mode": "head_only", "lookup": 1},
        {"mode": "head_only", "tags": {"a": octavo.Tag()}},
    ],
)
def test_wrong_modes_are_refused_before_anything_is_made(tmp_path: Path, given: Any) -> None:
    with pytest.raises(octavo.Misuse):
        opened(tmp_path / "s", **given)
    assert not (tmp_path / "s").exists()


STANDARD: dict[str, Callable[[octavo.Store], object]] = {
    "put": lambda s: s.put("k", b"v"),
    "put of bytes": lambda s: s.put(b"k", b"v"),
    "put with options": lambda s: s.put("k", b"v", index={"f": 1}),
    "setitem": lambda s: s.__setitem__("k", b"v"),
    "put_many": lambda s: s.put_many([(b"k", b"v")]),
    "put_many of str": lambda s: s.put_many({"k": "v"}),
    "delete": lambda s: s.delete(b"k"),
    "delitem": lambda s: s.__delitem__("k"),
    "pop": lambda s: s.pop("k"),
    "setdefault": lambda s: s.setdefault("k", b"v"),
    "clear": lambda s: s.clear(),
    "get": lambda s: s.get(b"k"),
    "getitem": lambda s: s["k"],
    "get_many": lambda s: s.get_many([b"k"]),
    "head": lambda s: s.head(b"k"),
    "in": lambda s: b"k" in s,
    "index": lambda s: s.index("f"),
    "index_of": lambda s: s.index_of("k"),
    "has_index": lambda s: s.has_index(),
    "keys": lambda s: s.keys(),
    "items": lambda s: s.items(),
    "values": lambda s: s.values(),
    "heads": lambda s: s.heads(),
    "iter": lambda s: list(s),
    "len": lambda s: len(s),
    "bool": lambda s: bool(s),
}


@pytest.mark.parametrize("what", STANDARD)
def test_what_a_standard_bucket_does_is_misuse_here(store: octavo.Store, what: str) -> None:
    store.head_bucket("").put("k", b"v")
    before = store.last_sqn
    call = STANDARD[what]
    with store.snapshot() as snap:
        writes = what.startswith(("put", "set", "del", "pop", "clear"))
        for where in (store, store.bucket("b"), *(() if writes else (snap, snap.bucket("b")))):
            with pytest.raises(octavo.Misuse, match="head-only"):
                call(where)  # type: ignore[arg-type]
    assert store.last_sqn == before


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.batch(),
        lambda s: s.compact(),
        lambda s: s.snapshot().items_by_sqn(),
        lambda s: s.snapshot().heads_by_sqn(),
        lambda s: s.snapshot().bucket("b").items_by_sqn(),
        lambda s: s.snapshot().bucket("b").merkle(),
    ],
)
def test_what_a_standard_store_does_is_misuse_here(
    store: octavo.Store, call: Callable[[octavo.Store], object]
) -> None:
    with pytest.raises(octavo.Misuse, match="head-only"):
        call(store)


def test_there_is_no_other_type(store: octavo.Store) -> None:
    store.head_bucket("b").put("k", b"v")
    with store.snapshot() as snap:
        for where in (store, snap):
            assert list(where.buckets(tag="standard")) == [b"b"]
            with pytest.raises(octavo.Misuse, match="'other' is no type"):
                list(where.buckets(tag="other"))


def test_buckets_say_what_they_are_of(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        assert repr(store.head_bucket("b")) == f"<octavo.HeadBucket b'b' of {store.path!r}>"
        assert repr(snap.head_bucket("b")) == "<octavo.SnapshotHeadBucket b'b' at sqn 0>"
        assert isinstance(snap.head_bucket("b"), octavo.SnapshotHeadBucket)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.head_bucket("b"),
        lambda s: s.head_batch(),
        lambda s: s.trim(),
        lambda s: s.snapshot().head_bucket("b"),
    ],
)
def test_head_only_calls_are_misuse_in_a_standard_store(
    tmp_path: Path, call: Callable[[octavo.Store], object]
) -> None:
    with opened(tmp_path / "s") as store, pytest.raises(octavo.Misuse, match="head-only stores"):
        call(store)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda b: b.put("", b"v"), "key is empty"),
        (lambda b: b.put(5, b"v"), "key is of type int"),
        (lambda b: b.put("k", 5), "value is of type int"),
        (lambda b: b.put("k", b"v", sub_key=5), "sub_key is of type int"),
        (lambda b: b.put("k", b"v", sub_key=None), "sub_key is of type NoneType"),
        (lambda b: b.put("k", bytes((1 << 20) + 1)), "value of 1048577 bytes"),
        (lambda b: b.put("k", b"v", sub_key=bytes(64 << 10)), "key and sub_key"),
        (lambda b: b.put(bytes(40_000), b"v"), r"80002 bytes \(.* each zero byte"),
        (lambda b: b.put("k", b"v", ttl=-1), "ttl=-1"),
        (lambda b: b.put("k", b"v", ttl=1, expires_at=5), "ttl and expires_at"),
        (lambda b: b.put("k", b"v", sync=1), "sync=1"),
        (lambda b: b.put("k", b"v", if_sqn=-1), "if_sqn=-1"),
        (lambda b: b.delete(""), "key is empty"),
        (lambda b: b.get(5), "key is of type int"),
        (lambda b: b.get("k", 5), "sub_key is of type int"),
        (lambda b: b.sub_keys(""), "key is empty"),
        (lambda b: b.sub_keys("k", reverse=1), "reverse=1"),
        (lambda b: b.rows(start=5), "start is of type int"),
        (lambda b: b.rows(end=5), "end is of type int"),
        (lambda b: b.rows(prefix=5), "prefix is of type int"),
        (lambda b: b.rows(limit=-1), "limit=-1"),
        (lambda b: b.rows(reverse="yes"), "reverse='yes'"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    store: octavo.Store, call: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(octavo.Misuse, match=told):
        call(store.head_bucket("b"))
    assert store.last_sqn == 0


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", mode="head_only")
    bucket = store.head_bucket("b")
    store.close()
    for ask in (
        lambda: bucket.put("k", b""),
        lambda: bucket.get("k"),
        lambda: bucket.rows(),
        lambda: len(bucket),
        lambda: store.head_batch(),
        lambda: store.head_bucket("b"),
    ):
        with pytest.raises(octavo.Closed):
            ask()


def test_of_a_head_only_store_only_the_last_state_is_restored(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only", worker=False) as store:
        for number in range(9):
            store.head_bucket("b").put(b"%d" % number, b"v")
    for earlier in ({"sqn": 5}, {"time": 1_000_000_000_000}):
        with pytest.raises(octavo.Misuse, match="only its last state"):
            octavo.restore(tmp_path / "s", tmp_path / "r", **earlier)  # type: ignore[arg-type]
    assert not (tmp_path / "r").exists()
    assert octavo.restore(tmp_path / "s", tmp_path / "r", sqn=9).sqn == 9
    with octavo.open(tmp_path / "r", worker=False) as restored:
        assert restored.head_bucket("b").get(b"8") == b"v"


def test_of_a_head_only_store_that_was_trimmed_no_state_of_a_moment_is_restored(
    tmp_path: Path,
) -> None:
    clock = WallClock(1_800_000_000_000)
    with opened(tmp_path / "s", mode="head_only", clock_ms=clock) as store:
        store.head_bucket("b").put("first", b"v")
        clock.now += 1000
        store.head_bucket("b").put("later", b"v")
        store.trim()
    with pytest.raises(octavo.HistoryCompacted, match=r"trimmed: .* without time="):
        octavo.restore(tmp_path / "s", tmp_path / "r", time=clock() - 1)
    assert not (tmp_path / "r").exists()
    assert octavo.restore(tmp_path / "s", tmp_path / "r").sqn == 2
