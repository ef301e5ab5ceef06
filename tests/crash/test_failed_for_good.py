"""A store that failed, in whatever way, takes nothing more, by whatever way it would come."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from look import clock_ms
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.files.journal import cdb
from octavo.manifest.unsynced import UNSYNCED

MANIFEST = "/store/journal/manifest"
FIRST = random.Random(1).randbytes(8000)


def files(disk: SimDisk) -> dict[str, bytes]:
    """All but the mark of a failed fsync."""
    return {path: found for path, found in disk.files().items() if not path.endswith(UNSYNCED)}


def at_a_write(store: octavo.Store, disk: SimDisk, pool: HeldPool) -> None:
    disk.fail("pwrite", 1, errno.EIO)
    with pytest.raises(octavo.StorageFailed):
        store.put(b"b", b"v")


def at_a_sync(store: octavo.Store, disk: SimDisk, pool: HeldPool) -> None:
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(octavo.StorageFailed):
        store.sync()


def at_a_sync_of_what_was_rolled(store: octavo.Store, disk: SimDisk, pool: HeldPool) -> None:
    rolled(store)
    at_a_sync(store, disk, pool)


def at_its_manifest(store: octavo.Store, disk: SimDisk, pool: HeldPool) -> None:
    rolled(store)
    pool.go_on(1)  # the file is sealed
    disk.fail("write", 1, errno.EIO)  # and to be entered
    pool.go_on()


def taken_over(store: octavo.Store, disk: SimDisk, pool: HeldPool) -> None:
    """Somebody else writes the next file of the manifest."""
    log = store._inker.change_log
    rolled(store)
    log._file, file = None, log._file
    assert file is not None
    file.close()
    disk.create(f"{MANIFEST}/{log.epoch:016x}-00000002.log").close()
    pool.go_on()


def several(store: octavo.Store) -> None:
    with store.batch() as batch:
        batch.put("x", b"b", b"v")
        batch.put("y", b"b", b"v")


def several_with_metadata(store: octavo.Store) -> None:
    with store.batch() as batch:
        batch.put("x", b"b", b"v", metadata=b"m")
        batch.put("y", b"b", b"v")


def too_much_for_this_file(store: octavo.Store) -> None:
    with store.batch() as batch:
        batch.put("x", b"b", FIRST[::-1], metadata=b"m")
        batch.put("y", b"b", b"v")


WAYS: dict[str, Callable[[octavo.Store], object]] = {
    "put": lambda store: store.put(b"b", b"v"),
    "put with metadata": lambda store: store.put(b"b", b"v", metadata=b"m"),
    "put if": lambda store: store.put(b"a", b"v", if_sqn=1),
    "put_many": lambda store: store.put_many([(b"b", b"v"), (b"c", b"v")]),
    "delete": lambda store: store.delete(b"a"),
    "delete_many": lambda store: store.delete_many([b"a"]),
    "batch": several,
    "batch with metadata": several_with_metadata,
    "large batch": too_much_for_this_file,
    "backup": lambda store: store.backup("/backup"),
}


@pytest.mark.parametrize(
    "fails", [at_a_write, at_a_sync, at_a_sync_of_what_was_rolled, at_its_manifest, taken_over]
)
@pytest.mark.parametrize("way", WAYS)
def test_a_store_that_failed_takes_nothing_more(
    fails: Callable[[octavo.Store, SimDisk, HeldPool], None],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cdb, "MAX_FILE_BYTES", 24_000)
    disk = SimDisk()
    with one_thread("failed") as pool:
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", FIRST)
        fails(store, disk, pool)
        before = files(disk)
        for _ in range(2):
            with pytest.raises((octavo.StorageFailed, octavo.Fenced)):
                WAYS[way](store)
            pool.go_on()
        assert files(disk) == before
        assert dict(store.items()) == {b"a": FIRST}
        forget(store)
