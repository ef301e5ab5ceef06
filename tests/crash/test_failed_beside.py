"""An fsync that fails, in no turn, while a turn is in the midst of something."""

from __future__ import annotations

import errno

import pytest
from look import clock_ms
from one_thread import forget, one_thread, opened
from simdisk import SimDisk
from whole_store import rolled

import octavo


def test_a_file_that_was_begun_meanwhile_takes_no_write() -> None:
    disk = SimDisk()
    with one_thread("rolled"):
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"1")

        def fails(operation: str) -> None:
            if operation == "create":  # of the next file
                disk.before = None
                disk.fail("sync", 1, errno.EIO)
                with pytest.raises(octavo.StorageFailed, match="fsync failed"):
                    store.sync()

        disk.before = fails
        rolled(store)
        assert disk.before is None
        with pytest.raises(octavo.StorageFailed, match="reopen"):
            store.put(b"b", b"2")
        assert dict(store.items()) == {b"a": b"1"}
        forget(store)


@pytest.mark.parametrize("durable", [False, True])
def test_where_the_journal_failed_elsewhere_a_sync_goes_well_for_what_was_durable_alone(
    durable: bool,
) -> None:
    disk = SimDisk()
    with one_thread("elsewhere") as pool:
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"1")
        rolled(store)
        store.put(b"b", b"2", sync=durable)
        disk.fail("write", 1, errno.EIO)  # of the manifest, as the first file is entered there
        pool.go_on()
        if durable:
            store.sync()
        else:
            for _ in range(2):
                with pytest.raises(octavo.StorageFailed, match="manifest"):
                    store.sync()
        assert dict(store.items()) == {b"a": b"1", b"b": b"2"}
        forget(store)


@pytest.mark.parametrize("number", [1, 2], ids=["tables", "pointers"])
def test_a_sealing_that_could_not_sync_is_not_tried_again_in_the_same_place(number: int) -> None:
    """ext4 may write there once more, and read zeros later."""
    disk = SimDisk()
    with one_thread("sealing") as pool:
        store = opened(disk, clock_ms=clock_ms)
        store.put(b"a", b"1", sync=True)
        rolled(store)
        disk.fail("sync", number, errno.EIO)
        pool.go_on()
        for _ in range(2):
            with pytest.raises(octavo.StorageFailed, match="fsync failed"):
                store.put(b"b", b"2")
        with store.snapshot() as snap, pytest.raises(octavo.StorageFailed, match="fsync failed"):
            snap.publish()  # for which it would have to be sealed
        assert not [name for name in disk.listdir("/store/journal") if name.endswith(".cdb")]
        assert store[b"a"] == b"1"
        forget(store)
    with one_thread("again"):
        store = opened(disk.after_kill(), clock_ms=clock_ms)
        assert any("written anew" in note for note in store.stats()["notes"])
        assert store[b"a"] == b"1"
        assert store.verify().ok
        forget(store)
