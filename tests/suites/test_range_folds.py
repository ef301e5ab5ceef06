"""Ranges in both directions against a sorted dict, over memory, level zero and deeper levels."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

from beside import LITTLE, Beside, seeded, value


def key(number: int) -> bytes:
    return b"%d/%03d" % (number % 7, number)


def test_random_ranges_are_those_of_a_sorted_dict(tmp_path: Path) -> None:
    rng = seeded("ranges")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for phase in range(4):
            for _ in range(400):
                number = rng.randrange(1000)
                if rng.randrange(4):
                    beside.put(b"", key(number), value(rng, 20))
                else:
                    beside.delete(b"", key(number))
            content = beside.of(b"")
            keys = list(content)
            for _ in range(150):
                low, high = (rng.choice((None, key(rng.randrange(1100)))) for _ in range(2))
                first = 0 if low is None else bisect_left(keys, low)
                last = len(keys) if high is None else bisect_left(keys, high)
                expected = keys[first:last]
                store = beside.store
                assert list(store.keys(low, high)) == expected
                assert list(store.keys(low, high, reverse=True)) == expected[::-1]
                limit = rng.randrange(20)
                assert list(store.keys(low, high, limit=limit)) == expected[:limit]
                assert list(store.items(low, high, limit=limit)) == [
                    (name, content[name]) for name in expected[:limit]
                ]
            print("phase", phase, "holds", len(keys))


def test_prefixes_split_the_keys(tmp_path: Path) -> None:
    rng = seeded("prefixes")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for number in rng.sample(range(3000), 3000):
            beside.put(b"", key(number), b"v")
        beside.store.compact()
        parts = [list(beside.store.keys(prefix=b"%d/" % part)) for part in range(8)]
        assert [k for part in parts for k in part] == list(beside.of(b""))
        assert parts[7] == []
        for part in range(7):
            with beside.store.snapshot() as snapshot:
                backwards = list(snapshot.keys(prefix=b"%d/" % part, reverse=True))
            assert backwards == parts[part][::-1]


def test_pages_of_any_size_give_the_whole(tmp_path: Path) -> None:
    rng = seeded("pages")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        beside.put_many(b"", [(b"%05d" % number, b"v") for number in range(1500)])
        whole = list(beside.store.keys())
        for reverse in (False, True):
            found: list[bytes] = []
            position = None
            while True:
                scan = beside.store.keys(limit=rng.randrange(1, 90), resume=position,
                                         reverse=reverse)  # fmt: skip
                found += scan
                position = scan.position
                if position is None:
                    break
            assert found == (whole[::-1] if reverse else whole)
