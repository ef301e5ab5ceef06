"""What stats() says: stable keys, JSON, and figures that are right."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, opened, rolled

import octavo
from octavo import stats_types
from octavo.actors.inker import Inker

VALUE = bytes(range(256)) * 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    # What is not written to memory is saved and merged when the test says so.
    with octavo.open(tmp_path / "store", roll_size_bytes=1 << 20, worker=False) as made:
        yield made


def wrong(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Where ``value`` is not of the type ``kind``, which says what is JSON."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        if list(value) != list(hints):
            yield f"{where}: keys {sorted(set(value) ^ set(hints))}, or their order"
        for name, hint in hints.items():
            yield from wrong(value[name], hint, f"{where}.{name}")
    elif origin is list:
        for number, item in enumerate(value):
            yield from wrong(item, arguments[0], f"{where}[{number}]")
    elif origin is dict:
        for name, item in value.items():
            yield from wrong(item, arguments[1], f"{where}.{name}")
    elif arguments:  # a union
        if type(value) not in arguments:
            yield f"{where}: {value!r} is none of {arguments}"
    elif type(value) is not kind:
        yield f"{where}: {value!r} is no {kind}"


def test_every_key_is_there_and_of_its_type(store: octavo.Store) -> None:
    store.put_many((b"%05d" % number, VALUE) for number in range(3000))
    flush(store)
    with store.snapshot(), store.batch() as batch:
        batch.put(b"", b"a", b"b")
        store.get(b"00001")
        found = store.stats(score=True)
        assert list(wrong(found, stats_types.Stats, "stats")) == []
        assert found["live_snapshots"]
        assert found["jobs"]["recent"]
        assert found["journal"]["file_list"][0]["garbage_share"] is not None


def test_every_key_is_there_in_an_empty_store(store: octavo.Store) -> None:
    assert list(wrong(store.stats(), stats_types.Stats, "stats")) == []


def test_stats_are_json_as_they_are(store: octavo.Store) -> None:
    store.put(b"a", b"b", sync=True)
    found = store.stats()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


STABLE = {
    "": "path id format epoch opened_ms now_ms last_sqn persisted_sqn journal ledger memory "
    "read_cache merging compaction snapshots live_snapshots writes latencies jobs open_files "
    "replayed_at_open notes consumers",
    "journal": "files sealed_files sealed_bytes unsealed_files active_file active_bytes records "
    "file_list",
    "ledger": "files bytes levels bytes_written rows_merged",
    "memory": "recent_keys waiting_tables waiting_keys kept_versions read_cache_bytes "
    "read_cache_entries",
    "read_cache": "entries bytes limit_bytes hits misses not_asked",
    "merging": "waiting_tables level_zero_files rows_over_target delete_pending "
    "delete_pending_bytes pauses pause_seconds",
    "compaction": "dropped_records delete_pending delete_pending_bytes scored_files damaged_files",
    "writes": "records bytes_put journal_bytes compaction_bytes ledger_bytes manifest_bytes "
    "amplification",
    "latencies": "put put_many batch get get_many head fsync",
    "jobs": "totals recent",
}


@pytest.mark.parametrize("part", STABLE)
def test_no_key_that_was_once_there_goes(store: octavo.Store, part: str) -> None:
    found: Any = store.stats()
    assert set(STABLE[part].split()) <= set(found[part] if part else found)


# ---------------------------------------------------------------- figures


def test_write_amplification_is_what_was_written_by_what_was_put(store: octavo.Store) -> None:
    count, value = 2000, b"x" * 500  # too small to be compressed
    for number in range(count):
        store.put(b"%05d" % number, value)
    flush(store)
    writes = store.stats()["writes"]
    assert writes["records"] == count
    assert writes["bytes_put"] == pytest.approx(count * 505, rel=0.01)
    on_disk = sum(
        file.stat().st_size for file in Path(store.path).rglob("*") if file.suffix != ".log"
    )
    assert writes["ledger_bytes"] <= on_disk
    whole = sum(writes[part] for part in ("journal_bytes", "ledger_bytes", "manifest_bytes"))
    assert writes["amplification"] == pytest.approx(whole / writes["bytes_put"])
    assert 1.0 < whole / writes["bytes_put"] < 2.0


def test_bytes_put_are_those_before_compression(store: octavo.Store) -> None:
    for number in range(100):
        store.put(b"%05d" % number, b"a" * 10_000)
    writes = store.stats()["writes"]
    assert writes["bytes_put"] == pytest.approx(100 * 10_005, rel=0.01)
    assert writes["journal_bytes"] < 50_000


def test_nothing_was_put_in_this_life(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((b"%05d" % number, VALUE) for number in range(1000))
    with octavo.open(tmp_path / "store") as store:
        writes = store.stats()["writes"]
        assert (writes["records"], writes["amplification"]) == (0, None)
        store.put(b"a", b"b" * 999)
        writes = store.stats()["writes"]
        assert (writes["records"], writes["bytes_put"]) == (1, 1000)


def test_the_garbage_of_sealed_files_is_found(store: octavo.Store) -> None:
    for turn in range(4):  # the last one of four is live
        store.put_many((b"%05d" % number, bytes([turn]) * 500) for number in range(2500))
    rolled(store)
    flush(store)
    files = store.stats()["journal"]["file_list"]
    assert {file["garbage_share"] for file in files} == {None}
    files = store.stats(score=True)["journal"]["file_list"]
    shares = [file["garbage_share"] for file in files if file["state"] == "sealed"]
    assert shares[0] == 1.0
    assert shares[-1] == 0.0
    assert files[0]["score"] == 0.0
    assert all(file["garbage_share"] is None for file in files if file["state"] != "sealed")


def test_a_snapshot_holds_the_files_that_were_merged_since(store: octavo.Store) -> None:
    def fill() -> None:
        for turn in range(4):
            store.put_many((b"%05d" % number, bytes([turn])) for number in range(500))
            flush(store)

    fill()
    early = store.snapshot(lease_seconds=500)
    fill()
    with store.snapshot():
        first, second = store.stats()["live_snapshots"]
    assert first["holds_files"] > 0
    assert first["holds_bytes"] > 1000
    assert second["holds_files"] == second["holds_bytes"] == 0
    assert 0 < first["lease_left_seconds"] <= 500
    assert first["age_seconds"] >= second["age_seconds"] >= 0
    assert store.stats()["merging"]["delete_pending_bytes"] == first["holds_bytes"]
    early.close()
    store._running.penciller.call(type(store._running.penciller.actor).sweep)
    assert store.stats()["merging"]["delete_pending"] == 0
    assert store.stats()["live_snapshots"] == []


def test_calls_are_counted_and_timed(store: octavo.Store) -> None:
    for number in range(3000):
        store.put(b"%05d" % number, b"x")
    for _ in range(700):
        store.get(b"00001")
        store.head(b"00001")
    for _ in range(40):
        store.put_many([(b"a", b"b")])
        store.get_many([b"a", b"b"])
        with store.batch() as batch:
            batch.put(b"", b"a", b"b")
    store.sync()
    found = store.stats()["latencies"]
    counts = {name: row["count"] for name, row in found.items()}  # type: ignore[index]
    assert counts == {
        "put": 3000, "put_many": 40, "batch": 40, "get": 700, "get_many": 40, "head": 700,
        "fsync": 1,
    }  # fmt: skip
    for row in found.values():
        quantiles = [row[f"p{part}_seconds"] for part in ("50", "90", "99", "999")]  # type: ignore[index]
        assert 0 < quantiles[0] <= quantiles[1] <= quantiles[2] <= quantiles[3]
        assert quantiles[3] <= row["max_seconds"] * (1 + 1 / 32) < 60  # type: ignore[index]


def test_calls_of_a_head_only_store_are_counted_and_timed_as_well(tmp_path: Path) -> None:
    with opened(tmp_path / "s", mode="head_only") as store:
        bucket = store.head_bucket("b")
        for number in range(3000):
            bucket.put(b"%05d" % number, b"x")
        for _ in range(700):
            bucket.get("00001")
            bucket.head("00001")
        for _ in range(40):
            with store.head_batch() as batch:
                batch.put("b", "a", b"b")
        latencies = store.stats()["latencies"]
        assert store.stats()["read_cache"]["not_asked"] == 0
    counts = [latencies[name]["count"] for name in ("put", "batch", "get", "head")]  # type: ignore[literal-required]
    assert counts == [3000, 40, 700, 700]
    assert latencies["put"]["p50_seconds"]


def test_gets_are_told_apart_by_where_they_were_answered(store: octavo.Store) -> None:
    store.put_many((b"%05d" % number, VALUE) for number in range(2000))
    for number in range(1000):
        store.get(b"%05d" % number)
    cache = store.stats()["read_cache"]
    assert (cache["hits"], cache["misses"]) == (0, 0)
    assert cache["not_asked"] > 500
    flush(store)
    for _ in range(2):
        for number in range(1000, 2000):
            store.get(b"%05d" % number)
    cache = store.stats()["read_cache"]
    assert 300 < cache["misses"] < 1700
    assert 300 < cache["hits"] < 1700
    assert cache["entries"] == 2000  # those read from memory, and those from the ledger


def test_jobs_are_remembered(store: octavo.Store) -> None:
    for turn in range(4):
        store.put_many((b"%05d" % number, bytes([turn])) for number in range(500))
        flush(store)
    jobs = store.stats()["jobs"]
    assert jobs["totals"]["level_zero"]["runs"] == 4
    assert jobs["totals"]["merge"]["runs"] == 1
    merge = next(run for run in jobs["recent"] if run["kind"] == "merge")
    assert (merge["inputs"], merge["outputs"], merge["ok"]) == (4, 1, True)
    assert merge["bytes_written"] > 0
    assert merge["seconds"] > 0


def test_a_put_that_raises_comes_through_when_it_is_timed(store: octavo.Store) -> None:
    for _ in range(10):
        with pytest.raises(octavo.Misuse):
            store.put(b"", b"x")
        with pytest.raises(octavo.Misuse):
            store.get(b"")
        with pytest.raises(octavo.Misuse):
            store.head(b"x" * 70_000)
    assert store.stats()["latencies"]["put"]["count"] == 10


def test_scoring_gives_way_to_a_compaction(store: octavo.Store) -> None:
    with store._running.inker_clerk.actor.alone():
        assert store.stats(score=True)["compaction"]["scored_files"] == 0


def test_score_is_a_flag(store: octavo.Store) -> None:
    with pytest.raises(octavo.Misuse, match="score"):
        store.stats(score=3)  # type: ignore[arg-type]


def test_a_file_that_was_sealed_and_is_not_entered_yet_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inker, "seal_next", lambda _: None)
    with opened(tmp_path / "s", roll_count=256) as store:
        for number in range(300):
            store.put(str(number), "")
        (file,) = store._inker.unsealed
        entry = file.seal_now(store._inker.runner)
        journal = store.stats()["journal"]
        assert [found["records"] for found in journal["file_list"]] == [256, 44]
        assert (journal["files"], journal["unsealed_files"], journal["records"]) == (2, 1, 300)
        assert journal["file_list"][0]["bytes"] == entry.bytes
