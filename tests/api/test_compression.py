"""The option ``compression``: what is stored, and that any setting reads all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import octavo

TEXT = b"a value that shrinks, and shrinks, and shrinks. " * 100


def journal_bytes(store: octavo.Store) -> int:
    journal = store.stats()["journal"]
    return int(journal["sealed_bytes"] + journal["active_bytes"])


def test_values_are_compressed_unless_it_is_switched_off(tmp_path: Path) -> None:
    sizes = {}
    for setting in ("lz4", "none"):
        with octavo.open(tmp_path / setting, compression=setting) as store:
            for n in range(50):
                store.put(b"%d" % n, TEXT)
            assert store.get(b"7") == TEXT
            assert store.head(b"7").size == len(TEXT)
            sizes[setting] = journal_bytes(store)
    assert sizes["lz4"] < sizes["none"] / 5
    assert sizes["none"] > 50 * len(TEXT)


def test_a_switch_of_compression_leaves_all_values_readable(tmp_path: Path) -> None:
    wanted = {}
    for turn, setting in enumerate(["lz4", "none", "lz4", "none"]):
        with octavo.open(tmp_path / "s", compression=setting) as store:
            for n in range(100):
                key = b"%d" % (n + 60 * turn)
                wanted[key] = TEXT + b"%d" % turn
                store.put(key, wanted[key])
            assert dict(store.items()) == wanted
            store.compact()
            assert dict(store.items()) == wanted
            assert store.verify().ok


def test_compaction_compresses_what_the_put_did_not(tmp_path: Path) -> None:
    short = TEXT[:1000]  # too small to be worth it while the caller waits
    with octavo.open(tmp_path / "s") as store:
        for turn in range(2):
            for n in range(200):
                store.put(b"%d" % n, short + b"%d" % turn)
        store.compact()
        assert store.stats()["journal"]["sealed_bytes"] < 200 * len(short) / 2
        assert all(store.get(b"%d" % n) == short + b"1" for n in range(200))


def test_a_setting_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match="compression='zip'"):
        octavo.open(tmp_path / "s", compression="zip")
