"""Loading in steps, deleting between them: every way of counting agrees at every step."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside import LITTLE, Beside, seeded, value


def counted(beside: Beside, bucket: bytes) -> None:
    expected = len(beside.of(bucket))
    of = beside.store.bucket(bucket)
    assert len(of) == expected
    assert sum(1 for _ in of) == expected
    assert sum(1 for _ in of.keys(reverse=True)) == expected
    assert sum(1 for _ in of.heads()) == expected
    assert sum(1 for _ in of.items()) == expected
    assert bool(of) == (expected > 0)
    with beside.store.snapshot() as snapshot:
        assert len(snapshot.bucket(bucket)) == expected


@pytest.mark.parametrize("deletes", [False, True])
def test_counts_follow_every_step_of_a_load(tmp_path: Path, deletes: bool) -> None:
    rng = seeded(deletes)
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for step in range(10):
            first = step * 400
            pairs = [(b"%06d" % (first + number), value(rng, 50)) for number in range(400)]
            rng.shuffle(pairs)
            beside.put_many(b"counted", pairs)
            beside.put(b"other", b"%d" % step, b"x")
            if deletes:
                for key in rng.sample(sorted(beside.of(b"counted")), 150):
                    beside.delete(b"counted", key)
            counted(beside, b"counted")
            counted(beside, b"other")
        assert len(beside.of(b"counted")) == (2500 if deletes else 4000)
        beside.reopen()
        counted(beside, b"counted")
        beside.store.compact()
        counted(beside, b"counted")


def test_deleting_all_of_it_leaves_nothing_to_count(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for turn in range(3):
            beside.put_many(b"", [(b"%05d" % number, b"%d" % turn) for number in range(1500)])
            counted(beside, b"")
            for number in range(1500):
                beside.delete(b"", b"%05d" % number)
            counted(beside, b"")
            beside.reopen()
            counted(beside, b"")
