"""What scans have stepped over is not looked at again; whatever comes to live there is found."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import seeded, until
from staged_rows import StagedRow, operations

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.memory_table import MemoryTable
from octavo.actors.scanning import empty_ranges, short_scans
from octavo.actors.scanning.empty_ranges import EmptyRanges
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter

NAMES = [b"%03d" % at for at in range(600)]


@pytest.mark.parametrize("first", [0, 1], ids=["below", "above"])
def test_of_ranges_that_become_one_none_is_left_out_before_its_moment(first: int) -> None:
    """Or a clock that is set back would not show again what lived there then."""
    ranges = [(b"a", b"c", 500), (b"c", b"e", 0)]
    for turn in (ranges, [(low, high, 500 - moment) for low, high, moment in ranges]):
        empty = EmptyRanges()
        for sqn, (low, high, moment) in enumerate((turn[first], turn[1 - first]), 1):
            empty.note(low, high, sqn, moment)
        assert empty.left(b"a", b"z", 9, 499, reverse=False) == (b"a", b"z")
        assert empty.left(b"a", b"z", 9, 500, reverse=False) == (b"e", b"z")


@pytest.mark.parametrize("number", range(20))
def test_only_what_is_empty_for_a_reader_is_left_out(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rng = seeded(f"emptied {number}")
    monkeypatch.setattr(empty_ranges, "_MOST", rng.choice([1, 3, 4096]))
    empty = EmptyRanges()
    since: dict[bytes, tuple[int, int]] = {}  # sqn and moment, of a key
    for sqn in range(1, 400):
        low, high = sorted(rng.sample(NAMES, 2))
        match rng.choice(["note", "take back", "take back", "forget"]):
            case "note":
                high = min(high, b"%03d" % (int(low) + rng.choice([1, 10, 100])))
                moment = rng.choice([0, rng.randrange(400)])
                empty.note(low, high, sqn, moment)
                for name in NAMES:
                    if low <= name < high:
                        before = since.get(name, (sqn, moment))
                        since[name] = before[0], min(before[1], moment)
                assert empty.left(low, b"999", sqn, 400, reverse=False)[0] >= high
                assert empty.left(b"", high, sqn, 400, reverse=True)[1] <= low
            case "take back":
                empty.take_back(low)
                since.pop(low, None)
            case _ if rng.random() < 0.2:
                empty.forget_unused()
        assert empty.lows == sorted(set(empty.lows))
        for upper in (sqn, rng.randrange(sqn + 1)):
            for reverse in (False, True):
                low, high = sorted(rng.sample(NAMES, 2))
                now_ms = rng.randrange(400)
                begin, end = empty.left(low, high, upper, now_ms, reverse)
                gone = [at for at in NAMES if low <= at < high and not begin <= at < end]
                assert all(since[name][0] <= upper for name in gone)
                assert all(since[name][1] <= now_ms for name in gone)


@pytest.mark.parametrize(("length", "most"), [(5, 4096), (300, 256)])
def test_there_are_at_most_so_many_ranges(length: int, most: int) -> None:
    empty = EmptyRanges()
    for number in range(5000):
        empty.note(b"%05d" % number, b"%05d5" % number, 1, 0)
    for number in range(5000 if length == 5 else 10):
        name = b"%0*d" % (length, number)
        empty.note(name, name + b"5", 1, 0)
    assert len(empty.lows) == most
    assert empty.left(name, name + b"6", 1, 0, reverse=False) == (name + b"5", name + b"6")


@pytest.mark.parametrize(("length", "most"), [(5, 4096), (300, 256)])
def test_of_a_range_that_much_is_put_into_no_more_parts_are_kept(length: int, most: int) -> None:
    empty = EmptyRanges()
    names = [b"%0*d" % (length, number) for number in range(1, 9000)]
    empty.note(names[0], names[-1], 1, 0)
    for name in names[::2]:
        empty.take_back(name)
    assert len(empty.lows) == most
    for name in names[::2]:  # each of them lives
        assert empty.left(name, name + b"\x00", 1, 0, reverse=False) == (name, name + b"\x00")


def test_a_range_that_no_scan_uses_is_forgotten() -> None:
    empty = EmptyRanges()
    empty.note(b"a", b"b", 1, 0)
    empty.note(b"c", b"d", 1, 0)
    empty.forget_unused()
    empty.left(b"a", b"z", 1, 0, reverse=False)
    empty.forget_unused()
    assert empty.lows == [b"a"]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keys of memory that scans looked at."""
    seen: list[bytes] = []
    slice_of = Bookie.slice

    def noted(
        self: Bookie, table: MemoryTable, low: bytes, high: bytes | None, most: int, reverse: bool
    ) -> list[bytes]:
        keys = slice_of(self, table, low, high, most, reverse)
        seen.extend(keys)
        return keys

    monkeypatch.setattr(Bookie, "slice", noted)
    return seen


@pytest.mark.parametrize("reverse", [False, True])
def test_what_was_taken_from_a_queue_is_not_looked_at_again(
    tmp_path: Path, looked_at: list[bytes], reverse: bool
) -> None:
    with octavo.open(tmp_path / "store") as store:
        names = [b"%05d" % at for at in range(3000)]
        store.put_many((name, b"") for name in names)
        for name in names[::-1] if reverse else names:
            assert next(store.keys(limit=1, reverse=reverse)) == name
            store.delete(name)
        assert not store
    assert len(looked_at) < 60 * len(names)  # 1,500 each where nothing is noted


def test_of_many_queues_what_was_taken_is_not_looked_at_again(
    tmp_path: Path, looked_at: list[bytes]
) -> None:
    queues = 400
    with octavo.open(tmp_path / "store") as store:
        names = [b"%03d/%03d" % (queue, at) for queue in range(queues) for at in range(202)]
        store.put_many((name, b"") for name in names)
        store.delete_many(name for name in names if name[4:] < b"200")
        for at in b"200", b"201":
            looked_at.clear()
            for queue in range(queues):
                name = next(store.keys(prefix=b"%03d/" % queue))
                assert name == b"%03d/%s" % (queue, at)
                store.delete(name)
    assert len(looked_at) < 20 * queues


def test_who_puts_into_a_range_and_takes_that_first_looks_at_little_of_the_range(
    tmp_path: Path, looked_at: list[bytes]
) -> None:
    rng = seeded("a queue by priority")
    with octavo.open(tmp_path / "store") as store:
        names = rng.sample(range(10**6), 5000)
        store.put_many((b"%06d" % name, b"") for name in names[:1000])
        left = sorted(names[:1000])
        for name in names[1000:]:
            first = next(store.keys())
            assert first == b"%06d" % left.pop(0)
            store.delete(first)
            store.put(b"%06d" % name, b"")
            insort(left, name)
    assert len(looked_at) < 60 * 4000


@pytest.mark.parametrize("reverse", [False, True])
def test_a_stack_is_put_to_and_taken_from_at_one_end(
    tmp_path: Path, looked_at: list[bytes], reverse: bool
) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((b"%05d" % at, b"") for at in range(2000))
        store.delete_many(b"%05d" % at for at in range(1, 1999))
        first = 1 if reverse else 1998
        for turn in range(500):
            name = b"%05d" % (first + turn if reverse else first - turn)
            store.put(name, b"")
            last = b"01999" if reverse else b"00000"
            store.delete(last)
            assert next(store.keys(limit=1, reverse=reverse)) == name
            store.put(last, b"")
            store.delete(name)
    assert len(looked_at) < 100 * 500


WRITES: dict[str, Callable[[octavo.Store, bytes], object]] = {
    "put": lambda store, key: store.put(key, b"new"),
    "a put of str": lambda store, key: store.put(key.decode(), "new"),
    "a put with metadata": lambda store, key: store.put(key, b"new", metadata=b"m"),
    "a put with an expiry": lambda store, key: store.put(key, b"new", ttl=1000),
    "a put with an index entry": lambda store, key: store.put(key, b"new", index={"a": 1}),
    "a put if it is absent": lambda store, key: store.put(key, b"new", if_sqn=0),
    "a large put": lambda store, key: store.put(key, b"new" + bytes(1 << 20)),
    "put_many": lambda store, key: store.put_many([(b"zz", b""), (b"zzz", b""), (key, b"new")]),
    "setdefault": lambda store, key: store.setdefault(key, b"new"),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("name", [b"100", b"1005", b"000", b"399"])
def test_what_is_put_where_all_was_deleted_is_found(tmp_path: Path, how: str, name: bytes) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((name, b"") for name in NAMES)
        store.delete_many(NAMES[:400])
        assert next(store.keys()) == b"400"
        WRITES[how](store, name)
        assert list(store.keys(limit=2)) == [name, b"400"]
        assert list(store.keys(end=b"401", reverse=True)) == [b"400", name]
        assert [key for key, _ in store.heads(limit=2)] == [name, b"400"]


def test_what_a_batch_puts_where_all_was_deleted_is_found(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        bucket = store.bucket("b")
        bucket.put_many((name, b"") for name in NAMES)
        bucket.delete_many(NAMES[:400])
        assert next(bucket.keys()) == b"400"
        with store.batch() as batch:
            batch.delete("b", b"400")
            batch.put("b", b"200", b"new")
        assert list(bucket.keys(limit=2)) == [b"200", b"401"]


def test_a_snapshot_of_before_the_deletes_gives_what_it_held(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((name, b"") for name in NAMES)
        with store.snapshot() as before:
            store.delete_many(NAMES[:400])
            assert next(store.keys()) == b"400"
            assert list(before.keys()) == NAMES
            assert [key for key, _ in before.heads()] == NAMES
            assert list(before.keys(reverse=True)) == NAMES[::-1]


def test_a_snapshot_of_before_a_put_does_not_see_it(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((name, b"") for name in NAMES)
        store.delete_many(NAMES[:400])
        with store.snapshot() as before:
            assert next(store.keys()) == b"400"
            store.put(b"200", b"")
            assert next(before.keys()) == b"400"
            assert next(store.keys()) == b"200"
            assert next(before.keys()) == b"400"
            assert next(store.keys()) == b"200"


@pytest.mark.parametrize("saved", [False, True])
def test_a_published_snapshot_is_read_where_all_was_deleted(tmp_path: Path, saved: bool) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((name, b"") for name in NAMES)
        store._bookie.actor_ref.call(Bookie.push)
        store.delete_many(NAMES[:400])
        if saved:
            store._bookie.actor_ref.call(Bookie.push)
            until(lambda: not store._bookie.view.frozen, "memory is saved")
        assert next(store.keys()) == b"400"
        with octavo.open(tmp_path / "store", read_only=True) as reader:
            assert list(reader.keys()) == NAMES[400:]
            assert list(reader.keys(reverse=True, limit=200)) == NAMES[:399:-1]
            assert [key for key, _ in reader.heads()] == NAMES[400:]


@pytest.mark.parametrize("name", [b"010", b"0105"])  # of the first few: told of by themselves
@pytest.mark.parametrize(
    "how", ["a put", "a put and a push", "a push and a put", "a put that expires"]
)
def test_what_is_put_while_a_scan_steps_over_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes, how: str
) -> None:
    stepped_over = Bookie.stepped_over
    with octavo.open(tmp_path / "store") as store:
        store.put_many((name, b"") for name in NAMES)
        store.delete_many(NAMES[:400])
        missing = [name]

        def late(self: Bookie, *told: object) -> None:
            while missing:
                if how == "a push and a put":
                    self.actor_ref.call(Bookie.push)
                store.put(missing.pop(), b"", ttl=1000 if how == "a put that expires" else None)
                if how == "a put and a push":
                    self.actor_ref.call(Bookie.push)
            stepped_over(self, *told)  # type: ignore[arg-type]

        monkeypatch.setattr(Bookie, "stepped_over", late)
        assert next(store.keys(limit=1)) == b"400"  # as of its beginning
        assert not missing
        assert next(store.keys(limit=1)) == name


def test_what_is_put_into_empty_memory_while_a_scan_looks_at_the_rest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_of = Bookie.slice
    with octavo.open(tmp_path / "store") as store:
        bookie, missing = store._bookie, [b"3505"]
        bookie.clerk = None  # frozen memory stays
        store.put_many((name, b"") for name in NAMES)
        store.delete_many(NAMES[:400])
        bookie.actor_ref.call(Bookie.push)

        def late(self: Bookie, *told: object) -> list[bytes]:
            while missing:
                store.put(missing.pop(), b"")
            return slice_of(self, *told)  # type: ignore[arg-type]

        monkeypatch.setattr(Bookie, "slice", late)
        assert next(store.keys(limit=1)) == b"400"  # as of its beginning
        assert not missing
        assert next(store.keys(limit=1)) == b"3505"


@pytest.mark.parametrize("where", ["memory", "frozen memory", "the ledger"])
def test_what_expired_is_looked_at_again_when_the_clock_is_set_back(
    tmp_path: Path, where: str
) -> None:
    with octavo.open(tmp_path / "store") as store:
        bookie = store._bookie
        clock_ms, clerk = bookie.clock_ms(), bookie.clerk
        for name in NAMES[:100]:
            store.put(name, b"", expires_at=clock_ms + 3_600_000)
        store.put_many((name, b"") for name in NAMES[100:])
        if where != "memory":
            bookie.clerk = clerk if where == "the ledger" else None
            bookie.actor_ref.call(Bookie.push)
            bookie.clerk = clerk
        if where == "the ledger":
            until(lambda: not bookie.view.frozen, "memory is saved")
        bookie.clock_ms = lambda: clock_ms + 7_200_000
        assert next(store.keys(limit=1)) == b"100"
        assert bookie.empty_ranges.lows
        bookie.clock_ms = lambda: clock_ms
        assert next(store.keys(limit=1)) == b"000"
        assert next(store.heads(limit=1))[0] == b"000"


@pytest.mark.parametrize("where", ["memory", "frozen memory", "the ledger"])
@pytest.mark.parametrize("reverse", [False, True])
def test_what_expired_is_stepped_over_but_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, reverse: bool
) -> None:
    with octavo.open(tmp_path / "store") as store:
        bookie = store._bookie
        clock_ms, clerk = bookie.clock_ms(), bookie.clerk
        names = [b"%04d" % at for at in range(5000)]
        living = names[0] if reverse else names[-1]
        for name in names:
            if name != living:
                store.put(name, b"", expires_at=clock_ms + 3_600_000)
        store.put(living, b"")
        if where != "memory":
            bookie.clerk = clerk if where == "the ledger" else None
            bookie.actor_ref.call(Bookie.push)
            bookie.clerk = clerk
        if where == "the ledger":
            until(lambda: not bookie.view.frozen, "memory is saved")
        bookie.clock_ms = lambda: clock_ms + 7_200_000
        judged = 0
        for of in "dead_entries", "dead_rows":
            judge = getattr(short_scans, of)

            def counted(*told: Any, judge: Any = judge) -> Any:
                nonlocal judged
                dead = judge(*told)
                judged += len(dead)
                return dead

            monkeypatch.setattr(short_scans, of, counted)
        assert next(store.keys(limit=1, reverse=reverse)) == living
        assert judged >= len(names) - 1
        judged = 0
        for _ in range(20):
            assert next(store.keys(limit=1, reverse=reverse)) == living
        assert judged <= 20 * 200
        middle = names[2000]
        store.put(middle, b"", expires_at=clock_ms + 8_000_000)
        assert next(store.keys(limit=1, reverse=reverse)) == middle
        bookie.clock_ms = lambda: clock_ms + 9_000_000
        assert next(store.keys(limit=1, reverse=reverse)) == living


def test_what_is_taken_in_where_all_was_deleted_is_found(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((name, b"") for name in NAMES)
        store.delete_many(NAMES[:400])
        assert next(store.keys()) == b"400"
        writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=1000)
        writer.add(operations([StagedRow(b"", b"200", b"came")]))
        writer.finish()
        store.ingest("j", ["0-0"])
        assert list(store.keys(limit=2)) == [b"200", b"400"]


@pytest.mark.parametrize("number", range(8))
def test_scans_beside_writes_give_what_a_dict_gives(tmp_path: Path, number: int) -> None:
    rng = seeded(f"emptied beside writes {number}")
    options = {"push_rows": rng.choice([64, 300, 100_000])}
    with octavo.open(tmp_path / "store", **options) as store:  # type: ignore[arg-type]
        buckets = [store.bucket(name) for name in (b"", b"b")]
        held: list[dict[bytes, bytes]] = [{}, {}]
        snapshots = []
        for turn in range(600):
            at = rng.randrange(2)
            bucket, of = buckets[at], held[at]
            value = b"%d" % turn
            low, high = sorted(rng.sample(NAMES, 2))
            match rng.randrange(9):
                case 0:
                    bucket.delete_many(name for name in NAMES if low <= name < high)
                    for name in NAMES:
                        if low <= name < high:
                            of.pop(name, None)
                case 1 | 2:
                    name = rng.choice(NAMES)
                    bucket.put(name, value)
                    of[name] = value
                case 3:
                    some = dict.fromkeys(rng.sample(NAMES, rng.choice([1, 5, 80])), value)
                    bucket.put_many(some)
                    of |= some
                case 4:
                    with store.batch() as batch:
                        batch.put(bucket.name, low, value)
                        batch.delete(bucket.name, high)
                    of[low] = value
                    of.pop(high, None)
                case 5 if len(snapshots) < 4:
                    snapshots.append((store.snapshot(), [dict(each) for each in held]))
                case 6 if snapshots:
                    snapshot, then = snapshots[rng.randrange(len(snapshots))]
                    found = list(snapshot.bucket(bucket.name).items(low, high))
                    wanted = sorted(then[at].items())
                    assert found == [pair for pair in wanted if low <= pair[0] < high]
                    if rng.random() < 0.3:
                        snapshots.pop()[0].close()
                case _:
                    while of and rng.random() < 0.8:  # from an end
                        reverse = rng.random() < 0.3
                        name = next(bucket.keys(limit=1, reverse=reverse))
                        assert name == (max if reverse else min)(of)
                        bucket.delete(name)
                        del of[name]
            assert next(bucket.keys(limit=1), None) == min(of, default=None)
            reverse = rng.random() < 0.5
            limit = rng.choice([1, 20, None])
            wanted = sorted((pair for pair in of.items() if low <= pair[0] < high), reverse=reverse)
            assert list(bucket.items(low, high, reverse=reverse, limit=limit)) == wanted[:limit]
        for snapshot, _ in snapshots:
            snapshot.close()
