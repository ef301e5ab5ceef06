"""Scans of values that stand in more journal files than the process may have open."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from whole_store import flush, opened, rolled, settle

import octavo
from octavo.actors import penciller, penciller_clerk
from octavo.files.journal.cdb import RECORDS_AT
from octavo.files.journal.journal_windows import RecordSums

SEED = int(os.environ.get("OCTAVO_SEED", "20261126"))
FILES = 90
KINDS: dict[str, tuple[int, Callable[[random.Random], bytes]]] = {
    "small": (120, lambda r: r.randbytes(r.randrange(30))),
    "compressed": (24, lambda r: r.randbytes(9) * 400),
    "large": (2, lambda r: r.randbytes(30_000)),
}


@contextmanager
def few_descriptors() -> Iterator[None]:
    """50 more than there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(map(int, os.listdir("/dev/fd")))
    free = [number for number in range(1000) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[50], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def all_of(store: octavo.Store) -> list[tuple[str, Callable[[], dict[bytes, bytes]]]]:
    def arrow() -> dict[bytes, bytes]:
        with store.snapshot() as snap:
            found = snap.to_arrow(["key", "value"], batch_rows=4000).read_all()
            return dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))

    def by_sqn() -> dict[bytes, bytes]:
        with store.snapshot() as snap:
            return {item.key: item.value for item in snap.items_by_sqn()}

    return [("items", lambda: dict(store.items())), ("arrow", arrow), ("by sqn", by_sqn)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("together", [True, False])
def test_they_keep_no_more_maps_than_there_may_be(
    tmp_path: Path, kind: str, *, together: bool
) -> None:
    """Keys of one file stand ``together`` in the order of keys, or each in another part of it."""
    print(f"OCTAVO_SEED={SEED}")
    rows, value = KINDS[kind]
    source, wanted = random.Random(SEED), {}
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for number in range(FILES):
            for row in range(rows):
                first, second = (number, row) if together else (row, number)
                key = b"%04d-%04d" % (first, second)
                wanted[key] = value(source)
                store.put(key, wanted[key])
            rolled(store)
    with opened(tmp_path / "s", max_open_files=8) as store:
        settle(store)  # or what is merged meanwhile, in this process, takes some, too
        with few_descriptors():
            found = [(name, read() == wanted) for name, read in all_of(store)]
    assert found == [("items", True), ("arrow", True), ("by sqn", True)]


def test_nor_do_queries_of_an_index_keep_more_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    for module in (penciller, penciller_clerk):
        monkeypatch.setattr(module, "MAX_FILE_ROWS", 64)
    numbers = list(range(6000))
    random.Random(SEED).shuffle(numbers)
    with opened(tmp_path / "s", push_rows=4096) as store:
        for row, number in enumerate(numbers):
            store.put(b"%04d" % row, b"v", index={"f": number})
        flush(store)
    with opened(tmp_path / "s", max_open_files=8) as store:
        levels = store._running.penciller.actor.manifest.levels
        assert sum(map(len, levels)) > 150
        with few_descriptors():
            found = [number for number, _ in store.index("f").range()]
        assert found == sorted(numbers)


def test_what_was_seen_of_a_file_stays_seen_under_another_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(200):
            store.put(b"%d" % number, b"v" * 500)
        rolled(store)
    path = next((tmp_path / "s/journal").glob("*.cdb"))
    again = bytearray(path.read_bytes())
    sums = RecordSums(path.read_bytes(), int(path.stem.rpartition("-")[2], 16))
    starts, ends = np.array([RECORDS_AT]), np.array([100_000])
    assert not sums.vouch_for(starts, ends), "not looked at, it costs more than a record"
    sums._see(np.arange(len(sums._state)))
    assert sums.vouch_for(starts, ends)
    sums.let_go()
    assert not len(sums.mapped)
    sums.read_from(bytes(again))
    monkeypatch.setattr(RecordSums, "_see", None)  # no window is looked at again
    assert sums.vouch_for(starts, ends)
