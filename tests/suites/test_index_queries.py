"""Index queries, small and large: few keys of many terms, many keys of few terms, any range."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pytest
from whole_store import SEED, flush, opened

import octavo

COUNT = 6000
PLACES = ["memory", "ledger", "both", "overwritten"]


@pytest.fixture(scope="module", params=PLACES)
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[octavo.Bucket, dict[str, list[tuple[Any, bytes]]]]]:
    """A bucket, and the pairs of each of its fields in order."""
    rng = random.Random(SEED)
    place = request.param
    options = {"push_rows": 1 << 20, "push_bytes": 1 << 30} if place == "memory" else {}
    model: dict[bytes, dict[str, Any]] = {}
    with opened(tmp_path_factory.mktemp("index") / "s", **{"push_rows": 4000, **options}) as store:
        bucket = store.bucket("b")
        rounds = 2 if place == "overwritten" else 1
        for number in range(rounds * COUNT):
            key = b"key%05d" % (rng.randrange(COUNT) if number >= COUNT else number)
            entries = {
                "unique": number, "few": f"t{number % 7}", "day": b"2026-%03d" % (number % 366),
            }  # fmt: skip
            bucket.put(key, b"v", index=entries)
            model[key] = entries
            if number % 1000 == 0 and place == "overwritten":
                bucket.delete(b"key%05d" % (number % COUNT))
                model.pop(b"key%05d" % (number % COUNT), None)
        if place == "ledger":
            flush(store)
        pairs = {
            field: sorted((entries[field], key) for key, entries in model.items())
            for field in ("unique", "few", "day")
        }
        yield bucket, pairs


def test_random_ranges_of_any_size(filled: tuple) -> None:
    bucket, pairs = filled
    rng = random.Random(SEED + 1)
    index, unique = bucket.index("unique"), pairs["unique"]
    for width in [1, 10, 10, 100, 100, 1000, 5000] * 3:
        low = rng.randrange(-10, 2 * COUNT)
        found = unique[bisect_left(unique, (low,)) : bisect_left(unique, (low + width,))]
        reverse = rng.random() < 0.5
        wanted = found[::-1] if reverse else found
        assert list(index.range(low, low + width, reverse=reverse)) == wanted
        assert list(index.range(low, low + width, reverse=reverse, limit=9)) == wanted[:9]
        assert list(index.keys(low, low + width)) == [key for _, key in found]


def test_whole_fields_and_all_keys_of_a_term(filled: tuple) -> None:
    bucket, pairs = filled
    for field, wanted in pairs.items():
        index = bucket.index(field)
        assert list(index.range()) == wanted
        assert list(index.range(reverse=True)) == wanted[::-1]
        terms = sorted({term for term, _ in wanted})
        assert [term for term, _ in index.terms()] == terms
        for term in terms[:8]:
            assert list(index.having(term)) == [key for other, key in wanted if other == term]


def test_pages_of_large_answers(filled: tuple) -> None:
    bucket, pairs = filled
    index, wanted = bucket.index("few"), pairs["few"]
    for reverse in (False, True):
        found: list = []
        while page := list(
            index.range(limit=700, after=found[-1] if found else None, reverse=reverse)
        ):
            found += page
        assert found == (wanted[::-1] if reverse else wanted)


def test_terms_that_match(filled: tuple) -> None:
    bucket, pairs = filled
    wanted = [pair for pair in pairs["day"] if pair[0].endswith(b"7")]
    assert list(bucket.index("day").range(match=b"7$")) == wanted
    assert list(bucket.index("few").range("t2", "t5", match="[34]")) == [
        pair for pair in pairs["few"] if pair[0] in ("t3", "t4")
    ]
