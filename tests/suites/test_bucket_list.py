"""Listing buckets: those that hold a key, once each, in order, however many keys they hold."""

from __future__ import annotations

from pathlib import Path

from beside import LITTLE, Beside, seeded

import octavo


def listed(beside: Beside) -> None:
    expected = sorted({bucket for bucket, _ in beside.content})
    assert list(beside.store.buckets()) == expected
    with beside.store.snapshot() as snapshot:
        assert list(snapshot.buckets()) == expected


def test_a_thousand_buckets_come_and_go(tmp_path: Path) -> None:
    rng = seeded("buckets")
    names = sorted({rng.randbytes(rng.randrange(12)) for _ in range(1000)})
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for name in rng.sample(names, len(names)):
            beside.put(name, b"k", b"v")
        listed(beside)
        for name in rng.sample(names, len(names) // 2):
            beside.delete(name, b"k")
        listed(beside)
        beside.reopen()
        listed(beside)
        for name in names[::7]:
            beside.put(name, b"again", b"v")
        listed(beside)


def test_buckets_of_many_keys_are_listed_once(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for name in (b"", b"a", b"a\x00", b"a\x00\x00", b"b", b"\xff" * 100):
            beside.put_many(name, [(b"%04d" % number, b"v") for number in range(400)])
        listed(beside)
        beside.store.compact()
        listed(beside)


def test_a_listing_is_of_one_moment(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store") as store:
        for number in range(50):
            store.bucket(b"%02d" % number).put("k", "v")
        listing = store.buckets()
        first = next(listing)
        for number in range(50):
            store.bucket(b"%02d" % number).delete("k")
        assert [first, *listing] == [b"%02d" % number for number in range(50)]
        assert list(store.buckets()) == []


def test_the_first_bucket_is_found_behind_thousands_of_deletes(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for number in range(2000):
            beside.put(b"dead", b"%04d" % number, b"v")
        beside.put(b"live", b"k", b"v")
        for number in range(2000):
            beside.delete(b"dead", b"%04d" % number)
        assert next(beside.store.buckets()) == b"live"
