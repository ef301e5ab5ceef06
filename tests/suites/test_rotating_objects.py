"""Objects that rotate: in every turn some are new, some are replaced, some go."""

from __future__ import annotations

from pathlib import Path

from beside import LITTLE, Beside, same, seeded, value


def test_a_window_of_objects_moves_on(tmp_path: Path) -> None:
    rng = seeded("window")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for turn in range(12):
            for number in range(200):
                beside.put(b"w", b"%06d" % (turn * 100 + number), value(rng, 100))
            for number in range(100):
                beside.delete(b"w", b"%06d" % (turn * 100 + number))
            assert list(beside.store.bucket(b"w").keys()) == list(beside.of(b"w"))
            assert len(beside.of(b"w")) == 100
        beside.check()
        beside.reopen()
        beside.check()


def test_a_rotating_store_does_not_grow(tmp_path: Path) -> None:
    rng = seeded("size")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        sizes = []
        for _ in range(4):
            for number in range(800):
                beside.put(b"", b"%04d" % number, value(rng, 300))
            beside.store.compact()
            sizes.append(beside.store.stats()["journal"]["sealed_bytes"])
        assert max(sizes[1:]) < 1.3 * sizes[0]
        beside.check()


def test_each_turn_is_kept_by_the_snapshot_taken_after_it(tmp_path: Path) -> None:
    rng = seeded("turns")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        turns = []
        for turn in range(5):
            for number in range(turn, 500, 3):
                beside.put(b"", b"%04d" % number, value(rng, 80))
            for number in range(turn, 500, 7):
                beside.delete(b"", b"%04d" % number)
            turns.append((beside.store.snapshot(), dict(beside.content)))
            if turn == 2:
                beside.store.compact()
        for snapshot, content in turns:
            same(snapshot, content)
            snapshot.close()
        beside.sound()


def test_objects_rotate_through_buckets(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for turn in range(30):
            here, there = b"b%d" % (turn % 3), b"b%d" % ((turn + 1) % 3)
            if turn == 0:
                beside.put_many(here, [(b"%03d" % number, b"v") for number in range(100)])
            with beside.store.batch() as batch:
                for key, what in beside.of(here).items():
                    batch.put(there, key, what)
                    batch.delete(here, key)
            moved = beside.of(here)
            beside.content = {(there, key): what for key, what in moved.items()}
            assert list(beside.store.buckets()) == [there]
        beside.reopen()
        beside.check()
