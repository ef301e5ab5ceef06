"""Merges of many rows through several levels, while reads go on."""

from __future__ import annotations

from pathlib import Path

from beside import seeded, until

import octavo

COUNT = 150_000


def test_a_large_store_is_the_same_before_during_and_after_its_merges(tmp_path: Path) -> None:
    rng = seeded("merge")
    keys = [b"%08d" % number for number in range(COUNT)]
    order = rng.sample(keys, COUNT)
    with octavo.open(tmp_path / "store", push_rows=8192, roll_size_bytes=8 << 20) as store:
        for low in range(0, COUNT, 10_000):
            store.put_many((key, key[::-1]) for key in order[low : low + 10_000])
            for key in rng.sample(order[: low + 10_000], 50):
                assert store.get(key) == key[::-1]
            assert store.get(b"absent") is None
        with store.snapshot() as snapshot:
            store.put_many((key, b"x") for key in keys[::2])
            for key in keys[1::4]:
                store.delete(key)
            until(lambda: store.stats()["merging"]["level_zero_files"] < 4, "merges are done")
            assert store.stats()["ledger"]["rows_merged"] > COUNT
            assert list(snapshot.keys()) == keys
            assert all(snapshot.get(key) == key[::-1] for key in rng.sample(keys, 500))
        expected = dict.fromkeys(keys[::2], b"x")
        expected.update((key, key[::-1]) for key in keys[3::4])
        assert dict(store.items()) == expected
        levels = store.stats()["ledger"]["levels"]
        assert sum(level["rows"] for level in levels) >= len(expected) - 2 * 8192
        assert store.verify().ok
    with octavo.open(tmp_path / "store") as store:
        assert len(store) == len(expected)


def test_merges_of_rising_keys_move_files_instead_of_rewriting_them(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", push_rows=4096) as store:
        for low in range(0, 80_000, 4000):
            store.put_many((b"%08d" % number, b"v") for number in range(low, low + 4000))
        until(lambda: store.stats()["merging"]["waiting_tables"] == 0, "memory is saved")
        stats = store.stats()
        assert stats["ledger"]["bytes_written"] < 2 * max(stats["ledger"]["bytes"], 1)
        assert len(store) == 80_000
