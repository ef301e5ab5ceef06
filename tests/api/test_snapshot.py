"""Snapshots: what they hold, for how long, and what they cost."""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from beside import until
from counted_lines import lines_of
from descriptors import descriptors
from whole_store import SEED, Clock, flush, no_hang, opened, rolled, settle

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.memory_table import MemoryTable
from octavo.actors.scanning.scan_sources import _MemoryChunk
from octavo.files.lifecycle import State


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s", monotonic=clock) as store:
        yield store


def put_all(store: octavo.Store, generation: str, count: int = 200) -> dict[bytes, bytes]:
    """Overwrite ``count`` keys; what the store then holds."""
    values = {b"%03d" % i: f"{generation} of {i}".encode() for i in range(count)}
    for key, value in values.items():
        store.put(key, value)
    return values


def replace_all(store: octavo.Store, generation: str) -> None:
    """Overwrite everything until no file of before is left in the ledger's manifest."""
    before = set(manifest_names(store))
    for turn in range(40):
        put_all(store, f"{generation}.{turn}")
        flush(store)
        if not before & set(manifest_names(store)):
            return
    raise AssertionError("old files are still in the ledger")


def manifest_names(store: octavo.Store) -> list[str]:
    manifest = store._running.penciller.actor.manifest
    return [entry.name for level in manifest.levels for entry in level]


def ledger_files(store: octavo.Store) -> set[str]:
    return {path.name for path in Path(store.path, "ledger").glob("*.sst")}


def pending(store: octavo.Store) -> int:
    return store.stats()["merging"]["delete_pending"]


READS: dict[str, Callable[[octavo.Snapshot], object]] = {
    "get": lambda snap: snap.get("000"),
    "get absent": lambda snap: snap.get("absent"),
    "head": lambda snap: snap.head("000"),
    "in": lambda snap: "000" in snap,
    "item": lambda snap: snap["000"],
    "get_many": lambda snap: snap.get_many(["000", "001"]),
    "keys": lambda snap: list(snap.keys()),
    "keys reverse": lambda snap: list(snap.keys(reverse=True)),
    "items": lambda snap: list(snap.items()),
    "values": lambda snap: list(snap.values()),
    "heads": lambda snap: list(snap.heads()),
    "len": len,
    "bool": bool,
    "buckets": lambda snap: list(snap.buckets()),
    "bucket": lambda snap: snap.bucket("docs").get("a"),
    "renew": lambda snap: snap.renew(),
}


# ---------------------------------------------------------------- what it holds


@pytest.mark.parametrize("behind", ["memory", "ledger", "merges"])
def test_it_reads_the_same_whatever_comes_after(store: octavo.Store, behind: str) -> None:
    old = put_all(store, "old")
    store.delete("100")
    del old[b"100"]
    flush(store) if behind != "memory" else None
    heads = dict(store.heads())
    with store.snapshot() as snap:
        for i in range(0, 200, 3):
            store.delete(b"%03d" % i)
        put_all(store, "new", 150)
        store.put("100", b"back")
        store.bucket("docs").put("a", b"new bucket")
        if behind == "ledger":
            flush(store)
        elif behind == "merges":
            replace_all(store, "newer")
        assert dict(snap.items()) == old
        assert list(snap.items(reverse=True)) == sorted(old.items(), reverse=True)
        assert {key: snap.get(key) for key in old} == old
        assert dict(snap.heads()) == heads
        assert snap.get("100") is None
        assert snap.head("100") is None
        assert "100" not in snap
        assert len(snap) == len(old)
        assert list(snap.buckets()) == [b""]
        assert list(snap.bucket("docs").keys()) == []
        assert list(snap.keys("050", "055")) == [k for k in old if b"050" <= k < b"055"]


def test_many_snapshots_each_keep_their_own_state(store: octavo.Store) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED)
    model: dict[bytes, bytes] = {}
    held: list[tuple[octavo.Snapshot, dict[bytes, bytes]]] = []
    for step in range(2500):
        key = b"%02d" % rng.randrange(60)
        kind = rng.randrange(10)
        if kind == 0:
            store.delete(key)
            model.pop(key, None)
        else:
            model[key] = b"%d" % step
            store.put(key, model[key])
        if step % 25 == 0:
            held.append((store.snapshot(), dict(model)))
        if step % 100 == 50:
            flush(store)
        if len(held) > 12:
            snap, expected = held.pop(rng.randrange(len(held)))
            assert dict(snap.items()) == expected
            assert list(snap.keys(reverse=True)) == sorted(expected, reverse=True)
            assert all(snap.get(k) == expected.get(k) for k in (b"%02d" % i for i in range(60)))
            snap.close()
    for snap, expected in held:
        assert dict(snap.items()) == expected
        snap.close()
    assert dict(store.items()) == model


def test_it_never_sees_half_of_a_batch(store: octavo.Store) -> None:
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(400):
                with store.batch() as batch:
                    for i in range(10):
                        batch.put("", f"{i}", b"%d" % number)
                if number % 50 == 0:
                    store._running.bookie.call(Bookie.push)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    looked = 0
    while not done.is_set() or not looked:
        with store.snapshot() as snap:
            assert len(set(snap.values())) <= 1
            assert len({snap.get(f"{i}") for i in range(10)}) == 1
            looked += 1
    writer.join()


def test_its_expiries_are_judged_at_its_making(tmp_path: Path) -> None:
    now = Clock(1_700_000_000_000)
    with opened(tmp_path / "s", clock_ms=now) as store:
        store.put("short", b"1", ttl=10)
        store.put("long", b"2", ttl=100)
        with store.snapshot() as early:
            now.now += 50_000
            flush(store)
            with store.snapshot() as late:
                assert dict(early.items()) == {b"short": b"1", b"long": b"2"}
                assert dict(late.items()) == {b"long": b"2"}
                now.now += 100_000
                for _ in range(8):
                    store.put("filler", b"")
                    flush(store)
                assert early.get("short") == b"1"
                assert late.get("long") == b"2"
                assert store.get("long") is None


def test_a_merge_keeps_what_a_snapshot_of_before_an_expiry_needs(tmp_path: Path) -> None:
    now = Clock(1_700_000_000_000)
    with opened(tmp_path / "s", clock_ms=now) as store:
        store.put("short", b"1", ttl=10)
        with store.snapshot() as snap:
            now.now += 20_000
            for i in range(12):  # saved and merged after it expired, with the snapshot alive
                store.put(f"filler {i}", b"")
                flush(store)
            assert store.stats()["ledger"]["rows_merged"] > 0
            assert snap.get("short") == b"1"
            assert snap.head("short").size == 1
            assert dict(snap.items()) == {b"short": b"1"}


# ---------------------------------------------------------------- leases


@pytest.mark.parametrize("read", sorted(READS))
def test_after_its_lease_every_read_says_so(store: octavo.Store, clock: Clock, read: str) -> None:
    put_all(store, "old")
    snap = store.snapshot(lease_seconds=10)
    clock.now += 9.9
    READS[read](snap)
    clock.now += 10 if read == "renew" else 0.1
    with pytest.raises(octavo.SnapshotExpired, match="lease"):
        READS[read](snap)


def test_after_its_lease_a_scan_under_way_gives_right_values_or_says_so(
    store: octavo.Store, clock: Clock
) -> None:
    old = put_all(store, "old")
    flush(store)
    for kind in ("items", "heads", "keys", "values"):
        for steps in (0, 1, 31, 32, 33, 64, 150):
            snap = store.snapshot(lease_seconds=10)
            expected = list(getattr(snap, kind)())
            scan = getattr(snap, kind)()
            got = [next(scan) for _ in range(steps)]
            clock.now += 10
            replace_all(store, f"new {kind} {steps}")
            with pytest.raises(octavo.SnapshotExpired):
                got += scan  # what it gave before it raised was added
            assert got == expected[: len(got)]
            if kind == "items":
                put_all(store, "old")
                flush(store)
    assert set(old) == set(dict(store.items()))


def test_a_renewal_begins_the_lease_anew(store: octavo.Store, clock: Clock) -> None:
    old = put_all(store, "old")
    with store.snapshot(lease_seconds=10) as snap:
        for _ in range(20):
            clock.now += 9
            snap.renew()
        replace_all(store, "new")
        assert dict(snap.items()) == old
        snap.renew(100)
        clock.now += 99
        assert snap.get("000") == old[b"000"]
        snap.renew(1)
        clock.now += 1
        with pytest.raises(octavo.SnapshotExpired):
            snap.get("000")


def test_an_expired_snapshot_cannot_be_renewed(store: octavo.Store, clock: Clock) -> None:
    store.put("k", b"v")
    snap = store.snapshot(lease_seconds=10)
    clock.now += 10
    with pytest.raises(octavo.SnapshotExpired):
        snap.renew(1000)
    with pytest.raises(octavo.SnapshotExpired):
        snap.get("k")
    snap.close()
    snap.close()


def test_the_clock_of_the_day_does_not_matter(tmp_path: Path, clock: Clock) -> None:
    day = Clock(1_700_000_000_000)
    with opened(tmp_path / "s", monotonic=clock, clock_ms=day) as store:
        store.put("k", b"v")
        snap = store.snapshot(lease_seconds=10)
        for jump in (3_600_000, -7_200_000, 10 * 365 * 86_400_000, -20 * 365 * 86_400_000):
            day.now += jump
            assert snap.get("k") == b"v"


@pytest.mark.parametrize("what", ["keys", "items", "values", "heads", "buckets"])
def test_a_live_scan_is_of_the_moment_of_the_call(store: octavo.Store, what: str) -> None:
    put_all(store, "old")
    expected = list(getattr(store, what)())
    scan = getattr(store, what)()
    put_all(store, "new", 210)
    store.bucket("docs").put("a", b"")
    assert list(scan) == expected


def test_a_live_scan_keeps_its_own_lease(store: octavo.Store, clock: Clock) -> None:
    # Its reader may be slow: what counts is that it goes on.
    old = dict(sorted(put_all(store, "old", 9000).items()))
    flush(store)
    scans = {
        "keys": (store.keys(), list(old)),
        "items": (store.items(), list(old.items())),
        "values": (store.values(), list(old.values())),
        "heads": (store.heads(), list(store.heads())),
    }
    store.delete("000")
    got: dict[str, list] = {name: [] for name in scans}
    for number in range(9000):
        for name, (scan, _) in scans.items():
            got[name].append(next(scan))
        if number % 250 == 0:
            clock.now += 400
            put_all(store, f"{number}", 100)
            flush(store)
    for name, (scan, expected) in scans.items():
        assert next(scan, None) is None
        assert got[name] == expected


def test_expiry_lets_the_files_go(store: octavo.Store, clock: Clock) -> None:
    put_all(store, "old")
    flush(store)
    snap = store.snapshot(lease_seconds=10)
    replace_all(store, "new")
    assert pending(store) > 0
    clock.now += 10
    put_all(store, "newer")
    flush(store)  # an install looks at the register
    assert pending(store) == 0
    assert ledger_files(store) == set(manifest_names(store))
    with pytest.raises(octavo.SnapshotExpired):
        list(snap.items())


def test_a_read_of_a_file_that_went_says_expired(store: octavo.Store, clock: Clock) -> None:
    # The lease ends between the check and the read.
    put_all(store, "old")
    flush(store)
    store._running.open_files.limit = 0
    snap = store.snapshot(lease_seconds=10)
    reader = snap._shared
    check, calls = reader.check, []

    def late() -> None:
        check()
        if not calls:
            calls.append(1)
            clock.now += 10
            replace_all(store, "new")

    reader.check = late  # type: ignore[method-assign]
    for entry in (e for level in snap._shared.view.ledger.levels for e in level):
        entry.file.forget_map()
    with pytest.raises(octavo.SnapshotExpired):
        snap.get("000")


@pytest.mark.parametrize("read", ["heads", "times"])
def test_a_scan_of_memory_whose_journal_file_went_says_expired(
    store: octavo.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    # The lease ends between the step of the scan and what it reads of each row then.
    put_all(store, "old")
    rolled(store)
    snap = store.snapshot(lease_seconds=10)
    replace_all(store, "new")
    rolled(store)
    files = snap._shared.view.journal.files
    of_rows = getattr(_MemoryChunk, read)

    def late(chunk: _MemoryChunk, rows: Sequence[int]) -> object:
        monkeypatch.undo()
        clock.now += 10
        store.compact()
        until(lambda: files[0].state is State.CLOSED, "the file is gone")
        return of_rows(chunk, rows)

    monkeypatch.setattr(_MemoryChunk, read, late)
    with pytest.raises(octavo.SnapshotExpired):
        {"heads": lambda: list(snap.heads()), "times": lambda: list(snap.keys(modified_since=1))}[
            read
        ]()


# ---------------------------------------------------------------- delete_pending


def test_files_wait_for_the_register_and_then_go(store: octavo.Store) -> None:
    old = put_all(store, "old")
    flush(store)
    needed = set(manifest_names(store))
    with store.snapshot() as snap:
        replace_all(store, "new")
        assert needed <= ledger_files(store)
        assert pending(store) > 0
        assert dict(snap.items()) == old
    settle(store)
    assert pending(store) == 0
    assert ledger_files(store) == set(manifest_names(store))
    assert not needed & ledger_files(store)


def test_without_a_snapshot_replaced_files_go_at_once(store: octavo.Store) -> None:
    replace_all(store, "new") if put_all(store, "old") else None
    settle(store)
    assert pending(store) == 0
    assert ledger_files(store) == set(manifest_names(store))


def test_a_younger_snapshot_does_not_hold_older_files(store: octavo.Store) -> None:
    put_all(store, "old")
    flush(store)
    first = set(manifest_names(store))
    elder = store.snapshot()
    replace_all(store, "new")
    younger = store.snapshot()
    elder.close()
    settle(store)
    assert not first & ledger_files(store)
    expected = dict(younger.items())
    replace_all(store, "newer")
    assert pending(store) > 0
    assert dict(younger.items()) == expected
    younger.close()
    settle(store)
    assert pending(store) == 0


@pytest.mark.parametrize("what", ["snapshot", "iterator", "iterator of a snapshot", "bucket"])
def test_garbage_collection_releases_what_was_dropped(store: octavo.Store, what: str) -> None:
    put_all(store, "old")
    flush(store)
    dropped: list[object] = []
    if what == "snapshot":
        dropped.append(store.snapshot())
    elif what == "iterator":
        scan = store.items()
        next(scan)
        dropped.append(scan)
    elif what == "iterator of a snapshot":
        snap = store.snapshot()
        scan = snap.items()
        next(scan)
        dropped.append(scan)
        del snap
    else:
        dropped.append(store.snapshot().bucket("docs"))
    scan = snap = None
    assert store.stats()["snapshots"] == 1
    replace_all(store, "new")
    assert pending(store) > 0
    dropped.clear()
    gc.collect()
    put_all(store, "newer")
    flush(store)
    assert store.stats()["snapshots"] == 0
    assert pending(store) == 0
    assert ledger_files(store) == set(manifest_names(store))


def test_a_snapshot_in_a_cycle_is_released_by_the_collector(store: octavo.Store) -> None:
    put_all(store, "old")
    cycle: list[object] = [store.snapshot()]
    cycle.append(cycle)
    assert store.stats()["snapshots"] == 1
    del cycle
    gc.collect()
    store.snapshot().close()
    assert store.stats()["snapshots"] == 0


def test_a_collection_inside_a_turn_does_not_deadlock(store: octavo.Store) -> None:
    put_all(store, "old")
    flush(store)
    held = [store.snapshot()]
    replace_all(store, "new")
    running = store._running
    for actor in (running.bookie.actor, running.penciller.actor):
        actor.enter()
    try:
        held.clear()
        gc.collect()
    finally:
        for actor in (running.penciller.actor, running.bookie.actor):
            actor.leave()
    store.snapshot().close()
    settle(store)
    assert pending(store) == 0


@pytest.mark.parametrize("what", ["keys", "items", "heads", "buckets"])
def test_a_scan_collected_inside_a_turn_does_not_deadlock(store: octavo.Store, what: str) -> None:
    put_all(store, "old")
    scan = iter(getattr(store, what)())
    next(scan)
    bookie, register = store._bookie, store._running.register
    # As within put's short path, and within the register's own critical section.
    bookie.enter()
    register._lock.acquire()
    try:
        with no_hang():
            del scan
            gc.collect()
    finally:
        register._lock.release()
        bookie.leave()
    store.snapshot().close()
    assert store.stats()["snapshots"] == 0


@pytest.mark.parametrize("how", ["exhausted", "closed", "broken off", "raised"])
def test_a_live_scan_lets_go_when_it_ends(store: octavo.Store, how: str) -> None:
    put_all(store, "old")
    scan = iter(store.heads())
    if how == "exhausted":
        for _ in scan:
            pass
    elif how == "closed":
        next(scan)
        scan.close()  # type: ignore[attr-defined]
    elif how == "broken off":
        for _ in store:
            break
        del scan
    else:
        _raise_within(store)
        del scan
    gc.collect()
    store.snapshot().close()
    assert store.stats()["snapshots"] == 0


@pytest.mark.parametrize("what", ["keys", "items", "values", "heads"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("rows", [3, 1500])
def test_a_scan_that_is_broken_off_does_not_wait_for_the_collector(
    store: octavo.Store, what: str, text: bool, rows: int
) -> None:
    bucket = store.bucket("b", text=text)
    bucket.put_many((str(number), str(number)) for number in range(2000))
    flush(store)
    gc.disable()
    try:
        scan = iter(getattr(bucket, what)())
        for _ in range(rows):
            next(scan)
        assert store.stats()["snapshots"] == 1
        del scan
        store.snapshot().close()
        assert store.stats()["snapshots"] == 0
    finally:
        gc.enable()


def _raise_within(store: octavo.Store) -> None:
    try:
        for _ in store.values():
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


def test_files_that_wait_go_at_the_next_start(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    put_all(store, "old")
    flush(store)
    store.snapshot()
    snap = store.snapshot()
    replace_all(store, "new")
    assert pending(store) > 0
    expected = dict(store.items())
    store.close()
    with opened(tmp_path / "s") as again:
        assert dict(again.items()) == expected
        settle(again)
        assert ledger_files(again) == set(manifest_names(again))
    with pytest.raises(octavo.Closed):
        snap.get("000")


def test_a_snapshot_and_a_read_only_store_tell_whether_they_were_closed(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        with store.snapshot() as snap:
            assert not snap.closed
        assert snap.closed
    with octavo.open(tmp_path / "s", read_only=True) as reader:
        reader.snapshot().close()
        assert not reader.closed
    assert reader.closed


@pytest.mark.parametrize("read", sorted(READS))
def test_a_snapshot_of_a_closed_store_says_closed(tmp_path: Path, read: str) -> None:
    store = opened(tmp_path / "s")
    put_all(store, "old")
    snap = store.snapshot()
    store.close()
    with pytest.raises(octavo.Closed):
        READS[read](snap)
    snap.close()


@pytest.mark.parametrize("read", ["get", "head", "contains", "index_of"])
def test_a_read_during_which_another_thread_closes_it_says_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    entry = MemoryTable.entry
    with opened(tmp_path / "s") as store:
        store.put("key", "old", index={"field": "term"})
        snap = store.snapshot()
        store.put("key", "new")

        def late(table: MemoryTable, key: bytes, upper: int) -> int | None:
            monkeypatch.undo()
            closer = threading.Thread(target=snap.close)
            closer.start()
            closer.join()
            return entry(table, key, upper)

        monkeypatch.setattr(MemoryTable, "entry", late)
        with pytest.raises(octavo.Closed):
            {
                "get": lambda: snap.get("key"),
                "head": lambda: snap.head("key"),
                "contains": lambda: "key" in snap,
                "index_of": lambda: snap.index_of("key"),
            }[read]()


# ---------------------------------------------------------------- what it costs


@pytest.mark.parametrize("how", ["close", "with", "drop", "expire"])
def test_ten_thousand_snapshots_leave_nothing_behind(
    tmp_path: Path, clock: Clock, how: str
) -> None:
    # Not compacting: a look at the journal holds a snapshot of its own, and this clock runs fast.
    with opened(
        tmp_path / "s", monotonic=clock, max_open_files=8, compact_every_seconds=None
    ) as store:
        _ten_thousand(store, clock, how)


def _ten_thousand(store: octavo.Store, clock: Clock, how: str) -> None:
    put_all(store, "old")
    flush(store)

    def some(count: int) -> None:
        for number in range(count):
            if how == "with":
                with store.snapshot() as snap:
                    assert snap.get("000") is not None
                continue
            snap = store.snapshot(lease_seconds=5)
            assert snap.get("000") is not None
            if how == "close":
                snap.close()
            elif how == "expire":
                clock.now += 5
                leaked.append(snap)
            if number % 500 == 0:
                put_all(store, f"{number}")
                flush(store)
                leaked.clear()

    leaked: list[octavo.Snapshot] = []
    some(1000)
    gc.collect()
    settle(store)
    open_before, files_before = len(descriptors(store.path)), len(ledger_files(store))
    tracemalloc.start()
    try:
        some(1)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        some(10_000)
        leaked.clear()
        gc.collect()
        store.snapshot().close()
        flush(store)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert store.stats()["snapshots"] == 0
    assert pending(store) == 0
    assert abs(len(descriptors(store.path)) - open_before) <= 8
    assert len(ledger_files(store)) <= files_before + 8
    # What the pool has not come to yet is some of it; an object for each would be more.
    assert grown < 60 * 10_000, f"{grown} bytes more than before"


def test_snapshots_that_live_hold_one_table_and_one_manifest(store: octavo.Store) -> None:
    put_all(store, "old")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        held = [store.snapshot() for _ in range(10_000)]
        each = (tracemalloc.get_traced_memory()[0] - before) / len(held)
    finally:
        tracemalloc.stop()
    assert each < 3000, f"{each:.0f} bytes a snapshot"
    for snap in held:
        snap.close()
    assert store.stats()["snapshots"] == 0


def test_its_cost_does_not_grow_with_the_store(tmp_path: Path) -> None:
    def cost(store: octavo.Store) -> tuple[int, int]:
        """Lines of Python and bytes, each the least of some snapshots."""
        lines = min(lines_of(lambda: store.snapshot().close()) for _ in range(7))
        return lines, min(peak_of(lambda: store.snapshot().close()) for _ in range(7))

    def peak_of(call: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with opened(tmp_path / "small", push_rows=1 << 20) as small:
        small.put("k", b"v")
        lines, size = cost(small)
    with opened(tmp_path / "large", push_rows=1 << 20, push_bytes=1 << 30) as large:
        large.put_many((b"%07d" % i, b"v" * 10) for i in range(200_000))
        large._running.bookie.call(Bookie.push)
        settle(large)
        large.put_many((b"%07d" % i, b"v" * 10) for i in range(0, 200_000, 2))
        more_lines, more_size = cost(large)
    # A copy of 100,000 rows takes so many lines, or megabytes.
    assert more_lines < lines + 100
    assert more_size < size + 100_000


def test_it_copies_no_table(store: octavo.Store) -> None:
    put_all(store, "old")
    view = store._bookie.view
    with store.snapshot() as one, store.snapshot() as two:
        assert one._shared.view is view
        assert two._shared.view is view


def test_a_snapshot_says_what_it_is_of(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"v")
        with store.snapshot() as snap:
            assert repr(snap) == "<octavo.Snapshot at sqn 1>"
            assert repr(snap.bucket("b")) == "<octavo.SnapshotBucket b'b' at sqn 1>"
