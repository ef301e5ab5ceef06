"""Puts that say more than key and value: one record holds all of it, whichever are given."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from whole_store import opened

import octavo
from octavo.files.wall_clock import YEAR_10000_MS

FAR_MS = 1 << 47
VALUES = {"short": b"v" * 20, "compressed": b"a value that shrinks. " * 300}
GIVEN: dict[str, Any] = {
    "metadata": b"\x00m\xff",
    "expires_at": FAR_MS,
    "index": {"city": ["aa", "b\x00b"], b"n\x00": [7, -1]},
}


def seen(bucket: octavo.Bucket, key: bytes) -> tuple[Any, ...]:
    head = bucket.head(key)
    return bucket.get(key), head.metadata, head.expires_at, head.size, bucket.index_of(key)


def of_index(bucket: octavo.Bucket) -> list[tuple[Any, bytes]]:
    return [*bucket.index("city").range(), *bucket.index(b"n\x00").range()]


def test_a_moment_of_which_no_datetime_tells_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        with pytest.raises(octavo.Misuse, match=r"beyond the year 9999.*leave it out"):
            store.put("a", "1", expires_at=YEAR_10000_MS)
        store.put("a", "1", expires_at=YEAR_10000_MS - 1)
        store.put("b", "1", expires_at=datetime.max.replace(tzinfo=UTC))
        with store.snapshot() as snapshot:
            rows = [row for batch in snapshot.to_arrow() for row in batch.to_pylist()]
        assert [row["expires_at"].year for row in rows] == [9999, 9999]


@pytest.mark.parametrize("moment", [0, -1, datetime(1970, 1, 1, tzinfo=UTC)])
def test_a_moment_that_would_stand_for_never_is_refused(tmp_path: Path, moment: Any) -> None:
    with opened(tmp_path / "s") as store:
        with pytest.raises(octavo.Misuse, match="expires_at="):
            store.put("a", "1", expires_at=moment)
        with store.batch() as batch, pytest.raises(octavo.Misuse, match="expires_at="):
            batch.put("", "a", "1", expires_at=moment)
        assert store.get("a") is None
        store.put("a", "1", expires_at=1)
        assert store.get("a") is None


@pytest.mark.parametrize("name", [b"", b"b\x00ucket"])
def test_every_choice_of_options_comes_back_now_and_after_a_reopening(
    tmp_path: Path, name: bytes
) -> None:
    expected: dict[bytes, tuple[Any, ...]] = {}
    indexed = []
    with opened(tmp_path / "s", push_rows=1 << 17) as store:
        bucket = store.bucket(name)
        for chosen in product((False, True), repeat=len(GIVEN)):
            said = {key: GIVEN[key] for key, take in zip(GIVEN, chosen, strict=True) if take}
            for kind, value in VALUES.items():
                key = f"{kind} {chosen}".encode()
                bucket.put(key, value, if_sqn=0, **said)
                expected[key] = (
                    value,
                    said.get("metadata", b""),
                    said.get("expires_at"),
                    len(value),
                    {b"city": ["aa", "b\x00b"], b"n\x00": [-1, 7]} if "index" in said else {},
                )
                indexed += [key] * ("index" in said)
        entries = [(term, key) for term in ("aa", "b\x00b", -1, 7) for key in sorted(indexed)]
        assert {key: seen(bucket, key) for key in expected} == expected
        assert of_index(bucket) == entries
    with opened(tmp_path / "s") as store:
        bucket = store.bucket(name)
        assert {key: seen(bucket, key) for key in expected} == expected
        assert of_index(bucket) == entries
        assert store.verify().problems == []


def test_a_snapshot_keeps_what_a_put_with_options_replaces(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"1", metadata=b"m1", index={"f": "a"})
        with store.snapshot() as snap:
            store.put("k", b"2", metadata=b"m2", index={"f": "a"})
            store.put("k", b"3", ttl=1000)
            assert snap.get("k") == b"1"
            assert snap.head("k").metadata == b"m1"
            assert list(snap.index("f").range()) == [("a", b"k")]
        assert store.get("k") == b"3"
        assert list(store.index("f").range()) == []


def test_a_condition_that_does_not_hold_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        first = store.put("k", b"1", metadata=b"m")
        with pytest.raises(octavo.Conflict):
            store.put("k", b"2", if_sqn=0)
        with pytest.raises(octavo.Conflict):
            store.put("k", b"2", metadata=b"n", if_sqn=first + 1)
        with pytest.raises(octavo.Conflict):
            store.delete("k", if_sqn=first + 1)
        assert (store.last_sqn, store.get("k")) == (first, b"1")
        assert store.put("k", b"2", if_sqn=first) == first + 1
        assert store.delete("k", if_sqn=first + 1) == first + 2
        assert store.get("k") is None
