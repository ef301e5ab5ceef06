"""Scans of few rows, which are found by one look: they give what a snapshot's would, one by one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beside import seeded
from staged_rows import StagedRow, operations
from whole_store import WallClock, active_file, flush, opened

import octavo
from octavo import at_once, scans
from octavo.actors.bookie import Bookie
from octavo.actors.ledger_file import LedgerFile
from octavo.actors.scanning import few_rows
from octavo.actors.scanning.empty_ranges import EmptyRanges
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter

KEYS = [b"%03d" % at for at in range(160)]
START_MS = 1_700_000_000_000


def churn(store: octavo.Store, rng: random.Random, names: list[bytes], most: int) -> None:
    for _ in range(rng.randrange(most)):
        bucket, key = store.bucket(rng.choice(names)), rng.choice(KEYS)
        match rng.randrange(6):
            case 0:
                bucket.delete(key)
            case 1:
                bucket.put(key, b"soon gone", ttl=rng.choice([1, 1000]))
            case 2:
                bucket.delete_many(bucket.keys(key, rng.choice(KEYS)))
            case 3:
                bucket.put(key, b"found", index={"field": [rng.randrange(4), rng.randrange(4)]})
            case _:
                bucket.put(key, rng.randbytes(rng.choice([0, 9, 4000])).hex())


def steps(scan: octavo.Scan[Any]) -> Iterator[tuple[object, str | None]]:
    """What a scan gives, and where it stands then."""
    yield None, scan.position
    for found in scan:
        yield found, scan.position
    yield None, scan.position


def without_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the snapshots that are taken from now on."""
    taken: list[int] = []
    real = Bookie.snapshot

    def noted(self: Bookie, lease_seconds: float, number: int) -> Any:
        taken.append(number)
        return real(self, lease_seconds, number)

    monkeypatch.setattr(Bookie, "snapshot", noted)
    return taken


@pytest.mark.parametrize("number", range(12))
def test_scans_of_few_rows_give_what_a_snapshot_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rng = seeded(f"few {number}")
    names = [b"", b"other"]
    clock = WallClock(START_MS)
    found_so = 0
    with opened(tmp_path / "s", clock_ms=clock, read_cache_bytes=number % 3 << 20) as store:
        taken = without_a_snapshot(monkeypatch)
        for _ in range(6):
            churn(store, rng, names, 120)
            if rng.random() < 0.5:
                flush(store)
            clock.now += rng.choice([0, 2000])
            with store.snapshot() as snap:
                for _ in range(60):
                    name, text = rng.choice(names), rng.random() < 0.2
                    live = store.bucket(name, text=text)  # type: ignore[call-overload]
                    kept = snap.bucket(name, text=text)  # type: ignore[call-overload]
                    what = rng.choice(["keys", "items", "values", "heads"])
                    told = {
                        "limit": rng.choice([None, 1, 1, 2, 5, 20, 32, 90, 300]),
                        "reverse": rng.random() < 0.5,
                        "prefix": rng.choice([None, None, b"0", b"03", b"1", b"x"]),
                        "start": rng.choice([None, *KEYS[:100]]),
                        "end": rng.choice([None, *KEYS[60:]]),
                    }
                    before = len(taken)
                    found = list(steps(getattr(live, what)(**told)))
                    found_so += len(taken) == before
                    assert found == list(steps(getattr(kept, what)(**told))), (name, what, told)
                    if found[-1][1]:
                        told["resume"] = found[-1][1]
                        rest = list(getattr(live, what)(**told))
                        assert rest == list(getattr(kept, what)(**told))
    assert found_so > 100


@pytest.mark.parametrize("number", range(8))
def test_queries_of_few_entries_give_what_a_snapshot_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rng = seeded(f"few entries {number}")
    clock = WallClock(START_MS)
    found_so = 0
    with opened(tmp_path / "s", clock_ms=clock) as store:
        taken = without_a_snapshot(monkeypatch)
        for _ in range(8):
            churn(store, rng, [b"", b"other"], 200)
            if rng.random() < 0.5:
                flush(store)
            clock.now += rng.choice([0, 2000])
            with store.snapshot() as snap:
                live, kept = store.index("field"), snap.index("field")
                for _ in range(20):
                    before, term = len(taken), rng.randrange(4)
                    assert list(live.having(term)) == list(kept.having(term))
                    told = {
                        "start": rng.choice([None, 0, 1]),
                        "end": rng.choice([None, 2, 3]),
                        "limit": rng.choice([None, 0, 1, 3, 20, 50]),
                        "reverse": rng.random() < 0.5,
                        "match": rng.choice([None, None, "1"]),
                    }
                    found = list(live.range(**told))
                    assert found == list(kept.range(**told)), told
                    if found:
                        told["after"] = found[-1]
                        assert list(live.keys(**told)) == list(kept.keys(**told))
                    found_so += len(taken) == before
    assert found_so > 20


@pytest.mark.parametrize("where", ["memory", "the ledger"])
def test_an_entry_that_is_replaced_beside_the_look_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with opened(tmp_path / "s") as store:
        for key in KEYS[:9]:
            store.put(key, b"", index={"field": 1})
        if where == "the ledger":
            flush(store)
        real = at_once.found_at_once

        def found(*args: Any, **options: Any) -> Any:
            few = real(*args, **options)
            store.put(KEYS[3], b"again", index={"field": 1})
            return few

        monkeypatch.setattr(at_once, "found_at_once", found)
        assert list(store.index("field").having(1)) == KEYS[:9]
        assert [key for _, key in store.index("field").range(limit=9)] == KEYS[:9]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_range_comes_as_a_whole_however_many_keys_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_memory: bool
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((key, b"") for key in KEYS[::2])
        if not in_memory:
            flush(store)
        store.put_many((key, b"") for key in KEYS[1::2])
        taken = without_a_snapshot(monkeypatch)
        for count in range(20, 130):
            for reverse in (False, True):
                here = KEYS[10 : 10 + count]
                found = list(store.keys(here[0], KEYS[10 + count], reverse=reverse))
                assert found == here[:: -1 if reverse else 1]
                limited = store.keys(here[0], KEYS[10 + count], reverse=reverse, limit=100)
                assert list(limited) == found[:100]
                assert (limited.position is None) == (count < 100)
        assert len(taken) < 200


def test_what_is_written_after_the_call_is_not_seen(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((key, key) for key in KEYS)
        scans = [store.keys(limit=3), store.keys(limit=3, reverse=True), store.items(limit=3)]
        store.put(b"00", b"first")
        store.put(b"1599", b"last")
        store.put_many((key, b"changed") for key in KEYS[1:])
        store.delete(KEYS[0])
        assert list(scans[0]) == KEYS[:3]
        assert list(scans[1]) == KEYS[:-4:-1]
        assert list(scans[2]) == [(key, key) for key in KEYS[:3]]


@pytest.mark.parametrize("flushed", [False, True])
def test_no_older_head_comes_for_one_that_is_replaced_beside_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, flushed: bool
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((key, b"old") for key in KEYS[:9])
        if flushed:
            flush(store)
        store.put(KEYS[3], b"newer")
        store.put(KEYS[5], b"newer")
        real = at_once.found_at_once

        def found(*args: Any, **options: Any) -> Any:
            few = real(*args, **options)
            store.put(KEYS[3], b"the newest")
            store.delete(KEYS[5])
            return few

        monkeypatch.setattr(at_once, "found_at_once", found)
        sqns = [1, 2, 3, 12, 5, 7, 8, 9]
        here = [key for key in KEYS[:9] if key != KEYS[5]]
        assert [(key, head.sqn) for key, head in store.heads(limit=9)] == list(
            zip(here, sqns, strict=True)
        )


def test_heads_of_much_metadata_are_read_as_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        for key in KEYS[:8]:
            store.put(key, b"", metadata=bytes(300_000))
        taken = without_a_snapshot(monkeypatch)
        assert [len(head.metadata) for _, head in store.heads(limit=8)] == [300_000] * 8
        assert taken
        taken.clear()
        assert len(next(store.heads(limit=1))[1].metadata) == 300_000
        assert not taken


def test_what_a_function_of_a_type_raises_comes_with_the_row_that_it_is_of(tmp_path: Path) -> None:
    kind = octavo.Tag(head=lambda key, head: {b"000": head}[key])
    with opened(tmp_path / "s", tags={"kind": kind}) as store:
        bucket = store.bucket(b"", tag="kind")
        bucket.put_many((key, b"") for key in KEYS[:3])
        scan = bucket.heads(limit=3)
        with pytest.raises(KeyError):
            list(scan)


def beside_the_look(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """The next time that a scan has looked into the ledger, before it looks into memory: this."""
    real = few_rows.in_ledger

    def look(*args: Any) -> Any:
        monkeypatch.setattr(few_rows, "in_ledger", real)
        found = real(*args)
        then()
        return found

    monkeypatch.setattr(few_rows, "in_ledger", look)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("pushed", [False, True])
def test_a_write_between_the_looks_is_seen_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_memory: bool, pushed: bool
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((key, b"") for key in KEYS)
        flush(store)
        if in_memory:
            store.put(b"5", b"")

        def moved() -> None:
            with store.batch() as batch:
                batch.delete(b"", KEYS[0])
                batch.put(b"", b"0000", b"")
            if pushed:
                flush(store)

        beside_the_look(monkeypatch, moved)
        assert list(store.keys(limit=2)) == [b"0000", KEYS[1]]
        beside_the_look(monkeypatch, lambda: store.put(b"9", b""))
        assert list(store.keys(limit=1, reverse=True)) == [b"9"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_put_into_a_range_that_was_empty_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reverse: bool
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((key, b"") for key in KEYS)
        gone = KEYS[40:] if reverse else KEYS[:120]
        store.delete_many(gone)
        here = [key for key in KEYS if key not in gone][:: -1 if reverse else 1]
        assert next(store.keys(reverse=reverse)) == here[0]  # notes it
        assert store._bookie.empty_ranges.lows
        assert list(store.keys(limit=1, reverse=reverse)) == here[:1]
        beside_the_look(monkeypatch, lambda: store.put(gone[30], b""))
        assert list(store.keys(limit=1, reverse=reverse)) == [gone[30]]


def test_a_scan_of_a_store_that_was_closed_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((key, b"") for key in KEYS)
        scan = store.keys(limit=3)
    with pytest.raises(octavo.Closed):
        next(scan)
    with pytest.raises(octavo.Closed):
        store.keys(limit=3)


def test_a_damaged_value_is_told_where_it_comes(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((key, b"value of " + key) for key in KEYS)
        where = active_file(store)
        at = where.read_bytes().index(b"value of 002")
        with where.open("r+b") as file:
            file.seek(at)
            file.write(b"V")
        scan = store.items(limit=5)
        assert [next(scan) for _ in range(2)] == [(key, b"value of " + key) for key in KEYS[:2]]
        with pytest.raises(octavo.Corruption):
            next(scan)


def test_what_the_look_cannot_read_is_told_as_the_scan_comes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((key, b"") for key in KEYS)
        flush(store)

        def scarce(self: LedgerFile) -> None:
            raise octavo.StorageFull("no descriptor is left")

        with monkeypatch.context() as without:
            without.setattr(LedgerFile, "reader", scarce)
            for level in store._bookie.view.ledger.levels:
                for entry in level:
                    entry.file.sst = None
            scan = store.keys(limit=3)
            with pytest.raises(octavo.StorageFull):
                next(scan)
        assert list(store.keys(limit=3)) == KEYS[:3]


def test_large_values_are_read_as_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((key, bytes(300_000)) for key in KEYS[:8])
        store.put_many((key, bytes(20_000)) for key in KEYS[8:24])
        taken = without_a_snapshot(monkeypatch)
        read = items_read(monkeypatch)
        scan = store.items(limit=8)
        assert read == KEYS[:1]
        assert [key for key, _ in scan] == KEYS[:8]
        assert taken
        taken.clear()
        assert len(next(store.values(limit=1))) == 300_000
        assert [key for key, _ in store.items(KEYS[8], limit=32)] == KEYS[8:24]
        assert not taken


def items_read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keys of the items that scans read from now on."""
    read: list[bytes] = []
    real = scans.each_item

    def noted(*args: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        for key, value in real(*args, **options):
            read.append(key)
            yield key, value

    monkeypatch.setattr(scans, "each_item", noted)
    return read


@pytest.mark.parametrize("where", ["memory", "the ledger"])
@pytest.mark.parametrize("what", ["keys", "entries"])
def test_what_expires_between_the_looks_is_not_there_beside_what_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, what: str
) -> None:
    clock = WallClock(START_MS)
    with opened(tmp_path / "s", clock_ms=clock) as store:
        store.put(b"old", b"", ttl=1, index={"field": 1})
        if where == "the ledger":
            flush(store)

        def later() -> None:
            clock.now += 1000
            store.put(b"new", b"", index={"field": 1})

        beside_the_look(monkeypatch, later)
        taken = without_a_snapshot(monkeypatch)
        found = store.keys(limit=5) if what == "keys" else store.index("field").having(1)
        assert list(found) == [b"new"]
        assert len(taken) == (where == "the ledger")


def test_who_looks_as_a_load_is_taken_in_sees_all_of_it_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((key, b"") for key in KEYS)
        store.delete_many(KEYS[:120])
        assert next(store.keys()) == KEYS[120]  # notes what is gone
        flush(store)
        assert store._bookie.empty_ranges.lows
        writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=START_MS)
        writer.add(operations([StagedRow(b"", key, b"came") for key in (KEYS[3], KEYS[150])]))
        writer.finish()
        seen: list[tuple[Any, Any]] = []
        real = EmptyRanges.clear

        def look() -> None:
            seen.append((store.get(KEYS[3]), next(store.keys(limit=1))))

        def cleared(self: EmptyRanges) -> None:
            other = threading.Thread(target=look)
            other.start()
            other.join()
            real(self)

        monkeypatch.setattr(EmptyRanges, "clear", cleared)
        store.ingest("j", ["0-0"])
        look()
        assert seen == [(None, KEYS[120]), (b"came", KEYS[3])]
