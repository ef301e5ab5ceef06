"""What openings and backups took is given back: descriptors, threads, files.

Ten thousand snapshots: test_snapshot.py. Long form: scripts/campaign soak.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from pathlib import Path

from beside import until
from descriptors import descriptors
from whole_store import SMALL

import octavo


def files_of(place: Path) -> int:
    return sum(1 for file in place.rglob("*") if file.is_file())


def test_a_thousand_openings_and_a_hundred_backups_leave_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "resources-store", tmp_path / "resources-store-backup"

    def live(number: int) -> None:
        with octavo.open(path, **SMALL) as store:
            store.put_many((b"%d" % n, b"%d" % number) for n in range(20))
            assert store.get(b"7") == b"%d" % number
            if number % 10 == 0:
                store.compact()
                store.backup(copy)
        if number % 50 == 0:
            gc.collect()  # an error on the way may have left a cycle
            # A thread of the pool lets go of what it did last when it is about to wait for more.
            until(lambda: not descriptors(path), f"no descriptors after opening {number}")

    for number in range(100):  # until everything is loaded, and the store is as large as it gets
        live(number)
    gc.collect()
    threads = threading.active_count()
    for number in range(100, 800):
        live(number)
    tracemalloc.start()  # from now on an opening takes three times as long
    try:
        live(800)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(801, 1001):
            live(number)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("octavo-sync")]
    assert threading.active_count() <= threads + 8  # of the pool, which has an upper bound
    assert grown < 400_000, f"{grown} bytes more than before"
    assert files_of(path) < 80
    assert files_of(copy) < 80


def test_a_closed_store_leaves_nothing_behind(tmp_path: Path) -> None:
    gone: list[weakref.ref[object]] = []
    for number in range(3):
        store = octavo.open(tmp_path / "s", **SMALL)
        store.put_many((b"%d" % n, b"%d" % number) for n in range(300))
        with store.snapshot() as snapshot:
            assert snapshot.get(b"7") == b"%d" % number
        assert len(list(store.items())) == 300
        running = store._running
        actors = [running.inker, running.penciller, running.clerk, running.bookie]
        files = running.inker.actor.view.files
        gone += [weakref.ref(each) for each in (store, running.runner, *files)]
        gone += [weakref.ref(ref.actor) for ref in (*actors, running.inker_clerk)]
        store.close()
        del store, snapshot, running, actors, files
    # A thread of the pool lets go of what it did last when it is about to wait for more.
    for _ in range(1000):
        gc.collect()
        if not any(each() is not None for each in gone):
            break
        threading.Event().wait(0.02)
    assert [type(each()).__name__ for each in gone if each() is not None] == []


def test_what_was_read_goes_as_a_store_is_closed_before_any_collection(tmp_path: Path) -> None:
    gc.disable()
    try:
        with octavo.open(tmp_path / "s") as store:
            store.put_many((b"%02d" % number, bytes(1 << 19)) for number in range(40))
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for number in range(40):
                    store.get(b"%02d" % number)
                for _ in range(5):
                    list(store.items(start=b"10", limit=5))
                assert tracemalloc.get_traced_memory()[0] - before > 10 << 20
                store.close()
                assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
            finally:
                tracemalloc.stop()
    finally:
        gc.enable()
