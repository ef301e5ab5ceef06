"""All rows of the ledger in order: when they are put so, and what is left of it then."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path

import pytest
from one_thread import HeldPool
from whole_store import flush, opened, stretches, verified

import octavo
from octavo.actors.scanning import kept_scans, ledger_order
from octavo.actors.scanning.kept_scans import Stretches
from octavo.actors.scanning.ledger_order import LedgerOrder, files_of
from octavo.actors.scanning.scan_sources import CHUNK_BYTES
from octavo.files.ledger.bounds import of_bucket
from octavo.files.ledger.ledger_key import prefix
from octavo.files.ledger.sst_layout import Section

KEYS = [b"%05d" % at + b"x" * (at % 5) for at in range(3000)]
FRONT = prefix(0x6F, b"")
ROOMY = {"push_rows": 1 << 16, "push_bytes": 64 << 20, "read_cache_bytes": 8 << 20}
"""Nothing is pushed unless a test says so."""
END = FRONT[:-1] + b"\x01"


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> HeldPool:
    held = HeldPool()
    monkeypatch.setattr(kept_scans, "POOL", held)
    monkeypatch.setattr(kept_scans, "_LEAST_WINDOWS", 3)
    return held


def scan(store: octavo.Store, times: int) -> None:
    for at in range(times):
        assert list(islice(store.keys(KEYS[at * 30 % 2900]), 2)) != []


def searched_often(found: Stretches) -> None:
    for _ in range(100):
        found.searched(2)


def filled(path: Path, files: int, **options: object) -> octavo.Store:
    """A store of so many files of level zero, each with a part of the keys of every stretch."""
    store = opened(path, **{**ROOMY, **options})
    for number in range(files):
        store.put_many((key, b"v") for key in KEYS[number::files])
        flush(store)
    return store


def order_of(store: octavo.Store, kept_bytes: int = 1 << 20) -> LedgerOrder:
    verified(store)
    files = files_of(store._bookie.view.ledger, 1 << 30)
    assert files is not None
    return LedgerOrder(files, kept_bytes)


def test_rows_are_put_in_order_once_many_windows_were_merged(
    tmp_path: Path, pool: HeldPool
) -> None:
    with filled(tmp_path / "s", 2) as store:
        verified(store)
        for at in range(4):  # and a window for each 2,048 rows
            assert not pool.work
            list(store.keys(KEYS[at * 200], limit=1))
        assert len(pool.work) == 1
        assert stretches(store)._starts
        pool.go_on()
        found = stretches(store)
        assert found.order is not None
        assert not found._starts
        assert not found.bytes
        assert list(islice(store.keys(), 2000)) == KEYS[:2000]
        assert list(store.keys(KEYS[70], limit=3)) == KEYS[70:73]
        found.keep(FRONT, KEYS[:9], list(range(9)), FRONT + KEYS[9])  # as a scan that had begun
        assert not found._starts


def test_rows_are_put_in_order_once_at_a_time(tmp_path: Path, pool: HeldPool) -> None:
    with filled(tmp_path / "s", 2) as store:
        verified(store)
        for at in range(0, 2900, 60):  # while the pool has not come to it
            list(store.keys(KEYS[at], limit=1))
        assert len(pool.work) == 1


def test_rows_are_put_in_order_later_where_the_pool_had_no_memory_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: HeldPool
) -> None:
    def full(_: object) -> None:
        raise MemoryError

    with filled(tmp_path / "s", 2) as store:
        verified(store)
        found = stretches(store)
        with monkeypatch.context() as without:
            without.setattr(pool, "submit", full)
            with pytest.raises(MemoryError):
                searched_often(found)
        searched_often(found)
        assert len(pool.work) == 1
        pool.go_on()
        assert found.order is not None


def test_rows_of_files_that_are_not_verified_are_put_in_order_later(
    tmp_path: Path, pool: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path / "s", 2) as store:
        with monkeypatch.context() as patch:
            patch.setattr(kept_scans, "files_of", lambda *_, **__: None)  # as for such files
            for at in range(0, 900, 60):
                list(store.keys(KEYS[at], limit=1))
        assert not pool.work
        verified(store)
        for at in range(900, 2900, 60):
            list(store.keys(KEYS[at], limit=1))
        assert len(pool.work) == 1


def test_a_block_is_no_news_once_it_was_asked_for_twice(tmp_path: Path) -> None:
    with filled(tmp_path / "s", 2) as store:
        order = order_of(store)
        end = FRONT + b"\xff"
        news = []
        for _ in range(4):
            before = order.news
            order.above(FRONT, FRONT + KEYS[70], end, 20, 0)
            news.append(order.news - before)
        assert news == [1, 1, 0, 0]


def test_rows_of_files_that_do_not_overlap_are_put_in_order_sooner(
    tmp_path: Path, pool: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_scans, "_ROWS_A_WINDOW", 30)
    monkeypatch.setattr(kept_scans, "_ROWS_OF_ONE_RUN", 1000)
    with filled(tmp_path / "s", 1) as store:
        verified(store)
        for at in range(6):  # three, and a window for each 1,000 rows
            assert not pool.work
            list(store.keys(KEYS[at * 180], limit=1))
        assert len(pool.work) == 1
        pool.go_on()
        assert stretches(store).order is not None
        assert list(islice(store.keys(), 2000)) == KEYS[:2000]


def test_rows_of_one_of_several_files_are_put_in_order_after_four_times_as_many_windows(
    tmp_path: Path, pool: HeldPool
) -> None:
    with filled(tmp_path / "s", 1) as store:
        store.put(b"0", b"before all")
        flush(store)
        verified(store)
        for at in range(16):
            assert not pool.work
            list(store.keys(KEYS[at * 180], limit=1))
        assert len(pool.work) == 1
        pool.go_on()
        assert stretches(store).order is not None
        assert list(store.keys()) == [b"0", *KEYS]


@pytest.mark.parametrize("common", [0, 1], ids=["apart", "a key in two of them"])
def test_files_whose_keys_follow_one_another(tmp_path: Path, common: int) -> None:
    now = 1_700_000_000_000
    files: list[dict[bytes, list[bytes]]] = [
        {b"a": KEYS[1000 - common : 2000], b"b": KEYS[:500]},
        {b"": KEYS[:1000], b"a": KEYS[:1000]},
        {b"b": KEYS[500 - common : 1500]},
    ]
    live: dict[bytes, dict[bytes, int]] = {b"": {}, b"a": {}, b"b": {}}
    with opened(tmp_path / "s", clock_ms=lambda: now, **ROOMY) as store:
        for buckets in files:
            for name, keys in buckets.items():
                bucket, rows = store.bucket(name), live[name]
                for key in keys:
                    rows[key] = bucket.put(key, b"v")
                rows[keys[9]] = bucket.put(keys[9], b"v", ttl=10)
                bucket.delete(keys[8])
                del rows[keys[8]]
            flush(store)
        order = order_of(store)
        for name, rows in live.items():
            front = prefix(0x6F, name)
            keys, sqns, _, _ = order.above(front, front, front[:-1] + b"\x01", 5000, now)
            assert keys == sorted(rows)
            assert sqns == [rows[key] for key in keys]


def test_a_block_is_kept_from_the_second_time_on_that_it_is_asked_for(tmp_path: Path) -> None:
    with filled(tmp_path / "s", 2) as store:
        order = order_of(store)
        for kept in ([], [1], [1]):
            order.above(FRONT, FRONT + KEYS[70], END, 20, 0)
            assert list(order._blocks) == kept


def listed(store: octavo.Store, times: int) -> None:
    for _ in range(times):
        assert list(store.keys()) == KEYS


def test_rows_are_put_in_order_once_lists_have_merged_one_and_a_half_times_as_many(
    tmp_path: Path, pool: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_scans, "_LEAST_WINDOWS", 0)
    monkeypatch.setattr(kept_scans, "_ROWS_A_WINDOW", 100)
    monkeypatch.setattr(kept_scans, "_MERGED_A_WINDOW", 150)
    filled(tmp_path / "s", 2).close()
    with opened(tmp_path / "s", **ROOMY) as store:  # of whose files nothing is verified
        listed(store, 1)
        assert not pool.work
        listed(store, 1)
        assert len(pool.work) == 1
        pool.go_on()
        assert stretches(store).order is not None


def test_lists_of_one_file_put_nothing_in_order(tmp_path: Path, pool: HeldPool) -> None:
    with filled(tmp_path / "s", 1) as store:
        store.put(KEYS[0], b"in memory")
        listed(store, 50)
        assert not pool.work


def test_a_list_takes_its_keys_from_the_order_and_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_again(*_: object, **__: object) -> None:
        raise AssertionError("a ledger file is read")

    with filled(tmp_path / "s", 3) as store:
        stretches(store).order = order_of(store)
        store.delete(KEYS[2000])
        store.put(b"02500+", b"new")
        want = sorted({*KEYS, b"02500+"} - {KEYS[2000]})
        monkeypatch.setattr("octavo.actors.scanning.scan.file_chunks", read_again)
        assert list(store.keys()) == want
        assert list(store.keys(reverse=True)) == want[::-1]
        assert list(store.keys(KEYS[100], KEYS[2900])) == want[100:2900]
        assert list(store.keys(KEYS[100], KEYS[2900], reverse=True)) == want[2899:99:-1]


def test_damage_that_no_list_meets_puts_nothing_in_order(tmp_path: Path, pool: HeldPool) -> None:
    keys = [b"%06d" % at for at in range(60_000)]
    with opened(tmp_path / "s", **ROOMY) as store:
        for part in (keys[::2], keys[1::2]):
            store.put_many((key, b"") for key in part)
            flush(store)
        sst = store._bookie.view.ledger.levels[0][0].file.reader()
        path, (table, length) = sst.name, sst.layout.sections[Section.TABLE]
    with open(path, "r+b") as file:
        file.seek(table + length // 2)
        file.write(b"damaged")
    with opened(tmp_path / "s", **ROOMY) as store:
        for _ in range(5):
            assert list(store.keys()) == keys
        assert not pool.work
        assert not store.verify().ok


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_chunks_of_large_keys_have_fewer_rows(tmp_path: Path, reverse: bool) -> None:
    keys = [b"%04d" % at + b"x" * 12_000 for at in range(600)]
    with opened(tmp_path / "s", **ROOMY) as store:
        for part in (keys[::2], keys[1::2]):
            store.put_many((key, b"") for key in part)
            flush(store)
        bound = of_bucket(FRONT)._replace(reverse=reverse)
        chunks = [chunk.keys for chunk in order_of(store).chunks(bound, 96, 4)]
        assert max(sum(map(len, chunk)) for chunk in chunks) <= CHUNK_BYTES
        if reverse:
            chunks.reverse()
        assert list(chain.from_iterable(chunks)) == keys


def test_files_that_were_not_verified_are_left_alone(tmp_path: Path, pool: HeldPool) -> None:
    filled(tmp_path / "s", 2).close()
    with opened(tmp_path / "s", **ROOMY) as store:
        assert files_of(store._bookie.view.ledger, 1 << 30) is None
        for entry in store._bookie.view.ledger.levels[0]:
            entry.file.reader()  # which opens it
        assert files_of(store._bookie.view.ledger, 1 << 30) is None
        verified(store)
        assert files_of(store._bookie.view.ledger, 1 << 30) is not None


def test_rows_that_would_take_more_than_they_may_are_not_put_in_order(
    tmp_path: Path, pool: HeldPool
) -> None:
    with filled(tmp_path / "s", 2, read_cache_bytes=64 << 10) as store:
        verified(store)
        scan(store, 300)
        assert not pool.work


def test_a_ledger_of_many_buckets_is_not_put_in_order(
    tmp_path: Path, pool: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_order, "_MOST_GROUPS", 5)
    with opened(tmp_path / "s", **ROOMY) as store:
        for number in range(6):
            store.bucket(b"%d" % number).put(b"k", b"v")
        flush(store)
        verified(store)
        assert files_of(store._bookie.view.ledger, 1 << 30) is None


def test_a_new_state_of_the_ledger_has_no_order_yet(tmp_path: Path, pool: HeldPool) -> None:
    with filled(tmp_path / "s", 2) as store:
        verified(store)
        scan(store, 100)
        pool.go_on()
        store.put(KEYS[1], b"new")
        store.delete(KEYS[2])
        flush(store)
        assert stretches(store).order is None
        assert list(store.keys(limit=4)) == [KEYS[at] for at in (0, 1, 3, 4)]


def test_what_was_put_in_order_of_an_earlier_state_is_not_that_of_the_newest(
    tmp_path: Path, pool: HeldPool
) -> None:
    with filled(tmp_path / "s", 2) as store:
        verified(store)
        scan(store, 100)
        store.delete(KEYS[2])
        flush(store)
        pool.go_on()
        assert stretches(store).order is None
        assert list(store.keys(limit=3)) == [KEYS[at] for at in (0, 1, 3)]


def test_what_expires_is_in_order_until_then(tmp_path: Path, pool: HeldPool) -> None:
    now = 1_700_000_000_000
    with opened(tmp_path / "s", clock_ms=lambda: now, **ROOMY) as store:
        for number in range(2):
            for key in KEYS[number:600:2]:
                store.put(key, b"v", **({"ttl": 10} if number else {}))
            flush(store)
        verified(store)
        now += 9_999
        assert list(store.keys(limit=9)) == KEYS[:9]
        for at in range(0, 600, 10):
            list(store.keys(KEYS[at], limit=1))
        pool.go_on()
        assert stretches(store).order is not None
        assert list(store.keys()) == KEYS[:600]
        assert list(store.keys(reverse=True)) == KEYS[599::-1]
        now += 1
        assert list(store.keys()) == KEYS[:600:2]
        assert list(store.keys(reverse=True)) == KEYS[598::-2]


def test_where_all_has_expired_nothing_is_noted_for_a_clock_may_go_back(
    tmp_path: Path, pool: HeldPool
) -> None:
    now = 1_700_000_000_000
    with opened(tmp_path / "s", clock_ms=lambda: now, **ROOMY) as store:
        for number in range(2):
            for key in KEYS[number:100:2]:
                store.put(key, b"v", ttl=10)
            flush(store)
        stretches(store).order = order_of(store)
        now += 10_000
        assert list(store.keys()) == []
        now -= 10_000
        assert list(store.keys()) == KEYS[:100]


def test_rows_of_other_buckets_are_not_told(tmp_path: Path, pool: HeldPool) -> None:
    with opened(tmp_path / "s", **ROOMY) as store:
        names = [b"%d" % number for number in range(20)]
        for part in range(2):
            for number, name in enumerate(names):
                store.bucket(name).put_many((key, b"v") for key in KEYS[part : number * 9 : 2])
            flush(store)
        order = order_of(store)
        for number, name in enumerate(names):
            front, own = prefix(0x6F, name), KEYS[: number * 9]
            end = front[:-1] + b"\x01"
            found = order.above(front, front, end, 500, 0)
            assert (found[0], found[2:]) == (own, (front, end))
            found = order.below(front, front, end, 500, 0)
            assert (found[0], found[2:]) == (own, (front, end))
            few = order.above(front, front, end, 3, 0)[0]
            assert few == own[: len(few)]
            assert len(few) >= min(3, len(own))
            few = order.below(front, front, end, 3, 0)[0]
            assert few == own[len(own) - len(few) :]
            assert len(few) >= min(3, len(own))


@pytest.mark.parametrize("kept_bytes", [0, 30_000, 1 << 20])
def test_no_more_blocks_are_kept_than_there_is_room_for(tmp_path: Path, kept_bytes: int) -> None:
    with filled(tmp_path / "s", 2) as store:
        order = order_of(store, kept_bytes)
        for _ in range(2):
            for at in range(0, 2900, 50):
                for few in (1, 60, 200):
                    low = FRONT + KEYS[at]
                    keys = order.above(FRONT, low, END, few, 0)[0]
                    assert keys == KEYS[at : at + len(keys)]
                    assert len(keys) >= min(few, 3000 - at)
                    keys = order.below(FRONT, FRONT, low, few, 0)[0]
                    assert keys == KEYS[at - len(keys) : at]
                    assert len(keys) >= min(few, at)
                    assert len(order._blocks) == len(order._queue)
                    assert len(order._blocks) * 64 * 96 <= kept_bytes


def test_nothing_is_left_of_a_ledger_of_deletes(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **ROOMY) as store:
        store.put_many((key, b"v") for key in KEYS[:100])
        with store.snapshot():
            flush(store)
            for key in KEYS[:100]:
                store.delete(key)
            flush(store)
            order = order_of(store)
            assert order.above(FRONT, FRONT, END, 96, 0) == ([], [], FRONT, END)
            assert order.below(FRONT, FRONT, END, 96, 0) == ([], [], FRONT, END)
