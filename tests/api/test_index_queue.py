"""Who takes keys from an end of an index, as from a queue, does not step over all that was taken;
whatever is put there afterwards is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import seeded
from whole_store import Clock, flush, opened

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.scanning import empty_ranges, index_scan, short_scans

COUNT = 300


def filled(store: octavo.Store, **options: Any) -> octavo.Bucket:
    bucket = store.bucket("q")
    for number in range(COUNT):
        bucket.put(b"%04d" % number, b"v", index={"due": number}, **options)
    return bucket


def take(bucket: octavo.Bucket, count: int, *, reverse: bool = False) -> list[bytes]:
    out = []
    for _ in range(count):
        (key,) = bucket.index("due").keys(limit=1, reverse=reverse)
        bucket.delete(key)
        out.append(key)
    return out


def counting(find: Callable[..., list[int]], found: list[int]) -> Callable[..., list[int]]:
    def counted(*told: Any) -> list[int]:
        rows = find(*told)
        found.append(len(rows))
        return rows

    return counted


def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many objects are looked up from now on, call by call."""
    looked: list[int] = []
    newest = index_scan._Objects.newest

    def counted(self: Any, keys: list[bytes], sqns: list[int]) -> list[int]:
        looked.append(len(keys))
        return newest(self, keys, sqns)

    monkeypatch.setattr(index_scan._Objects, "newest", counted)
    return looked


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("where", ["memory", "the ledger"])
@pytest.mark.parametrize("ttl", [None, 3600])
def test_a_pop_looks_up_few_entries_however_many_were_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, reverse: bool, ttl: int | None
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        bucket = filled(store, ttl=ttl)
        if where == "the ledger":
            flush(store)
        taken = take(bucket, 200, reverse=reverse)
        keys = [b"%04d" % number for number in range(COUNT)]
        assert taken == (keys[::-1] if reverse else keys)[:200]
        looked = looked_up(monkeypatch)
        assert take(bucket, 1, reverse=reverse) == [keys[99] if reverse else keys[200]]
    assert sum(looked) <= 200  # the first step is of 16, the next of 128


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("where", ["memory", "the ledger"])
def test_a_query_steps_over_entries_that_expired_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, reverse: bool
) -> None:
    clock = Clock(1_700_000_000_000)
    dead: list[int] = []
    with opened(tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=1 << 16) as store:
        bucket = filled(store, ttl=1)
        bucket.put(b"b", b"", index={"due": -1 if reverse else COUNT})
        if where == "the ledger":
            flush(store)
        for name in "dead_entries", "dead_rows":
            monkeypatch.setattr(short_scans, name, counting(getattr(short_scans, name), dead))
        clock.now += 5000
        query = bucket.index("due")
        assert list(query.keys(limit=1, reverse=reverse)) == [b"b"]
        assert COUNT <= (once := sum(dead)) <= COUNT + 16  # which are seen to be few rows first
        assert list(query.keys(limit=1, reverse=reverse)) == [b"b"]
        assert sum(dead) == once
        clock.now -= 5000
        assert len(list(query.keys(reverse=reverse))) == COUNT + 1


@pytest.mark.parametrize("where", ["memory", "frozen memory", "the ledger"])
def test_what_expires_elsewhere_does_not_have_a_pop_look_up_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for name in b"p", b"r":  # on both sides
            store.bucket(name).put(b"k", b"v", index={"due": 1}, ttl=3600)
        bucket = filled(store)
        if where == "the ledger":
            flush(store)
        elif where == "frozen memory":
            store._bookie.clerk = None
            store._bookie.actor_ref.call(Bookie.push)
        take(bucket, 200)
        looked = looked_up(monkeypatch)
        assert take(bucket, 1) == [b"0200"]
    assert sum(looked) <= 200


@pytest.mark.parametrize("reverse", [False, True])
def test_where_more_entries_than_a_turn_looks_at_were_taken_a_few_queries_step_over_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    monkeypatch.setattr(empty_ranges, "_MOST_ENTRIES", 50)
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        bucket = filled(store)
        keys = [b"%04d" % number for number in range(COUNT)]
        left = keys[90:110]
        bucket.delete_many(key for key in keys if key not in left)
        looked = looked_up(monkeypatch)
        wanted = left[::-1] if reverse else left
        for _ in range(5):
            assert list(bucket.index("due").keys(limit=1, reverse=reverse)) == wanted[:1]
        looked.clear()
        assert list(bucket.index("due").keys(limit=1, reverse=reverse)) == wanted[:1]
        assert sum(looked) <= 16
        assert list(bucket.index("due").keys(reverse=reverse)) == wanted


WRITES: dict[str, Callable[[octavo.Store, bytes], object]] = {
    "a put": lambda store, key: store.bucket("q").put(key, b"", index={"due": int(key)}),
    "a large put": lambda store, key: store.bucket("q").put(
        key, bytes(1 << 20), index={"due": int(key)}
    ),
    "a put that expires": lambda store, key: store.bucket("q").put(
        key, b"", index={"due": int(key)}, ttl=1000
    ),
    "an edit": lambda store, key: store.bucket("q").put(
        key, b"", index=octavo.IndexEdit(add={"due": int(key)})
    ),
    "another key": lambda store, key: store.bucket("q").put(
        b"x" + key, b"", index={"due": int(key)}
    ),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("key", [b"0000", b"0050", b"0099"])
def test_an_entry_that_is_put_where_all_were_taken_is_found(
    tmp_path: Path, how: str, key: bytes
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, push_bytes=1 << 30) as store:
        bucket = filled(store)
        take(bucket, 200)
        with store.snapshot() as before:
            WRITES[how](store, key)
            wanted = [b"x" + key if how == "another key" else key, b"0200"]
            assert list(bucket.index("due").keys(limit=2)) == wanted
            assert list(bucket.index("due").keys(reverse=True))[-2:] == wanted[::-1]
            assert next(iter(before.bucket("q").index("due").keys())) == b"0200"


def test_an_entry_of_a_batch_is_found(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        bucket = filled(store)
        take(bucket, 200)
        with store.batch() as batch:
            batch.put("q", b"0007", b"", index={"due": 7})
        assert list(bucket.index("due").keys(limit=2)) == [b"0007", b"0200"]


def test_entries_of_another_type_among_those_that_were_taken_are_found(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, tags={"note": octavo.Tag()}) as store:
        bucket = filled(store)
        notes = store.bucket("q", tag="note")
        notes.put(b"n", b"", index={"due": 60})
        take(bucket, 200)
        assert list(bucket.index("due").keys(limit=1)) == [b"0200"]
        assert list(notes.index("due").keys()) == [b"n"]


@pytest.mark.parametrize("where", ["memory", "frozen memory", "the ledger"])
@pytest.mark.parametrize("at_once", [False, True])
def test_entries_that_expired_are_found_when_the_clock_goes_back(
    tmp_path: Path, where: str, at_once: bool
) -> None:
    clock = Clock(1_700_000_000_000)
    with opened(
        tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=1 << 16, push_bytes=1 << 30
    ) as store:
        bucket = filled(store)
        bucket.put(b"a", b"", index={"due": 60}, ttl=1)
        if where == "the ledger":
            flush(store)
        elif where == "frozen memory":
            store._bookie.clerk = None
            store._bookie.actor_ref.call(Bookie.push)
        clock.now += 5000
        if at_once:
            bucket.delete_many(b"%04d" % number for number in range(200))
            take(bucket, 1)
        else:
            take(bucket, 200)
        clock.now -= 5000
        assert list(bucket.index("due").keys(limit=1)) == [b"a"]


@pytest.mark.parametrize("pushed", [False, True])
def test_an_entry_that_is_put_again_while_a_query_runs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pushed: bool
) -> None:
    no_entries = Bookie.no_entries
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        bucket = filled(store)
        missing = [5, 400]

        def late(self: Bookie, *told: Any) -> None:
            if missing and pushed:
                self.actor_ref.call(Bookie.push)
            while missing:
                number = missing.pop()
                bucket.put(b"%04d" % number, b"", index={"due": 5})
            no_entries(self, *told)

        bucket.delete_many(b"%04d" % number for number in range(100))
        monkeypatch.setattr(Bookie, "no_entries", late)
        assert list(bucket.index("due").keys(limit=50)) == [
            b"%04d" % number for number in range(100, 150)
        ]  # as of its beginning
        assert not missing
        assert list(bucket.index("due").keys(limit=2)) == [b"0005", b"0400"]


@pytest.mark.parametrize("number", range(6))
def test_queries_are_right_whatever_is_put_and_taken(tmp_path: Path, number: int) -> None:
    rng = seeded(f"index queue {number}")
    model: dict[bytes, int] = {}
    noted = 0
    with opened(tmp_path / "s", push_rows=400, push_bytes=1 << 30) as store:
        bucket = store.bucket("q")
        for _ in range(1200):
            key, due = b"%03d" % rng.randrange(300), rng.randrange(100)
            match rng.randrange(12):
                case 0 | 1 | 2 | 3:
                    bucket.put(key, b"", index={"due": due})
                    model[key] = due
                case 4:
                    bucket.put(key, b"")
                    model.pop(key, None)
                case 5:
                    flush(store) if rng.random() < 0.1 else None
                case 6:
                    with store.batch() as batch:
                        batch.put("q", key, b"", index={"due": due})
                    model[key] = due
                case _:
                    reverse = rng.random() < 0.5
                    wanted = sorted(((term, at) for at, term in model.items()), reverse=reverse)
                    some = rng.choice((1, 5, None))
                    found = list(bucket.index("due").range(limit=some, reverse=reverse))
                    assert found == wanted[:some]
                    for _, at in found[: rng.choice((1, 30))]:
                        bucket.delete(at)
                        del model[at]
            noted += bool(store._bookie.empty_ranges.lows)
    assert noted


@pytest.mark.parametrize("number", range(6))
def test_queries_are_right_whatever_expires_and_however_the_clock_goes(
    tmp_path: Path, number: int
) -> None:
    rng = seeded(f"index queue that expires {number}")
    clock = Clock(1_700_000_000_000)
    model: dict[bytes, tuple[int, int]] = {}
    noted = 0
    with opened(
        tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=400, push_bytes=1 << 30
    ) as store:
        bucket = store.bucket("q")
        for _ in range(1200):
            key, due = b"%03d" % rng.randrange(300), rng.randrange(100)
            now = store._bookie.view.ledger.now_ms(int(clock.now))
            match rng.randrange(12):
                case 0 | 1 | 2 | 3 | 4:
                    ttl = rng.choice((1, 5, None))
                    bucket.put(key, b"", index={"due": due}, ttl=ttl)
                    model[key] = (due, now + 1000 * ttl if ttl else 1 << 60)
                case 5:
                    flush(store) if rng.random() < 0.1 else None
                case 6 | 7:
                    clock.now += rng.choice((-1500, -300, 100, 500, 2500))
                case _:
                    reverse = rng.random() < 0.5
                    alive = [(due, key) for key, (due, ends) in model.items() if ends > now]
                    wanted = sorted(alive, reverse=reverse)
                    some = rng.choice((1, 5, None))
                    found = list(bucket.index("due").range(limit=some, reverse=reverse))
                    assert found == wanted[:some]
                    for _, at in found[: rng.choice((1, 30))]:
                        bucket.delete(at)
                        del model[at]
            noted += any(moment for _, _, moment in store._bookie.empty_ranges._ranges.values())
    assert noted
