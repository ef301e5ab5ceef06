"""Small batches of plain puts and deletes go a way of their own: it must lead where the long one
does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo import batch as batches
from octavo.actors.journal_file import JournalFile
from octavo.files.journal import record

LARGE = b"abcdefgh" * 1000
"""A value that is compressed."""


def committed(store: octavo.Store, *pairs: tuple[str, bytes | None]) -> int:
    """One batch of them in the default bucket; None deletes."""
    with store.batch() as batch:
        for key, value in pairs:
            if value is None:
                batch.delete("", key)
            else:
                batch.put("", key, value)
    return batch.last_sqn


def filled(path: Path, seed: int, **options: Any) -> tuple[list[Any], dict[bytes, dict[Any, Any]]]:
    """The history, and the state, of a store after random batches of that seed."""
    rng = random.Random(f"plain batches {seed}")
    values = [b"", b"v", rng.randbytes(3000), LARGE, "text"]
    with octavo.open(path, **options) as store:
        for _ in range(120):
            snapshot = store.snapshot() if rng.random() < 0.2 else None
            before = dict(snapshot.items()) if snapshot else {}
            with store.batch() as batch:
                for _ in range(rng.choice((0, 1, 1, 2, 3, 9))):
                    bucket, key = rng.choice((b"", b"b", "c")), b"k%d" % rng.randrange(40)
                    if rng.random() < 0.3:
                        batch.delete(bucket, key)
                    else:
                        batch.put(bucket, key, rng.choice(values))
                    if rng.random() < 0.1:
                        batch.put(bucket, b"m", b"v", metadata=b"meta")
            for key in rng.sample(range(40), 5):
                store.get(b"k%d" % key)
            if snapshot:
                assert dict(snapshot.items()) == before
                snapshot.close()
        history = [
            (each.sqn, each.bucket, each.key, each.value, each.kind) for each in store.changes(0)
        ]
        state = {name: dict(store.bucket(name).items()) for name in store.buckets()}
        for name, rows in state.items():
            assert store.bucket(name).get_many(rows) == list(rows.values())
        assert store.verify().ok
    return history, state


@pytest.mark.parametrize("options", [{}, {"roll_count": 256, "push_rows": 64, "worker": False}])
@pytest.mark.parametrize("seed", range(3))
def test_it_leads_where_the_long_way_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, options: dict[str, Any]
) -> None:
    short = filled(tmp_path / "short", seed, **options)
    monkeypatch.setattr(batches, "MOST", 0)
    assert filled(tmp_path / "long", seed, **options) == short
    with octavo.open(tmp_path / "short") as store:  # what recovery makes of the records
        again = {name: dict(store.bucket(name).items()) for name in store.buckets()}
    assert again == short[1]


def test_a_batch_is_told_with_its_length_and_one_alone_is_a_put(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        assert committed(store, ("a", b"1"), ("b", None)) == 2
        assert committed(store, ("c", b"3")) == 3
        assert committed(store) == 0
        with store.batch() as batch:
            batch.put("", "d", "4", metadata="m")
        assert [each.batch for each in store.changes(0)] == [(0, 2), (1, 2), None, None]


def test_the_cache_has_no_old_value_behind_it(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        for key in ("a", "b"):
            store.put(key, "old")
            assert store[key] == store[key] == b"old"
        committed(store, ("a", b"new"), ("b", None))
        assert (store.get("a"), store.get("b")) == (b"new", None)


def test_what_a_snapshot_sees_stays(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        committed(store, ("a", b"1"), ("b", b"1"))
        with store.snapshot() as snapshot:
            committed(store, ("a", b"2"), ("a", b"3"), ("b", None), ("c", b"2"))
            assert dict(snapshot.items()) == {b"a": b"1", b"b": b"1"}
            assert [snapshot.get(key) for key in "abc"] == [b"1", b"1", None]
        assert dict(store.items()) == {b"a": b"3", b"c": b"2"}


def test_what_it_puts_where_all_was_deleted_is_found(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((f"a{number:03}", "v") for number in range(300))
        store.put("b", "v")
        store.delete_many(list(store.keys(prefix="a")))
        assert list(store.keys()) == list(store.keys()) == [b"b"]
        committed(store, ("a100", b"v"), ("a200", b"v"))
        assert list(store.keys()) == [b"a100", b"a200", b"b"]


@pytest.mark.parametrize("stands", [0, 1, 2, 3])
def test_where_its_write_is_cut_short_all_of_it_counts_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands: int
) -> None:
    """An interrupt behind the write of some of its records."""
    with octavo.open(tmp_path / "s") as store:
        committed(store, ("a", b"1"), ("b", b"1"))
        active = store._running.inker.actor.active
        assert active is not None
        assert active.file is not None
        written = active.file.pwrite

        def broken(data: bytes, at: int) -> int:
            written(data[: len(data) * stands // 3], at)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(active.file, "pwrite", broken)
            with pytest.raises(KeyboardInterrupt):
                committed(store, ("a", b"2"), ("b", None), ("c", b"2"))
        wanted = {b"a": b"2", b"c": b"2"} if stands == 3 else {b"a": b"1", b"b": b"1"}
        assert dict(store.items()) == wanted == {key: store.get(key) for key in wanted}
        assert committed(store, ("d", b"3"), ("e", b"3")) == (7 if stands == 3 else 4)
        wanted |= {b"d": b"3", b"e": b"3"}
    with octavo.open(tmp_path / "s") as store:
        assert dict(store.items()) == wanted


def test_where_the_journal_failed_it_is_refused(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        committed(store, ("a", b"1"), ("b", b"1"))
        active = store._running.inker.actor.active
        assert isinstance(active, JournalFile)
        active.failed = octavo.StorageFailed("broken")
        with pytest.raises(octavo.StorageFailed, match="broken"):
            committed(store, ("a", b"2"), ("b", b"2"))
        assert store.get("a") == b"1"


def test_after_the_store_was_closed_it_is_refused(tmp_path: Path) -> None:
    store = octavo.open(tmp_path / "s")
    batch = store.batch()
    batch.put("", "a", "1")
    store.close()
    with pytest.raises(octavo.Closed):
        batch.commit()


def test_many_and_large_ones_go_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "s") as store:
        bookie = store._running.bookie.actor
        monkeypatch.setattr(bookie, "plain_batch", pytest.fail)
        many = [(f"k{number}", b"v") for number in range(257)]
        assert committed(store, *many) == 257
        assert committed(store, ("a", b"v" * (64 << 10))) == 258
        with store.batch() as batch:
            batch.put("", "i", "v", index={"f": 1})
        assert len(store) == 259


def test_records_are_as_the_long_way_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    pwrite = JournalFile.append_encoded

    def keep(self: Any, data: Any, ends: Any, atomic: bool = False) -> None:
        written.append(data)
        pwrite(self, data, ends, atomic)

    def records(data: bytes, seed: int, at: int) -> list[record.Record]:
        found, place = [], 0
        while place < len(data):
            head = record.parse_header(data[place:], seed ^ at + place, len(data) - place)
            end = place + head.header_bytes + record.SUMS_BYTES + head.value_bytes
            found.append(record.decode(data[place:end], seed ^ at + place, 0, "f", place))
            place = end
        return found

    with octavo.open(tmp_path / "s") as store:
        active = store._running.inker.actor.active
        assert active is not None
        pairs = (("a", b"1"), ("b", None), ("c", LARGE), ("d", random.Random(1).randbytes(4000)))
        ways = []
        for most in (256, 0):
            monkeypatch.setattr(batches, "MOST", most)
            monkeypatch.setattr(JournalFile, "append_encoded", keep)
            start = active.offsets[-1]
            committed(store, *pairs)
            path = Path(active.path)
            data = path.read_bytes()[start : active.offsets[-1]]
            ways.append(
                [each._replace(sqn=0, time_ms=0) for each in records(data, active.seed, start)]
            )
        assert len(written) == 1
        assert ways[0] == ways[1]
        assert [each.batch for each in ways[0]] == [(number, 4) for number in range(4)]
