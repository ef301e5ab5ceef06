"""The tables that say at once where a key's newest row is: whatever they say, a read is right."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from at_once import AtOnce
from whole_store import flush, opened, rolled, settle

import octavo
from octavo.actors.reading import guide, plain_reads
from octavo.actors.scanning import index_scan
from octavo.files.errors import Corruption
from octavo.manifest.ledger_manifest import LedgerManifest

SEED = 20261122
KEYS = [b"key-%03d" % number for number in range(300)]
BUCKETS = (b"", b"b", b"docs")
Values = dict[tuple[bytes, bytes], bytes]


@pytest.fixture(autouse=True, params=[0, 64], ids=["many buckets", "few buckets"])
def most_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """No pool; so many buckets of a file are each a part of the table for heads."""
    monkeypatch.setattr(guide, "POOL", AtOnce())
    monkeypatch.setattr(guide, "_MOST_GROUPS", request.param)
    return int(request.param)


def made(store: octavo.Store) -> guide.Guide:
    """The guide of the store's view, with all of its tables."""
    for level in store._bookie.view.ledger.levels:
        for entry in level:
            entry.file.reader().ensure_whole()
    found = store._bookie.view.guide
    found.wanted()
    found.wanted(heads=True)
    return found


def by_steps(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keys whose values are sought by asking the places, from now on."""
    asked: list[bytes] = []
    real = plain_reads._sqn_by_steps

    def noted(steps: tuple[guide.Step, ...], h32: int, ledger_key: bytes) -> int:
        asked.append(ledger_key)
        return real(steps, h32, ledger_key)

    monkeypatch.setattr(plain_reads, "_sqn_by_steps", noted)
    return asked


def churn(store: octavo.Store, known: Values, rng: random.Random, metadata: bytes) -> None:
    """Puts of every kind and deletes, of the same keys in some buckets."""
    for _ in range(200):
        name, key = rng.choice(BUCKETS), rng.choice(KEYS)
        bucket, value = store.bucket(name), key + rng.randbytes(8)
        kind = rng.randrange(8)
        known[name, key] = value
        if kind == 0:
            bucket.delete(key)
            del known[name, key]
        elif kind == 1:
            known[name, key] = value * 300
            bucket.put(key, value * 300)  # is compressed
        elif kind == 2:
            bucket.put(key, value, ttl=1e6)
        elif kind == 3:
            with store.batch() as batch:
                batch.put(name, key, value)
        elif kind == 4:
            bucket.put(key, value, index={"field": rng.randrange(9)}, metadata=metadata)
        else:
            bucket.put(key, value)


@pytest.mark.parametrize("metadata", [b"", b"some"])
@pytest.mark.parametrize("bits", [0, 4, 22])
@pytest.mark.parametrize("rounds", [1, 3, 9])
def test_reads_are_right_however_many_rows_share_a_slot(
    rounds: int, bits: int, metadata: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr(guide, "_LEAST_BITS", 0)
    monkeypatch.setattr(guide, "_DIRECT_BITS", bits)
    known: Values = {}
    rng = random.Random(SEED)
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        for _ in range(rounds):
            churn(store, known, rng, metadata)
            flush(store)
        heads = {name: list(map(store.bucket(name).head, KEYS)) for name in BUCKETS}
        entries = {name: list(store.bucket(name).index("field").range()) for name in BUCKETS}
        tables = made(store)
        assert len(tables.sqns[0]) == len(tables.rows[0]) <= 1 << bits
        for name in BUCKETS:
            bucket = store.bucket(name)
            expected = [known.get((name, key)) for key in KEYS]
            assert list(map(bucket.get, KEYS)) == expected == bucket.get_many(KEYS)
            assert list(map(bucket.head, KEYS)) == heads[name]
            assert list(bucket.index("field").range()) == entries[name]
            with store.snapshot() as snap:
                assert snap.bucket(name).get_many(KEYS) == expected
                assert list(map(snap.bucket(name).head, KEYS)) == heads[name]


def test_an_index_query_asks_no_file_where_the_table_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = index_scan._Files.open

    def noted(self: index_scan._Files, number: int) -> index_scan._Opened:
        asked.append(number)
        return real(self, number)

    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for number in range(200):
            store.put(b"%d" % number, b"", index={"field": number % 40})
        flush(store)
        store.put(b"7", b"", index={"field": 8})  # of those of 7 and 8 in memory
        store.delete(b"48")
        made(store)
        monkeypatch.setattr(index_scan._Files, "open", noted)
        assert list(store.index("field").having(6)) == [b"126", b"166", b"46", b"6", b"86"]
        assert list(store.index("field").having(7)) == [b"127", b"167", b"47", b"87"]
        assert list(store.index("field").having(8)) == [b"128", b"168", b"7", b"8", b"88"]
        assert not asked
        flush(store)  # a newer file, and the table is of the older one
        assert list(store.index("field").having(7)) == [b"127", b"167", b"47", b"87"]
        assert asked


def test_most_values_are_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"%d" % number for number in range(1000)]
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.put_many((key, b"value " * 600 * (number % 2)) for number, key in enumerate(keys))
        flush(store)
        made(store)
        asked = by_steps(monkeypatch)
        assert all(len(store.get(key) or b"") in (0, 3600) for key in keys)
        # Fixed keys have fixed hashes: nothing here is left to chance.
        assert len(asked) < len(keys) // 5


def test_a_value_in_the_file_that_is_being_written_is_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.put(b"k", b"value")
        flush(store)
        made(store)
        asked = by_steps(monkeypatch)
        assert store.get(b"k") == b"value"
        assert not asked


def test_most_heads_are_found_at_once(
    tmp_path: Path, most_groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [b"%d" % number for number in range(1000)]
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        for name in BUCKETS:
            store.bucket(name).put_many((key, key) for key in keys)
        flush(store)
        tables = made(store)
        slots, _, parts = tables.rows
        assert len({part[0] for part in parts if part}) == (len(BUCKETS) if most_groups else 1)
        assert sum(map(bool, slots.tolist())) > len(BUCKETS) * len(keys) * 4 // 5
        for name in BUCKETS:
            assert all(head and head.size == len(key) for key, head in
                       zip(keys, map(store.bucket(name).head, keys), strict=True))  # fmt: skip


@pytest.mark.parametrize("metadata", [b"", b"some"])
def test_what_expires_is_found_at_once_until_it_has(
    metadata: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000]
    values = {b"%d" % number: b"value " * 600 * (number % 2) for number in range(300)}
    with opened(tmp_path / "s", clock_ms=lambda: clock[0], read_cache_bytes=1 << 20) as store:
        for key, value in values.items():
            store.put(key, value, ttl=10, metadata=metadata)
        flush(store)
        made(store)
        asked = by_steps(monkeypatch)
        with store.snapshot() as snap:
            clock[0] = 1_009_999
            for key, value in values.items():
                assert store.get(key) == value
                assert (head := store.head(key))
                assert head[2:] == (metadata, 1_000_000, 1_010_000)
            assert len(asked) < len(values) // 5
            clock[0] = 1_010_000
            for key, value in values.items():
                assert store.get(key) is store.head(key) is None
                assert snap.get(key) == value  # as of its own moment
                assert snap.head(key)


def test_a_delete_is_known_without_a_look_into_the_journal(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        put = store.put(b"k", b"value")
        deleted = store.delete(b"k")
        flush(store)
        slots, _ = made(store).sqns
        assert not {put, deleted} & set(slots.tolist())
        assert store.get(b"k") is None


def test_heads_of_deleted_keys_are_told_by_their_rows(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        sqn = store.put(b"k", b"value", metadata=b"said")
        store.put(b"gone", b"value")
        flush(store)
        store.delete(b"gone")
        flush(store)
        made(store)
        assert store.head(b"gone") is None
        assert (head := store.head(b"k"))
        assert head[:3] == (sqn, 5, b"said")


def test_a_key_of_another_bucket_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide, "_LEAST_BITS", 0)
    monkeypatch.setattr(guide, "_DIRECT_BITS", 0)  # one slot for all
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        store.bucket("b").put(b"cd", b"of b")
        flush(store)
        made(store)
        for name in map(str, range(100)):  # the byte that says "absent" stands for most of them
            assert store.bucket(name).get(b"cd") is None
            assert store.bucket(name).head(b"cd") is None
        assert store.bucket("bc").get(b"d") is None
        assert store.bucket("b").get(b"cd") == b"of b"


def test_an_index_entry_never_leads_to_the_record_it_was_put_with(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        first = store.put(b"k", b"old", index={"field": [1, 2, 3]})
        flush(store)
        store.put(b"k", b"new")
        flush(store)
        slots, _ = made(store).sqns
        assert first not in slots.tolist()
        assert store.get(b"k") == b"new"


def test_index_entries_of_another_type_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide, "_LEAST_BITS", 0)
    monkeypatch.setattr(guide, "_DIRECT_BITS", 0)  # one slot for all
    with opened(tmp_path / "s", tags={"note": octavo.Tag()}) as store:
        notes = store.bucket("b", tag="note")
        notes.put(b"k", b"", index={"field": 1})
        flush(store)
        made(store)
        assert list(notes.index("field").having(1)) == [b"k"]
        assert list(store.bucket("b").index("field").having(1)) == []


def test_numbers_that_need_more_than_32_bits_are_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"value")
        flush(store)
        made(store)
        ledger = store._bookie.view.ledger
        entry = ledger.levels[0][0]
        sst = entry.file.reader()
        step = (None, entry.file, 1 << 33, ())
        slots, _ = guide._sqns((step,), [[sst]], 1)
        assert [sqn - (1 << 33) for sqn in slots.tolist() if sqn] == sst.sqns.tolist()


def test_of_a_ledger_of_too_many_rows_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide, "MOST_DIRECT_ROWS", 9)
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"value") for number in range(10))
        flush(store)
        tables = made(store)
        assert not any(tables.sqns[0])
        assert tables.rows[0].tolist() == [1]  # every key is to be asked for
        assert store.get(b"7") == b"value"


def test_damage_of_a_record_found_at_once_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s", read_cache_bytes=0)
    with store:
        store.put(b"k", b"the value of it")
        store.put(b"other", b"value")
        flush(store)
        rolled(store)
        settle(store)
    (sealed,) = (tmp_path / "s/journal").glob("*.cdb")
    data = sealed.read_bytes()
    sealed.write_bytes(data.replace(b"the value of it", b"the value of me"))
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        tables = made(store)
        assert any(tables.sqns[0])
        assert store.get(b"other") == b"value"  # the file is open from then on
        asked = by_steps(monkeypatch)
        with pytest.raises(Corruption):
            store.get(b"k")
        assert asked


def test_a_query_waits_for_no_other_thread_that_looks_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor, for ever, does a child that is forked then."""
    begun, go_on = threading.Event(), threading.Event()
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"v", index={"f": 1})
        flush(store)
        index = store.index("f")
        real = LedgerManifest.overlapping

        def overlapping(*args: Any) -> Any:
            if threading.current_thread() is first:
                begun.set()
                go_on.wait(60)
            return real(*args)

        monkeypatch.setattr(LedgerManifest, "overlapping", overlapping)
        first, second = (threading.Thread(target=lambda: list(index.having(1))) for _ in range(2))
        first.start()
        assert begun.wait(60)
        second.start()
        second.join(5)
        waits = second.is_alive()
        go_on.set()
        first.join(60)
        second.join(60)
        assert not waits
