"""An update of a head-only store's backup that loses power at any step: whoever looks at it then,
by opening, restoring or pinning, finds the state before it or the one after."""

from __future__ import annotations

import os

import pytest
from simdisk import MODES, SimCrash, SimDisk
from whole_store import opened

import octavo
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.opening import shutdown
from octavo.files.ledger.bounds import HEAD_ROWS
from octavo.manifest import pinning
from octavo.pipeline.snapshot_files import SnapshotFiles

SEED = int(os.environ.get("OCTAVO_SEED", "20261125"))

Rows = dict[bytes, bytes]


def store_on(disk: SimDisk, path: str) -> octavo.Store:
    return opened(path, disk, mode="head_only")


def rows(store: octavo.Store) -> Rows:
    return {row.key: row.value for row in store.head_bucket("b").rows()}


def by_opening(disk: SimDisk) -> Rows:
    """Twice: the first opening, too, may be cut short behind what it recovered."""
    found = []
    for _ in range(2):
        backup = store_on(disk, "/b")
        found.append(rows(backup))
        assert backup.verify().ok
        shutdown.stop(backup._running)
    assert found[0] == found[1]
    return found[0]


def by_restoring(disk: SimDisk) -> Rows:
    restore_on(disk, "/b", "/r", sqn=None, time_ms=None, copy=False)
    store = store_on(disk, "/r")
    found = rows(store)
    shutdown.stop(store._running)
    return found


def by_pinning(disk: SimDisk) -> Rows:
    made = pinning.pin(disk, "/b", 60_000, 1000)
    found: Rows = {}
    for batch in SnapshotFiles(made.path, disk, lambda: 1000).batches(HEAD_ROWS):
        columns, metas = batch.columns, batch.columns.metas
        assert metas is not None
        for row in batch.rows.tolist():
            at, length = int(metas.starts[row]), int(metas.lengths[row])
            key = columns.ledger_key(row).partition(b"b\0\0")[2].partition(b"\0\0")[0]
            found[key] = metas.blob[at : at + length].tobytes()
    return found


@pytest.mark.usefixtures("small_reserve")
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_leaves_the_backup_before_or_the_one_after(mode: str) -> None:
    print(f"OCTAVO_SEED={SEED}")
    crashes, seen = 0, set()
    while True:
        disk = SimDisk()
        store = store_on(disk, "/store")
        bucket = store.head_bucket("b")
        for n in range(30):
            bucket.put(b"k%d" % (n % 10), b"old %d" % n)
        store.backup("/b")
        before = rows(store)
        for n in range(30):
            bucket.put(b"k%d" % (n % 7), b"new %d" % n)
        store.trim()
        bucket.put(b"k3", b"in no ledger yet")
        after = rows(store)
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            store.backup("/b")
            break
        except (SimCrash, octavo.OctavoError):
            found = by_opening(disk.after_crash(mode, SEED + crashes))
            assert by_restoring(disk.after_crash(mode, SEED + crashes)) == found
            assert by_pinning(disk.after_crash(mode, SEED + crashes)) == found
        assert found in (before, after)
        seen.add(found == after)
        crashes += 1
    assert seen == {False, True}
