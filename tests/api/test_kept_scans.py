"""Short scans that find what earlier ones kept of the ledger, against a dict."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest
from at_once import AtOnce
from beside import seeded
from whole_store import flush, opened, stretches, verified

import octavo
from octavo.actors.scanning import kept_scans
from octavo.actors.scanning.kept_scans import KeptScans, Stretches
from octavo.files.ledger.ledger_key import prefix

KEYS = [b"%04d" % at + b"x" * (at % 5) for at in range(600)]
NAMES = [b"", b"a", b"ab"]
Live = dict[bytes, bytes]


def kept_in(found: Stretches) -> int:
    return len(found._starts)


class Never:
    """Takes the pool's place, as one that is busy."""

    def submit(self, work: Callable[[], None]) -> None:
        pass


def same(reading: octavo.Bucket | octavo.SnapshotBucket, live: Live, rng: random.Random) -> None:
    """Some scans of a bucket give what a dict has."""
    for _ in range(6):
        start, end = sorted(rng.sample(KEYS, 2))
        most = rng.choice([1, 10, 70, 400])
        bounds = rng.choice([(start, None), (start, end), (None, end), (None, None)])
        expected = [
            (key, live[key])
            for key in sorted(live)
            if (bounds[0] is None or key >= bounds[0]) and (bounds[1] is None or key < bounds[1])
        ]
        assert list(islice(reading.items(*bounds), most)) == expected[:most]
        assert list(reading.keys(*bounds, limit=most)) == [key for key, _ in expected[:most]]
        behind = reading.keys(*bounds, reverse=True, limit=most)
        assert list(behind) == [key for key, _ in expected[::-1][:most]]
        heads = islice(reading.heads(*bounds), most)
        assert [(key, head.size) for key, head in heads] == [
            (key, len(value)) for key, value in expected[:most]
        ]


@pytest.mark.parametrize("in_order", [False, True], ids=["by stretches", "in order"])
@pytest.mark.parametrize("expiring", [False, True], ids=["", "some expire"])
@pytest.mark.parametrize("number", range(2))
def test_scans_between_writes_pushes_and_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expiring: bool, in_order: bool
) -> None:
    rng = seeded(f"test_kept_scans {number} {expiring} {in_order}")
    monkeypatch.setattr(kept_scans, "POOL", AtOnce() if in_order else Never())
    monkeypatch.setattr(kept_scans, "_LEAST_WINDOWS", 1)
    now = 1_700_000_000_000
    store = opened(tmp_path / "s", clock_ms=lambda: now, push_rows=300, read_cache_bytes=1 << 18)
    live: dict[bytes, Live] = {name: {} for name in NAMES}
    snapshots: list[tuple[octavo.Snapshot, dict[bytes, Live]]] = []
    most_kept = times_in_order = 0
    with store:
        for step in range(40):
            name = rng.choice(NAMES)
            bucket, model = store.bucket(name), live[name]
            for key in rng.sample(KEYS, rng.choice([1, 5, 60])):
                kind = rng.randrange(8)
                if kind == 0 or (kind == 1 and expiring):
                    model.pop(key, None)
                else:
                    model[key] = b"%d" % rng.randrange(1 << 40)
                if kind == 0:
                    bucket.delete(key)
                elif kind == 1 and expiring:
                    bucket.put(key, b"gone soon", ttl=1)
                else:
                    bucket.put(key, model[key])
            now += 2000
            if step % 9 == 0:
                flush(store)
            if in_order:
                verified(store)
            if step % 13 == 0:
                snapshots.append((store.snapshot(), {n: dict(of) for n, of in live.items()}))
            for name in NAMES:
                same(store.bucket(name), live[name], rng)
            for snapshot, was in snapshots:
                name = rng.choice(NAMES)
                same(snapshot.bucket(name), was[name], rng)
            most_kept = max(most_kept, kept_in(stretches(store)))
            times_in_order += stretches(store).order is not None
        for snapshot, _ in snapshots:
            snapshot.close()
    assert most_kept or expiring or in_order
    assert (times_in_order > 10) if in_order else not times_in_order


def filled(path: Path, **options: object) -> octavo.Store:
    """A store whose ledger has all keys."""
    store = opened(path, read_cache_bytes=1 << 20, push_rows=1 << 16, **options)
    store.put_many((key, b"old") for key in KEYS)
    flush(store)
    return store


def put_one(store: octavo.Store) -> list[bytes]:
    store.put(KEYS[3], b"new")
    return KEYS


def add_one(store: octavo.Store) -> list[bytes]:
    store.put(KEYS[3] + b"+", b"new")
    return sorted([*KEYS, KEYS[3] + b"+"])


def delete_one(store: octavo.Store) -> list[bytes]:
    store.delete(KEYS[3])
    return KEYS[:3] + KEYS[4:]


@pytest.mark.parametrize("merged", [False, True], ids=["in memory", "in the ledger"])
@pytest.mark.parametrize("change", [put_one, add_one, delete_one])
def test_what_is_newer_than_what_was_kept_counts(
    tmp_path: Path, change: Callable[[octavo.Store], list[bytes]], merged: bool
) -> None:
    with filled(tmp_path / "s") as store:
        assert list(store.keys(limit=20)) == KEYS[:20]
        assert kept_in(stretches(store)) == 1
        expected = change(store)
        if merged:
            flush(store)
        for _ in range(2):
            assert list(store.keys(limit=20)) == expected[:20]
            for key, value in store.items(limit=20):
                assert value == store.get(key)


def test_what_expires_is_not_kept(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    with opened(
        tmp_path / "s", clock_ms=lambda: now, push_rows=1 << 16, read_cache_bytes=1 << 20
    ) as store:
        for key in KEYS[:20]:
            store.put(key, b"v", ttl=10)
        flush(store)
        assert list(store.keys()) == KEYS[:20]
        now += 20_000
        assert list(store.keys()) == []


def test_a_scan_goes_on_from_stretch_to_stretch(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        for at in (50, 0, 110, 47):  # some overlap, and between two there is a gap
            list(store.keys(KEYS[at], limit=3))
        assert list(store.keys()) == KEYS
        assert list(store.keys(KEYS[2], KEYS[130])) == KEYS[2:130]
        assert list(store.keys(KEYS[55] + b"a", limit=200)) == KEYS[56:256]


def test_nothing_is_kept_without_a_read_cache(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0, push_rows=1 << 16) as store:
        store.put_many((key, b"v") for key in KEYS)
        flush(store)
        assert list(store.keys(limit=20)) == KEYS[:20] == list(store.keys(limit=20))
        assert kept_in(stretches(store)) == 0


def test_a_long_scan_does_not_push_out_what_short_ones_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=1 << 20, push_rows=1 << 16) as store:
        store.put_many((b"%06d" % at, b"v") for at in range(5000))
        flush(store)
        assert len(list(store.keys())) == 5000
        assert sum(len(known.keys) for known in stretches(store)._stretches.values()) < 1000


FRONT = prefix(1, b"")


def keep(found: Stretches, first: int, rows: int) -> None:
    keys = [b"%06d" % at for at in range(first, first + rows)]
    found.keep(FRONT + keys[0], keys, list(range(rows)), FRONT + keys[-1] + b"\x00")


def test_it_takes_no_more_room_than_it_may() -> None:
    found = Stretches(None, 100_000)
    for at in range(300):
        keep(found, at * 10, 10)
        assert found.bytes <= 100_000
    assert 20 < kept_in(found) < 100
    rest = [b"%06d" % at for at in range(2995, 3000)], [5, 6, 7, 8, 9], FRONT + b"002999\x00"
    assert found.at(FRONT + b"002995", FRONT) == rest
    assert found.at(FRONT + b"000005", FRONT) is None  # the oldest are forgotten
    keep(found, 0, 5000)
    assert found.at(FRONT + b"000000", FRONT) is None  # it alone would take most of the room


def test_another_bucket_is_not_what_a_stretch_tells_of() -> None:
    found = Stretches(None, 100_000)
    one, other = prefix(1, b"a"), prefix(1, b"b")
    found.keep(one, [b"000001"], [7], other + b"9")  # though it went as far
    assert found.at(one, one) is not None
    assert found.at(other + b"000001", other) is None
    assert found.below(other + b"000001", other) is None


def test_an_earlier_ledger_is_forgotten(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        kept = KeptScans(1 << 20)
        before = store._bookie.view.ledger
        keep(kept.of(before), 0, 10)
        assert kept_in(kept.of(before)) == 1
        put_one(store)
        flush(store)
        assert kept_in(kept.of(store._bookie.view.ledger)) == 0
        assert kept_in(kept.of(before)) == 0


def test_a_stretch_that_another_thread_takes_out_meanwhile_misleads_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Stretches(None, 20_000)
    for first in (0, 510, 520, 530):
        keep(found, first, 10)

    def meanwhile(starts: list[bytes], low: bytes) -> int:
        place = bisect_right(starts, low)
        del starts[0]
        return place

    monkeypatch.setattr("octavo.actors.scanning.kept_scans.bisect_right", meanwhile)
    assert found.at(FRONT + b"000524", FRONT) is None


def test_many_threads_keep_and_find() -> None:
    found = Stretches(None, 20_000)
    wrong: list[object] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(1500):
            first = rng.randrange(100) * 10
            keep(found, first, 10)
            rows = found.at(FRONT + b"%06d" % (first + 4), FRONT)
            if rows is not None and rows[:2] != (
                [b"%06d" % at for at in range(first + 4, first + 10)], [4, 5, 6, 7, 8, 9]
            ):  # fmt: skip
                wrong.append(rows)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert found.bytes <= 20_000
    assert sorted(found._stretches) == found._starts


def test_a_closed_store_keeps_nothing_though_who_holds_it_lives_on(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=8 << 20) as store:
        store.put_many((key, b"v") for key in KEYS)
        flush(store)
        for _ in range(3):
            list(store.items(start=KEYS[10], limit=20))
        bookie = store._bookie
        assert kept_in(stretches(store))
        assert bookie.kept_scans.items.bytes
    assert not kept_in(bookie.kept_scans._newest)
    assert not bookie.kept_scans.items.bytes
    assert bookie.kept_scans.items.of(b"") is None
    assert not bookie.cache.entries
