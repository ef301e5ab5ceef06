"""What reads hold of keys, metadata and values is bounded by their bytes, however few they are."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from whole_store import flush, opened

import octavo

MIB = 1 << 20
READS: dict[str, Callable[[octavo.Snapshot], Iterable[object]]] = {
    "keys": lambda snap: snap.bucket("").keys(),
    "keys backwards": lambda snap: snap.bucket("").keys(reverse=True),
    "items": lambda snap: snap.bucket("").items(),
    "heads": lambda snap: snap.bucket("").heads(),
    "items by sqn": lambda snap: snap.items_by_sqn(),
    "heads by sqn": lambda snap: snap.heads_by_sqn(),
}


def held_by(read: Callable[[], Iterable[object]]) -> int:
    """The most that was in memory while all of it was read."""
    deque(read(), 0)  # what is made once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        deque(read(), 0)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def roomy(path: Path) -> octavo.Store:
    return opened(path, push_rows=1 << 16, push_bytes=1 << 30, roll_size_bytes=1 << 30)


@pytest.fixture(scope="module")
def of_long_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[octavo.Store]:
    with roomy(tmp_path_factory.mktemp("keys") / "s") as store:
        for number in range(1000):
            store.put(b"%04d" % number + bytes(60_000), b"v")
        flush(store)
        yield store


@pytest.fixture(scope="module")
def of_much_metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[octavo.Store]:
    with roomy(tmp_path_factory.mktemp("metadata") / "s") as store:
        for number in range(60):
            store.put(b"%04d" % number, b"v", metadata=bytes(MIB))
        flush(store)
        yield store


@pytest.mark.parametrize("kind", READS)
def test_reads_hold_few_long_keys_at_a_time(of_long_keys: octavo.Store, kind: str) -> None:
    with of_long_keys.snapshot() as snap:
        held = held_by(lambda: READS[kind](snap))
    assert held < 24 * MIB, f"{held} bytes"


@pytest.mark.parametrize("kind", READS)
def test_reads_hold_little_metadata_at_a_time(of_much_metadata: octavo.Store, kind: str) -> None:
    with of_much_metadata.snapshot() as snap:
        held = held_by(lambda: READS[kind](snap))
    assert held < 8 * MIB, f"{held} bytes"


@pytest.mark.parametrize("kind", ["of_long_keys", "of_much_metadata"])
def test_comparing_holds_little_of_what_differs(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue(kind)
    with opened(tmp_path / "empty") as empty:
        held = held_by(lambda: octavo.compare(store, empty))
    assert held < 40 * MIB, f"{held} bytes"


@pytest.mark.parametrize("size", [100_000, 2 * MIB])
def test_items_by_sqn_hold_few_values_that_were_compressed_well(tmp_path: Path, size: int) -> None:
    with roomy(tmp_path / "s") as store:
        for number in range(40 * MIB // size):
            store.put(b"%04d" % number, bytes(size))
        with store.snapshot() as snap:
            held = held_by(snap.items_by_sqn)
    assert held < 10 * MIB, f"{held} bytes"


def test_index_queries_hold_few_entries_of_long_keys(tmp_path: Path) -> None:
    with roomy(tmp_path / "s") as store:
        for number in range(20):
            terms = [b"%03d" % term for term in range(100)]
            store.put(b"%02d" % number + bytes(30_000), b"v", index={"f": terms})
        flush(store)
        with store.snapshot() as snap:
            held = held_by(lambda: snap.bucket("").index("f").keys())
    assert held < 20 * MIB, f"{held} bytes"


def test_of_many_large_values_that_are_put_few_are_in_memory(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            store.put_many((b"%d" % number, bytes(MIB)) for number in range(100))
            assert tracemalloc.get_traced_memory()[1] - before < 8 * MIB
        finally:
            tracemalloc.stop()
        assert len(store) == 100
