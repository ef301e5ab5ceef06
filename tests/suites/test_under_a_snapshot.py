"""Fetching and putting while snapshots of several ages are open."""

from __future__ import annotations

from pathlib import Path

from beside import LITTLE, Beside, same, seeded, value


def test_each_snapshot_reads_its_own_moment_while_everything_changes(tmp_path: Path) -> None:
    rng = seeded("snapshots")
    buckets = (b"", b"b")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        snapshots = []
        for turn in range(6):
            for _ in range(500):
                bucket, key = rng.choice(buckets), b"%04d" % rng.randrange(400)
                if rng.randrange(5):
                    beside.put(bucket, key, value(rng, 60))
                else:
                    beside.delete(bucket, key)
            snapshots.append((beside.store.snapshot(), dict(beside.content)))
            print("turn", turn, "holds", len(beside.content))
        rng.shuffle(snapshots)
        for snapshot, content in snapshots:
            same(snapshot, content)
            beside.put(b"", b"meanwhile", value(rng, 50))
        beside.store.compact()
        for snapshot, content in snapshots:
            same(snapshot, content)
            snapshot.close()
        beside.check()
        beside.sound()


def test_fetches_under_a_snapshot_are_not_slowed_to_wrong_by_a_load(tmp_path: Path) -> None:
    rng = seeded("load")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        beside.put_many(b"", [(b"%04d" % number, b"old") for number in range(1000)])
        with beside.store.snapshot() as snapshot:
            for number in range(2000):
                beside.put(b"", b"%04d" % rng.randrange(2000), b"new %d" % number)
                key = b"%04d" % rng.randrange(2000)
                assert snapshot.get(key) == (b"old" if key < b"1000" else None)
            assert len(snapshot) == 1000
        beside.check()
