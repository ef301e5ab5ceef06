"""Which buckets hold a live key, one by one and in one pass over the columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beside import LITTLE, seeded
from whole_store import flush, opened

import octavo
from octavo import Tag
from octavo.actors.memory_table import MemoryTable
from octavo.actors.reader import Reader
from octavo.actors.reading import bucket_names
from octavo.files.errors import SnapshotExpired
from octavo.files.ledger import chosen_rows
from octavo.files.ledger.sst import Sst
from octavo.files.wall_clock import wall_clock_ms

WAYS = pytest.mark.parametrize("few", [0, 1 << 20], ids=["one pass", "one by one"])


@pytest.fixture
def now() -> list[int]:
    return [1_000_000]


@pytest.mark.parametrize("together", [3, 1 << 13])
@WAYS
def test_buckets_with_a_live_key_are_listed_and_no_others(
    tmp_path: Path, now: list[int], few: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_names, "_FEW", few)
    monkeypatch.setattr(bucket_names, "_TOGETHER", together)
    rng = seeded(f"bucket names {few}")
    names = sorted({rng.randbytes(rng.randrange(5)) for _ in range(120)} | {b"\0", b"\xff" * 9})
    expires: dict[tuple[str, bytes, bytes], float] = {}

    def listed(source: Any, moment: int) -> None:
        for tag in ("standard", "a"):
            live = {name for (of, name, _), end in expires.items() if of == tag and end > moment}
            assert list(source.buckets(tag=tag)) == sorted(live)

    options: dict[str, Any] = {**LITTLE, "clock_ms": lambda: now[0], "tags": {"a": Tag()}}
    with opened(tmp_path / "s", **options) as store:
        for turn in range(12):
            for _ in range(90):
                tag, name, key = rng.choice(["standard", "a"]), rng.choice(names), rng.choice(b"kl")
                bucket, spot = store.bucket(name, tag=tag), (tag, name, bytes((key,)))
                kind = rng.random()
                if kind < 0.5:
                    bucket.delete(bytes((key,)))
                    expires.pop(spot, None)
                else:
                    ttl = None if kind < 0.7 else rng.randrange(1, 9)
                    bucket.put(bytes((key,)), b"v", ttl=ttl)
                    expires[spot] = now[0] + ttl * 1000 if ttl else float("inf")
                now[0] += 10
            listed(store, now[0])
            with store.snapshot() as snapshot:
                for name in rng.sample(names, 5):
                    store.bucket(name).put("later", b"v")
                listed(snapshot, now[0])
            for name in names:
                store.bucket(name).delete("later")
            if turn % 4 == 3:
                flush(store)
                listed(store, now[0])
        with octavo.open(tmp_path / "s", read_only=True) as beside:
            listed(beside, wall_clock_ms())


@pytest.mark.parametrize("ending", ["deleted", "expired"])
def test_many_dead_buckets_take_no_look_each(
    tmp_path: Path, now: list[int], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of it stays in memory: a merge would take the deleted ones away.
    large = {"push_rows": 1 << 17, "push_bytes": 64 << 20}
    with opened(tmp_path / "s", clock_ms=lambda: now[0], **large) as store:
        for number in range(2000):
            ttl = 1 if ending == "expired" and number % 2 else None
            store.bucket(b"%04d" % number).put("k", b"v", ttl=ttl)
        if ending == "deleted":
            for number in range(1, 2000, 2):
                store.bucket(b"%04d" % number).delete("k")
        now[0] += 1000
        monkeypatch.setattr(Reader, "windows", refused)
        assert list(store.buckets()) == [b"%04d" % number for number in range(0, 2000, 2)]
        with store.snapshot() as snapshot:
            assert len(list(snapshot.buckets())) == 1000


def test_a_few_doubtful_buckets_beside_many_rows_take_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_names, "_FEW", 3)
    monkeypatch.setattr(chosen_rows, "_ROWS_A_BUCKET", 10)
    with opened(tmp_path / "s") as store:
        store.put_many((b"%04d" % number, b"v") for number in range(100))
        for number in range(8):
            bucket = store.bucket(b"%d" % number)
            bucket.put("k", b"v")
            bucket.delete("k")
        monkeypatch.setattr(Reader, "batches", refused)
        assert list(store.buckets()) == [b""]


def test_a_bucket_whose_last_key_in_memory_alone_lives_is_listed_wherever_a_look_ends(
    tmp_path: Path,
) -> None:
    most = bucket_names._FIRST_KEYS + 2  # the first look ends in any of these buckets
    with opened(tmp_path / "s", push_rows=1 << 17, push_bytes=64 << 20) as store:
        for keys in range(1, most):
            for name, last in ((b"%02d live" % keys, b"v"), (b"%02d dead" % keys, None)):
                bucket = store.bucket(name)
                for number in range(keys):
                    bucket.put(b"%02d" % number, b"v")
                    if last is None or number < keys - 1:
                        bucket.delete(b"%02d" % number)
                assert name in list(store.buckets()) or last is None
        assert list(store.buckets()) == [b"%02d live" % keys for keys in range(1, most)]


def test_names_of_files_are_read_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_names, "_TOGETHER", 10)
    read: list[int] = []
    fronts = Sst.fronts

    def counting(self: Sst, *range: bytes) -> dict[bytes, int]:
        found = fronts(self, *range)
        read.append(len(found))
        return found

    with opened(tmp_path / "s") as store:
        for number in range(100):
            store.bucket(b"%02d" % number).put("k", b"v")
        flush(store)
        store.bucket("05 in memory").put("k", b"v")
        monkeypatch.setattr(Sst, "fronts", counting)
        names = store.buckets()
        assert [next(names) for _ in range(7)][-2:] == [b"05", b"05 in memory"]
        assert sum(read) == 10
        assert len(list(names)) == 94
        assert sum(read) == 100


def test_a_list_of_many_buckets_goes_on_for_longer_than_its_lease_but_no_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_names, "_TOGETHER", 10)
    clock = [0.0]
    with opened(tmp_path / "s", monotonic=lambda: clock[0]) as store:
        for number in range(100):
            store.bucket(b"%02d" % number).put("k", b"v")
        flush(store)
        names = store.buckets()
        for _ in range(50):
            next(names)
            clock[0] += 800
        clock[0] += 200
        with pytest.raises(SnapshotExpired):
            next(names)


def test_keys_of_a_bucket_in_memory_are_not_all_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    whole = MemoryTable.slice

    def counting(self: MemoryTable, *args: Any, **options: Any) -> list[bytes]:
        keys = whole(self, *args, **options)
        taken.append(len(keys))
        return keys

    with opened(tmp_path / "s", push_rows=1 << 17, push_bytes=64 << 20) as store:
        for name in ("a", "b", "c"):
            store.bucket(name).put_many((b"%05d" % number, b"v") for number in range(5000))
        monkeypatch.setattr(MemoryTable, "slice", counting)
        assert list(store.buckets()) == [b"a", b"b", b"c"]
        assert 0 < sum(taken) < 1000


def refused(*_: object, **__: object) -> Iterator[Any]:
    raise AssertionError("this way is not taken")
