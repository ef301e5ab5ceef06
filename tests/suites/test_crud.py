"""Create, read, update, delete: many objects in several buckets, over many lives of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from beside import LITTLE, Beside, seeded, value

import octavo

BUCKETS = (b"", b"books", b"\x00\xff", b"a" * 300)


@pytest.mark.parametrize("options", [{}, LITTLE, {"sync": "always", **LITTLE}], ids=str)
def test_objects_live_through_every_phase(tmp_path: Path, options: dict[str, Any]) -> None:
    rng = seeded(sorted(options))
    with Beside(tmp_path / "store", **options) as beside:
        gone: set[tuple[bytes, bytes]] = set()
        for phase in range(5):
            for number in range(120):
                bucket, key = rng.choice(BUCKETS), b"key-%03d" % rng.randrange(150)
                if rng.randrange(4):
                    beside.put(bucket, key, value(rng, rng.choice((0, 1, 30, 900, 5000))))
                else:
                    beside.delete(bucket, key)
                    gone.add((bucket, key))
                if number % 40 == 0:
                    beside.check(gone)
            beside.reopen()
            beside.check(gone)
            print("phase", phase, "holds", len(beside.content))
        beside.sound()


def test_an_update_replaces_value_metadata_and_expiry(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", **LITTLE) as store:
        first = store.put("k", "old", metadata=b"m", ttl=1000)
        second = store.put("k", "newer")
        head = store.head("k")
        assert head is not None
        assert (head.sqn, head.size, head.metadata, head.expires_at) == (second, 5, b"", None)
        assert second > first


def test_a_deleted_object_comes_back_only_by_a_put(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for number in range(300):
            beside.put(b"", b"k%03d" % number, b"1")
        for number in range(300):
            beside.delete(b"", b"k%03d" % number)
        for _ in range(3):
            beside.reopen()
            assert not beside.store
            assert list(beside.store.buckets()) == []
        beside.put(b"", b"k007", b"2")
        beside.reopen()
        beside.check()


def test_conditions_hold_over_lives(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        sqn = beside.put(b"", b"k", b"0", if_sqn=0)
        for turn in range(1, 30):
            beside.reopen()
            with pytest.raises(octavo.Conflict):
                beside.store.put(b"k", b"x", if_sqn=sqn - 1)
            sqn = beside.put(b"", b"k", b"%d" % turn, if_sqn=sqn)
        beside.check()
