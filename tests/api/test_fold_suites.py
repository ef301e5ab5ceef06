"""Folds as an application uses them: over many buckets, while others write, handed over, broken
off, between moments, and to find and mend what a copy lost."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from whole_store import SEED, flush, killed, opened, settle

import octavo


def loaded(store: octavo.Store, rng: random.Random, per_bucket: int) -> dict[bytes, dict]:
    """Buckets of different sizes, rewritten and deleted from in part, over several levels."""
    held: dict[bytes, dict[bytes, bytes]] = {}
    for number in range(5):
        name = b"bucket-%d" % number
        live = held.setdefault(name, {})
        for _ in range(3):
            pairs = [
                (b"key-%05d" % rng.randrange(per_bucket), rng.randbytes(rng.randrange(60)))
                for _ in range(per_bucket // (number + 1))
            ]
            store.bucket(name).put_many(pairs)
            live.update(pairs)
            for key in rng.sample(sorted(live), len(live) // 10):
                store.bucket(name).delete(key)
                del live[key]
        if number % 2:
            flush(store)
    return held


@pytest.fixture
def rng() -> random.Random:
    print("seed", SEED)
    return random.Random(SEED)


def test_folds_over_many_buckets_in_either_order_find_the_same(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path / "s") as store:
        held = loaded(store, rng, 500)
        sums = {name: sum(map(len, live.values())) for name, live in held.items()}
        with store.snapshot() as snap:
            assert list(snap.buckets()) == sorted(held)
            by_key = {
                name: sum(head.size for _, head in snap.bucket(name).heads()) for name in held
            }
            by_sqn: Counter[bytes] = Counter()
            for item in snap.items_by_sqn():
                by_sqn[item.bucket] += len(item.value)
            by_column: Counter[bytes] = Counter()
            for batch in snap.to_arrow(["bucket", "size"]):
                for name, size in zip(*batch.to_pydict().values(), strict=True):
                    by_column[name] += size
            assert by_key == dict(by_sqn) == dict(by_column) == sums


def test_folds_see_one_moment_while_others_write_merge_and_compact(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path / "s") as store:
        held = loaded(store, rng, 300)
        stop = threading.Event()
        errors: list[Exception] = []

        def write() -> None:
            noise = random.Random(1)
            try:
                while not stop.is_set():
                    for name in held:
                        store.bucket(name).put_many(
                            (b"key-%05d" % noise.randrange(300), b"later") for _ in range(100)
                        )
                    store.compact()
            except Exception as error:  # noqa: BLE001 - told below
                errors.append(error)

        with store.snapshot() as snap:
            writer = threading.Thread(target=write)
            writer.start()
            try:
                for _ in range(6):
                    for name, live in held.items():
                        assert dict(snap.bucket(name).items()) == live
                    whole = {(item.bucket, item.key): item.value for item in snap.items_by_sqn()}
                    assert whole == {(n, k): v for n, live in held.items() for k, v in live.items()}
                    assert snap.merkle().keys == len(whole)
            finally:
                stop.set()
                writer.join()
        assert errors == []


def test_a_fold_that_is_broken_off_lets_the_files_go(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s") as store:
        loaded(store, rng, 300)
        flush(store)
        for kind in ("keys", "items", "heads", "values"):
            fold = (
                1 // (40 - at) for at, _ in enumerate(getattr(store.bucket("bucket-0"), kind)())
            )
            with pytest.raises(ZeroDivisionError):
                sum(fold)
            del fold
            gc.collect()  # the error's traceback held it
        scan = store.bucket("bucket-0").items()
        assert len(list(islice(scan, 10))) == 10
        for _ in range(8):  # until level zero is merged into level one
            store.bucket("bucket-0").put_many((b"key-%05d" % at, b"new") for at in range(300))
            flush(store)
        directory = Path(store.path) / "ledger"
        held = {path.name for path in directory.glob("*.sst")}
        scan.close()
        settle(store)
        left = {path.name for path in directory.glob("*.sst")}
        assert left < held
        assert len(left) == store.stats()["ledger"]["files"]


def test_a_fold_can_be_handed_to_another_thread(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s") as store:
        held = loaded(store, rng, 300)
        snap = store.snapshot()
        folds = [snap.bucket("bucket-1").items(), snap.items_by_sqn(), snap.to_arrow(["key"])]
        del snap
        store.bucket("bucket-1").clear()
        flush(store)
        found: list[int] = []

        def run() -> None:
            for fold in folds:
                rows = list(fold)
                found.append(sum(row.num_rows for row in rows) if fold is folds[2] else len(rows))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        total = sum(map(len, held.values()))
        assert found == [len(held[b"bucket-1"]), total, total]


def test_what_was_modified_between_two_moments_is_found_after_everything(
    tmp_path: Path, rng: random.Random
) -> None:
    now = [1_700_000_000_000]
    written: dict[bytes, int] = {}
    stages: list[int] = []
    options = {"clock_ms": lambda: now[0]}
    store = opened(tmp_path / "s", **options)
    for stage in range(6):
        stages.append(now[0])
        for _ in range(150):
            key = b"k%03d" % rng.randrange(400)
            store.bucket("b").put_many([(key, b"stage %d" % stage)])
            written[key] = now[0]
            now[0] += rng.randrange(1000)
        if stage == 1:
            flush(store)
        elif stage == 2:
            store.close()
            store = opened(tmp_path / "s", **options)
        elif stage == 3:
            store.compact()
    with store:
        stages.append(now[0])
        for since in stages:
            for before in stages:
                expected = sorted(key for key, at in written.items() if since <= at < before)
                for reverse in (False, True):
                    found = store.bucket("b").keys(
                        modified_since=since, modified_before=before, reverse=reverse
                    )
                    assert list(found) == sorted(expected, reverse=reverse)


@pytest.mark.parametrize("segments", [256, 1024, 4096, 16384])
def test_a_copy_that_lost_a_part_is_found_and_mended(
    tmp_path: Path, rng: random.Random, segments: int
) -> None:
    # Two stores written apart: other sqns, other moments; each bucket is compared across them.
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        held = loaded(a, rng, 400)
        rows = [(name, key, value) for name, live in held.items() for key, value in live.items()]
        rng.shuffle(rows)
        for name, key, value in rows:
            a.bucket(name).put(key, value, metadata=b"v1")
            kind = rng.randrange(100)
            if kind == 0:
                continue  # lost
            b.bucket(name).put(key, value, metadata=b"v0" if kind == 1 else b"v1")
            if kind == 2:
                b.bucket(name).put(key + b"+", b"should not be there")
        differ = list(octavo.compare(a, b, by="head", segments=segments))
        assert differ
        assert all(one.a is None or one.b is None or one.b.metadata == b"v0" for one in differ)
        for one in differ:
            if one.a is None:
                b.bucket(one.bucket).delete(one.key)
            else:
                value = a.bucket(one.bucket)[one.key]
                b.bucket(one.bucket).put(one.key, value, metadata=one.a.metadata)
        assert list(octavo.compare(a, b, by="value", segments=segments)) == []
        with a.snapshot() as x, b.snapshot() as y:
            trees = [octavo.MerkleTree.from_bytes(s.merkle(segments, by="head").to_bytes())
                     for s in (x, y)]  # fmt: skip
            assert trees[0] == trees[1]


def test_trees_of_a_copy_stay_equal_whatever_its_files_go_through(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path / "a") as a:
        loaded(a, rng, 300)
        killed(a, tmp_path / "b")
        with a.snapshot() as snap:
            tree = snap.merkle(16384)
    with opened(tmp_path / "b", push_rows=1000) as b:
        b.compact()
        flush(b)
        with b.snapshot() as snap:
            assert snap.merkle(16384) == tree
            assert snap.merkle(256) == tree.reduced(256)
