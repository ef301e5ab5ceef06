"""Folds in the order in which things were written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from churned import NAMES, churn
from whole_store import SEED, flush, killed, opened

import octavo


def by_key(snap: octavo.Snapshot, name: bytes) -> list[tuple[int, bytes, bytes, bytes]]:
    bucket = snap.bucket(name)
    return [(head.sqn, name, key, bucket[key]) for key, head in bucket.heads()]


@pytest.fixture(params=range(4))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[octavo.Store]:
    rng = random.Random(SEED + request.param)
    rows = 1 << 20 if request.param == 0 else 64
    with opened(tmp_path / "s", push_rows=rows, push_bytes=1 << 30) as found:
        churn(found, rng, 900)
        if request.param == 1:
            flush(found)
        yield found


def test_items_come_by_sqn_exactly_those_that_are_live(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        churn(store, random.Random(1), 100)  # the snapshot does not see it
        expected = sorted(row for name in NAMES for row in by_key(snap, name))
        assert [tuple(item) for item in snap.items_by_sqn()] == expected
        for name in NAMES:
            mine = [row for row in expected if row[1] == name]
            assert [tuple(item) for item in snap.bucket(name).items_by_sqn()] == mine


def test_heads_come_by_sqn(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        expected = sorted(
            ((name, key, head) for name in NAMES for key, head in snap.bucket(name).heads()),
            key=lambda row: row[2].sqn,
        )
        assert list(snap.heads_by_sqn()) == expected
        assert list(snap.bucket("b").heads_by_sqn()) == [row for row in expected if row[0] == b"b"]


def test_pages_by_sqn_give_the_whole(store: octavo.Store) -> None:
    rng = random.Random(SEED)
    with store.snapshot() as snap:
        whole = list(snap.items_by_sqn())
        found: list[octavo.Item] = []
        while True:
            limit = rng.choice([1, 7, 100])
            page = list(snap.items_by_sqn(found[-1].sqn if found else 0, limit=limit))
            found += page
            if len(page) < limit:
                break
        assert found == whole
        assert list(snap.items_by_sqn(whole[-1].sqn)) == []
        assert list(snap.items_by_sqn(limit=0)) == []
        assert len(list(snap.items_by_sqn(limit=1 << 64))) == len(whole)
        assert [head.sqn for _, _, head in snap.heads_by_sqn(whole[50].sqn, limit=3)] == [
            item.sqn for item in whole[51:54]
        ]


def test_large_values_are_read_a_few_at_a_time_and_come_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_bytes=1 << 30) as store:
        rng = random.Random(SEED)
        values = [rng.randbytes(rng.choice([10, 3 << 20])) for _ in range(40)]
        for at, value in enumerate(values):
            store.put(b"k%02d" % (at * 17 % 40), value)
        with store.snapshot() as snap:
            assert [item.value for item in snap.items_by_sqn()] == values


def test_items_whose_numbers_are_far_apart_are_found(tmp_path: Path) -> None:
    for at in range(3):  # after each stop the store goes on above its ceiling
        with opened(tmp_path / str(at)) as store:
            store.put(b"k%d" % at, b"v")
            killed(store, tmp_path / str(at + 1))
    with opened(tmp_path / "3") as store, store.snapshot() as snap:
        items = list(snap.items_by_sqn())
        assert [item.key for item in items] == [b"k0", b"k1", b"k2"]
        assert items[2].sqn - items[0].sqn > 1 << 16


def test_a_text_bucket_gives_str(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.bucket("t").put("ä", "ö")
        with store.snapshot() as snap:
            (item,) = snap.bucket("t", text=True).items_by_sqn()
            assert (item.bucket, item.key, item.value) == (b"t", "ä", "ö")
            ((_, key, _),) = snap.bucket("t", text=True).heads_by_sqn()
            assert key == "ä"


def test_objects_of_another_type_have_their_own_fold(tmp_path: Path) -> None:
    tags = {"person": octavo.Tag(metadata=lambda key, value: value[:2])}
    with opened(tmp_path / "s", tags=tags) as store:
        store.put(b"k", b"standard", index={"f": 1})
        store.bucket("x", tag="person").put(b"p", b"person")
        with store.snapshot() as snap:
            assert [item.value for item in snap.items_by_sqn()] == [b"standard"]
            assert [item.value for item in snap.items_by_sqn(tag="person")] == [b"person"]
            ((name, key, head),) = snap.heads_by_sqn(tag="person")
            assert (name, key, head.metadata) == (b"x", b"p", b"pe")


def test_a_compacted_journal_gives_the_same(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        rng = random.Random(SEED)
        for _ in range(5):
            churn(store, rng, 600)
            flush(store)
            store.compact()
            with store.snapshot() as snap:
                expected = sorted(row for name in NAMES for row in by_key(snap, name))
                assert [tuple(item) for item in snap.items_by_sqn()] == expected
                sqns = [head.sqn for _, _, head in snap.heads_by_sqn()]
                assert sqns == [row[0] for row in expected]
                stream = snap.to_arrow(["sqn", "bucket", "key", "value"]).read_all().to_pylist()
                assert sorted(tuple(row.values()) for row in stream) == expected


@pytest.mark.parametrize("since", [-1, True, "1", None])
def test_a_start_that_is_no_sqn_is_refused(tmp_path: Path, since: int) -> None:
    with opened(tmp_path / "s") as store, store.snapshot() as snap:
        with pytest.raises(octavo.Misuse, match="since"):
            snap.items_by_sqn(since)
        with pytest.raises(octavo.Misuse, match="limit"):
            snap.heads_by_sqn(limit=-1)


def test_damage_is_named_and_never_given(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%03d" % at, b"value %d" % at) for at in range(100))
        sqn = store.head(b"k050").sqn
        file = store._running.inker.actor.view.file_of(sqn)
        with open(file.path, "r+b") as raw:
            raw.seek(file.offsets[sqn - file.base + 1] - 1)
            raw.write(b"\x00")
        found = []
        with store.snapshot() as snap, pytest.raises(octavo.Corruption):
            found.extend(item.key for item in snap.items_by_sqn())
        assert found == [b"k%03d" % at for at in range(50)]


def test_an_expired_lease_ends_a_fold(tmp_path: Path) -> None:
    seconds = [0.0]
    with opened(tmp_path / "s", monotonic=lambda: seconds[0]) as store:
        store.put_many((b"k%05d" % at, b"v") for at in range(3000))
        snap = store.snapshot(lease_seconds=5)
        fold = snap.items_by_sqn()
        next(fold)
        seconds[0] = 6
        with pytest.raises(octavo.SnapshotExpired):
            list(fold)
        with pytest.raises(octavo.SnapshotExpired):
            snap.heads_by_sqn()
