"""A store of thousands of files: few threads, few descriptors, every value."""

from __future__ import annotations

import threading
from pathlib import Path

from descriptors import descriptors

import octavo

FILES = 1000
OPEN_FILES = 64


def test_a_store_of_a_thousand_files_needs_few_threads_and_descriptors(tmp_path: Path) -> None:
    threads = threading.active_count()
    with octavo.open(tmp_path / "s", worker=False, max_open_files=OPEN_FILES) as store:
        for i in range(FILES):
            store.put(b"k%d" % i, b"v%d" % i)
            store._inker.roll()
    with octavo.open(tmp_path / "s", max_open_files=OPEN_FILES) as store:
        assert store.stats()["journal"]["files"] >= FILES
        assert store.get_many(b"k%d" % i for i in range(FILES)) == [
            b"v%d" % i for i in range(FILES)
        ]
        assert threading.active_count() - threads < 20
        assert len(descriptors(store.path)) <= OPEN_FILES + 20
