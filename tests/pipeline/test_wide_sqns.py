"""A store whose sequence numbers pass 2**32 has ledger files with sqns of four and of eight bytes
side by side: whatever reads them says the same of both."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from whole_store import SEED, flush, killed, opened

import octavo
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.ledger_key import STANDARD, after
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.file_order import rows_of_files, unmerged
from octavo.pipeline.snapshot_files import SnapshotFiles

FAR = 1 << 32
_TAG = bytes((STANDARD,))
ROWS = Bounds(b"", _TAG, after(_TAG), False)
SCHEMA = pa.schema([("key", pa.binary()), ("sqn", pa.int64())])


class Known(NamedTuple):
    """What was put last of a key, and which entry the index has of it."""

    sqn: int
    value: bytes
    term: int


def width_of_each(store: octavo.Store) -> set[int]:
    ledger = store._bookie.view.ledger
    return {entry.file.reader().sqns.itemsize for level in ledger.levels for entry in level}


@pytest.fixture
def store_and_known(tmp_path: Path) -> Iterator[tuple[octavo.Store, dict[bytes, Known]]]:
    """A store with one file of each width, which have many keys in common."""
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED)
    known: dict[bytes, Known] = {}

    def put(store: octavo.Store, number: int) -> None:
        key, value, term = b"%04d" % number, b"%d" % rng.getrandbits(40), rng.randrange(10_000)
        known[key] = Known(store.put(key, value, index={"f": [term]}), value, term)

    with opened(tmp_path / "first") as store:
        for number in range(300):
            put(store, number)
        flush(store)
        inker = store._inker
        inker.enter()
        try:
            inker._reserve(FAR)
        finally:
            inker.leave()
        killed(store, tmp_path / "s")
    with opened(tmp_path / "s") as store:
        for number in rng.sample(range(400), 200):
            put(store, number)
        for number in range(0, 300, 7):
            store.delete(b"%04d" % number)
            known.pop(b"%04d" % number, None)
        flush(store)
        assert width_of_each(store) == {4, 8}
        assert min(each.sqn for each in known.values()) < FAR < store.last_sqn
        yield store, known


def agrees(store: octavo.Store, known: dict[bytes, Known]) -> None:
    keys = sorted(known)
    sqns = [known[key].sqn for key in keys]
    assert [(key, bytes(value)) for key, value in store.items()] == [
        (key, known[key].value) for key in keys
    ]
    for key in keys:
        head = store.head(key)
        assert head is not None
        assert (store.get(key), head.sqn) == (known[key].value, known[key].sqn)
    assert [(key, head.sqn) for key, head in store.heads()] == list(zip(keys, sqns, strict=True))
    assert sorted(store.index("f").range()) == sorted((known[key].term, key) for key in keys)
    with store.snapshot() as snapshot:
        table = snapshot.to_arrow(columns=["key", "sqn"]).read_all()
        assert table.schema.field("sqn").type == pa.uint64()
        assert (table["key"].to_pylist(), table["sqn"].to_pylist()) == (keys, sqns)
        found = [head.sqn for _, _, head in snapshot.heads_by_sqn()]
        assert found == sorted(sqns)
    assert store.verify().ok


def test_all_reads_agree_beside_each_other_merged_and_rebuilt(
    tmp_path: Path, store_and_known: tuple[octavo.Store, dict[bytes, Known]]
) -> None:
    store, known = store_and_known
    agrees(store, known)
    with store.snapshot() as snapshot:
        tree = snapshot.merkle()
    store.backup(tmp_path / "backup")
    store.compact()
    agrees(store, known)
    octavo.restore(tmp_path / "backup", tmp_path / "restored")
    shutil.rmtree(tmp_path / "restored/ledger")
    with opened(tmp_path / "restored") as rebuilt:
        agrees(rebuilt, known)
        flush(rebuilt)
        with rebuilt.snapshot() as snapshot:
            assert snapshot.merkle().to_bytes() == tree.to_bytes()


def test_spark_reads_the_same_in_any_order(
    store_and_known: tuple[octavo.Store, dict[bytes, Known]],
) -> None:
    store, known = store_and_known
    files = SnapshotFiles(store.snapshot().publish().path)
    merged = list(record_batches(files, files.batches(ROWS), SCHEMA, checksums=True))
    by_file = [
        batch
        for part in rows_of_files(files, ROWS, 0)
        for batch in record_batches(files, unmerged(files, part), SCHEMA, checksums=True)
    ]
    wanted = sorted((key, each.sqn) for key, each in known.items())
    for batches in (merged, by_file):
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        assert sorted(rows) == wanted
