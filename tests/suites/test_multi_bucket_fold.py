"""Folds over one bucket, over several, over all: each sees its own keys, at one moment."""

from __future__ import annotations

from pathlib import Path

from beside import LITTLE, Beside, seeded, value

NAMES = (b"", b"b", b"b\x00", b"c", b"\xff")


def filled(beside: Beside, count: int = 3000) -> None:
    rng = seeded("fold")
    for _ in range(count):
        beside.put(rng.choice(NAMES), b"%03d" % rng.randrange(700), value(rng, 40))
    for bucket, key in rng.sample(sorted(beside.content), 300):
        beside.delete(bucket, key)


def test_a_fold_of_one_bucket_sees_no_other(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        filled(beside)
        for name in NAMES:
            expected = beside.of(name)
            bucket = beside.store.bucket(name)
            assert dict(bucket.items()) == expected
            assert list(bucket.keys(reverse=True)) == sorted(expected, reverse=True)
            assert sum(head.size for _, head in bucket.heads()) == sum(map(len, expected.values()))
        assert len(beside.store.bucket(b"none")) == 0


def test_a_fold_over_all_buckets_of_a_snapshot_is_of_one_moment(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        filled(beside)
        content = dict(beside.content)
        with beside.store.snapshot() as snapshot:
            found = {}
            for name in snapshot.buckets():
                for key, what in snapshot.bucket(name).items():
                    found[name, key] = what
                    beside.put(name, b"meanwhile", b"x")
                    beside.delete(name, key)
            assert found == content
        beside.check()


def test_folds_of_several_buckets_go_on_side_by_side(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        filled(beside)
        folds = {name: beside.store.bucket(name).items() for name in NAMES}
        found: dict[bytes, dict[bytes, bytes]] = {name: {} for name in NAMES}
        left = set(NAMES)
        while left:
            for name in sorted(left):
                step = next(folds[name], None)
                if step is None:
                    left.discard(name)
                else:
                    found[name][step[0]] = step[1]
        assert found == {name: beside.of(name) for name in NAMES}
        assert beside.store.stats()["snapshots"] == 0


def test_the_journal_s_order_is_that_of_the_puts_over_all_buckets(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        rng = seeded("order")
        newest = {}
        for _ in range(2000):
            place = rng.choice(NAMES), b"%03d" % rng.randrange(300)
            newest[place] = beside.put(*place, value(rng, 30))
        expected = sorted(newest, key=newest.__getitem__)
        with beside.store.snapshot() as snapshot:
            assert [(row.bucket, row.key) for row in snapshot.items_by_sqn()] == expected
